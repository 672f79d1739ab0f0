// frame_hook/trace/types/warnings.cpp — warnings.warn(): the exit gives the warning, before its other effects.
//
// What the warnings module then does with a warning is decided anew in each call: which filter fits, whether this place
// has warned before, where the text goes. A trace relies on only two facts: no filter makes an exception of a warning
// of this category, and what shows warnings is the module's own code. Otherwise warn() is a graph break.
#include <algorithm>
#include <array>

#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/values/payloads.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/weak_objects.h"

namespace framejit::frame_hook {

namespace {

PyObject* warnings_module() {  // borrowed; null: not loaded
  static PyObject* const name = interned("warnings");
  PyObject* const module = PyDict_GetItemWithError(PyImport_GetModuleDict(), name);
  return module && PyModule_Check(module) ? module : nullptr;
}

// The members of the module that decide, borrowed; null: deleted.
struct Members {
  PyObject *filters, *otherwise, *show, *own_show, *impl;

  explicit Members(PyObject* module) {
    static PyObject* const names[] = {interned("filters"), interned("defaultaction"), interned("showwarning"),
                                      interned("_showwarning_orig"), interned("_showwarnmsg_impl")};
    PyObject** const members[] = {&filters, &otherwise, &show, &own_show, &impl};
    for (size_t i = 0; i < std::size(names); ++i)
      *members[i] = PyDict_GetItemWithError(PyModule_GetDict(module), names[i]);
  }
};

bool raises(PyObject* action) {
  static constexpr std::array kHarmless = {"default", "ignore", "always", "module", "once", "all"};
  return !PyUnicode_Check(action) || std::none_of(kHarmless.begin(), kHarmless.end(), [&](const char* known) {
    return PyUnicode_CompareWithASCIIString(action, known) == 0;
  });
}

// Whether a filter for warnings of this category, or a base class of it, makes them exceptions.
bool may_raise(const Members& members, PyTypeObject* category) {
  if (!members.filters || !PyList_Check(members.filters) || !members.otherwise || raises(members.otherwise))
    return true;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(members.filters); ++i) {
    PyObject* filter = PyList_GET_ITEM(members.filters, i);
    if (!PyTuple_Check(filter) || PyTuple_GET_SIZE(filter) != 5) return true;
    PyObject* of = PyTuple_GET_ITEM(filter, 2);
    if (!PyType_Check(of)) return true;
    if (PyType_IsSubtype(category, reinterpret_cast<PyTypeObject*>(of)) && raises(PyTuple_GET_ITEM(filter, 0)))
      return true;
  }
  return false;
}

// The list to which catch_warnings(record=True) appends. None: warnings are shown. Null: code of the program
// shows them.
PyObject* record_of(PyObject* module, const Members& members) {
  if (!members.show || members.show != members.own_show || !members.impl) return nullptr;
  if (PyCFunction_Check(members.impl)) {
    PyObject* list = PyCFunction_GET_SELF(members.impl);
    return list && PyList_CheckExact(list) ? list : nullptr;
  }
  const bool is_own =
      PyFunction_Check(members.impl) && PyFunction_GET_GLOBALS(members.impl) == PyModule_GetDict(module);
  return is_own ? Py_None : nullptr;
}

// What a trace that gives a warning relies on. The class is held weakly: it may be one of the program's.
class WarnsQuietly final : public guards::ModeFacts {
 public:
  WarnsQuietly(PyTypeObject* category, bool recorded)
      : category_(PyRef::steal(PyWeakref_NewRef(reinterpret_cast<PyObject*>(category), nullptr))), recorded_(recorded) {
    if (!category_) drop_error();
  }
  bool matches() const override {
    PyObject* const module = warnings_module();
    PyObject* const category = category_ ? guards::weak_target(category_.get()) : nullptr;
    if (!module || !category) return false;
    const Members members(module);
    PyObject* const record = record_of(module, members);
    return record && (record != Py_None) == recorded_ && !may_raise(members, reinterpret_cast<PyTypeObject*>(category));
  }
  std::string mismatch() const override {
    return "a warning is raised, or shown in another way than when the function was compiled";
  }

