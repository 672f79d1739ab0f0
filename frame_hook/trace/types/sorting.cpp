// frame_hook/trace/types/sorting.cpp — list.sort() and sorted(): CPython's own sort, over stand-ins that the trace
// compares.
//
// An __lt__ in Python sees which items are compared and in which order, and how far they are sorted when it raises.
// This differs between versions of CPython. So there is no sort here: list.sort() sorts a real list of stand-ins, whose
// comparison calls back. A C++ exception of the tracer must not pass through CPython: it is kept, and thrown again when
// the sort has returned with an error.
#include <cxxabi.h>

#include <exception>

#include "frame_hook/trace/machine/unresumable.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/payloads.h"
#include "frame_hook/trace/types/builtins.h"
#include "guards/cpython/interrupts.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

namespace {

struct SortRun {
  Tracer& t;
  const std::vector<Value*>& keys;
  std::exception_ptr thrown;
};

struct StandIn {
  PyObject_HEAD
  SortRun* run;
  size_t index;
};

StandIn* stand_in(PyObject* object) { return reinterpret_cast<StandIn*>(object); }

PyObject* compare_stand_ins(PyObject* a, PyObject* b, int op) {
  SortRun& run = *stand_in(a)->run;
  try {
    return PyBool_FromLong(run.t.truth(run.t.compare(op, run.keys[stand_in(a)->index], run.keys[stand_in(b)->index])));
  } catch (const abi::__forced_unwind&) {  // the interpreter ends this thread
    throw;
  } catch (...) {
    run.thrown = std::current_exception();
    PyErr_SetNone(PyExc_RuntimeError);
    return nullptr;
  }
}

PyTypeObject* stand_in_type() {
  static PyTypeObject* const type = [] {
    static PyType_Slot slots[] = {{Py_tp_richcompare, reinterpret_cast<void*>(compare_stand_ins)}, {0, nullptr}};
    static PyType_Spec spec = {"framejit.StandIn", sizeof(StandIn), 0, Py_TPFLAGS_DEFAULT, slots};
    return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  }();
  return type;
}

// Where each item comes from after the keys are sorted, or sorted as far as they were when a comparison threw.
std::vector<size_t> sorted_order(SortRun& run, bool backwards) {
  PyRef list = PyRef::steal(PyList_New(0));
  for (size_t i = 0; i < run.keys.size(); ++i) {
    PyRef made = PyRef::steal(reinterpret_cast<PyObject*>(PyObject_New(StandIn, stand_in_type())));
    if (!made || PyList_Append(list.get(), made.get()) < 0) throw std::bad_alloc();
    stand_in(made.get())->run = &run;
    stand_in(made.get())->index = i;
  }
  PyRef sort = PyRef::steal(PyObject_GetAttrString(list.get(), "sort")), none = PyRef::steal(PyTuple_New(0));
  PyRef options = PyRef::steal(Py_BuildValue("{s:i}", "reverse", backwards ? 1 : 0));
  const PyRef done = PyRef::steal(PyObject_Call(sort.get(), none.get(), options.get()));
  if (!done) drop_error();
  FJ_ASSERT(done || run.thrown, "a sort that failed by itself");
  std::vector<size_t> order;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i)
    order.push_back(stand_in(PyList_GET_ITEM(list.get(), i))->index);
  return order;
}

// A list looks empty while it is being sorted; its items come back whatever happens.
struct Emptied {
  ListValue* list;
  std::vector<Value*> items;
  explicit Emptied(ListValue* l) : list(l), items(std::exchange(l->items, {})) { list->being_sorted = true; }
  ~Emptied() {
    list->being_sorted = false;
    list->items = std::move(items);
  }
  Emptied(const Emptied&) = delete;
};

}  // namespace

void sort_list(Tracer& t, ListValue* list, Value* key, Value* reverse) {
  // What else C code takes depends on the version of CPython, and a large number is an error.
  if (reverse && t.facts.type_of(reverse) != &PyBool_Type && (!is_int(reverse) || !t.as_size(reverse)))
    graph_break(Reason::unsupported_operand, "sorting with reverse=" + describe(reverse));
  const bool backwards = reverse && t.truth(reverse);
  if (key && same_object(t.shadows, key, t.heap.none())) key = nullptr;
  Unresumable guard(t.stack);
  Emptied sorted(list);
  std::vector<Value*> keys;
  for (Value* item : sorted.items) keys.push_back(key ? t.call(key, {item}) : item);
  SortRun run{t, keys, nullptr};
  const std::vector<Value*> before = sorted.items;
  sorted.items.clear();
  for (size_t i : sorted_order(run, backwards)) sorted.items.push_back(before[i]);
  if (run.thrown) std::rethrow_exception(run.thrown);
}

}  // namespace framejit::frame_hook