 private:
  const PyRef category_;
  const bool recorded_;
};

[[noreturn]] void refuse_to_warn(const char* why) {
  graph_break(Reason::outside_effect, std::string("warnings.warn()") + why);
}

bool is_written(Heap& heap, PyObject* object) {
  const Value* known = object ? heap.find(object) : nullptr;
  return known && known->mutated;
}

// The class of the warning. The exit makes one, so its constructor must be that of exceptions in C.
Value* category_of(Heap& heap, Value* given) {
  if (is_none(heap.facts, given)) return heap.constant_value(PyExc_UserWarning);
  if (!given->object || !PyType_Check(given->object.get())) refuse_to_warn("");
  heap.facts.guard_identity(given);
  auto* type = reinterpret_cast<PyTypeObject*>(given->object.get());
  auto* plain = reinterpret_cast<PyTypeObject*>(PyExc_Warning);
  if (!PyType_IsSubtype(type, plain) || type->tp_init != plain->tp_init || type->tp_new != plain->tp_new)
    refuse_to_warn("");
  return given;
}

// The frame that a warning names; null: it is outside of the trace.
const SymbolicFrame* frame_of(const CallStack& stack, int64_t level) {
  const auto frames = stack.frames();
  const size_t above = level < 1 ? 0 : static_cast<size_t>(level - 1);
  return above < frames.size() ? frames[frames.size() - 1 - above].get() : nullptr;
}

}  // namespace

PyObject* record_of_warnings() {
  PyObject* const module = warnings_module();
  PyObject* const record = module ? record_of(module, Members(module)) : nullptr;
  return record == Py_None ? nullptr : record;
}

namespace rows {

Value* warn(Tracer& t, const Arguments& args) {
  static constexpr std::array kNames = {"message", "category", "stacklevel", "source"};
  std::array<Value*, kNames.size()> given{};
  if (args.positional.size() > kNames.size()) refuse_to_warn("");
  std::copy(args.positional.begin(), args.positional.end(), given.begin());
  for (auto& [name, v] : args.keywords) {
    const auto* at = std::find(kNames.begin(), kNames.end(), std::string_view(text_of(name)));
    if (at == kNames.end() || given[static_cast<size_t>(at - kNames.begin())]) refuse_to_warn("");
    given[static_cast<size_t>(at - kNames.begin())] = v;
  }
  auto [message, category, level, source] = given;
  if (!message || message->kind != ValueKind::object || !message->object ||
      !PyUnicode_CheckExact(message->object.get()) || !is_none(t.facts, source))
    refuse_to_warn("");
  constant_of(t.shadows, message);
  category = category_of(t.heap, category);
  const SymbolicFrame* frame = frame_of(t.stack, level ? t.as_index(level) : 1);
  if (!frame) refuse_to_warn(" for a caller outside");

  PyObject* const module = warnings_module();
  if (!module) refuse_to_warn("");
  const Members members(module);
  PyObject* const record = record_of(module, members);
  auto* type = reinterpret_cast<PyTypeObject*>(category->object.get());
  if (!record) refuse_to_warn(" shown by code of the program");
  if (may_raise(members, type)) refuse_to_warn(" that a filter raises");
  if (is_written(t.heap, module) || is_written(t.heap, PyModule_GetDict(module)) || is_written(t.heap, members.filters))
    refuse_to_warn(" after a change of the filters");
  t.facts.rely_on_mode(std::make_shared<WarnsQuietly>(type, record != Py_None));
  PyCodeObject* const code = frame->code->code;
  t.shadows.tables().warnings.push_back({category, message, frame->globals, PyRef::borrow(code->co_filename),
                                         frame->code->instructions[frame->position].line, t.attempts.resumable_step()});
  return t.heap.none();
}

}  // namespace rows

}  // namespace framejit::frame_hook
