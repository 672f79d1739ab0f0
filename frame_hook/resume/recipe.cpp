// frame_hook/resume/recipe.cpp — runs a recipe: slots are filled in step order with new references.
#include "frame_hook/resume/recipe.h"

#include "frame_hook/trace/protocol/made_values.h"
#include "frame_hook/trace/types/set_order.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/payloads.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/iterators.h"

namespace framejit::frame_hook {

namespace {

PyObject* item(const std::vector<PyRef>& slots, SlotId id) { return id == kUnbound ? nullptr : slots[id].get(); }

PyObject* tuple_of(const std::vector<SlotId>& operands, const std::vector<PyRef>& slots, size_t from = 0) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(operands.size() - from));
  if (!tuple) return nullptr;
  for (size_t i = from; i < operands.size(); ++i)
    PyTuple_SET_ITEM(tuple, i - from, Py_NewRef(item(slots, operands[i])));
  return tuple;
}

bool fill_set(PyObject* target, const RecipeStep& s, const std::vector<PyRef>& slots, size_t from) {
  std::vector<PyObject*> items;
  for (size_t i = from; i < s.operands.size(); ++i) items.push_back(item(slots, s.operands[i]));
  if (s.object) return fill_in_places(target, s.object.get(), items);
  for (PyObject* key : items)
    if (PySet_Add(target, key) < 0) return false;
  return true;
}

// For C code such as str.split, this is a built-in method.
PyObject* bound_method(PyObject* function, PyObject* self) {
  PyTypeObject* const of = Py_TYPE(function);
  if (of == &PyClassMethodDescr_Type) return of->tp_descr_get(function, nullptr, self);
  const bool in_c = of == &PyMethodDescr_Type || of == &PyWrapperDescr_Type;
  return in_c ? of->tp_descr_get(function, self, reinterpret_cast<PyObject*>(Py_TYPE(self)))
              : PyMethod_New(function, self);
}

// For an unknown order. In a set that keeps some items, the other items are removed and the new ones added, as the
// program did, so the order is the same.
bool change_set(PyObject* target, const RecipeStep& s, const std::vector<PyRef>& slots) {
  if (s.object) return PySet_Clear(target) == 0 && fill_set(target, s, slots, 1);
  PyRef wanted = PyRef::steal(PySet_New(nullptr)), before = PyRef::steal(PySequence_List(target));
  if (!wanted || !before || !fill_set(wanted.get(), s, slots, 1)) return false;
  std::vector<PyObject*> dropped;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(before.get()); ++i) {
    const int kept = PySet_Contains(wanted.get(), PyList_GET_ITEM(before.get(), i));
    if (kept < 0) return false;
    if (kept == 0) dropped.push_back(PyList_GET_ITEM(before.get(), i));
  }
  if (static_cast<Py_ssize_t>(dropped.size()) == PyList_GET_SIZE(before.get()) && PySet_Clear(target) < 0) return false;
  for (PyObject* key : dropped)
    if (PySet_Discard(target, key) < 0) return false;
  return fill_set(target, s, slots, 1);
}

bool assign_list(PyObject* target, const std::vector<SlotId>& operands, const std::vector<PyRef>& slots) {
  PyRef items = PyRef::steal(tuple_of(operands, slots, 1));
  return items && PyList_SetSlice(target, 0, PyList_GET_SIZE(target), items.get()) == 0;
}

bool extend_list(PyObject* target, const std::vector<SlotId>& operands, const std::vector<PyRef>& slots) {
  PyRef items = PyRef::steal(tuple_of(operands, slots, 1));
  return items && PyList_SetSlice(target, PyList_GET_SIZE(target), PyList_GET_SIZE(target), items.get()) == 0;
}

// Assigns through the mapping slot of the builtin class that lays out the object: OrderedDict keeps its order, and no
// code of the user runs.
bool assign_item(PyObject* target, PyObject* key, PyObject* value) {
  if (PyDict_CheckExact(target))
    return value ? PyDict_SetItem(target, key, value) == 0 : PyDict_DelItem(target, key) == 0;
  return builtin_base(Py_TYPE(target))->tp_as_mapping->mp_ass_subscript(target, key, value) == 0;
}

PyObject* make_function(const RecipeStep& s, const std::vector<PyRef>& slots) {
  PyObject* f = PyFunction_NewWithQualName(s.object.get(), item(slots, s.operands[0]), item(slots, s.operands[5]));
  if (!f) return nullptr;
  PyRef owned = PyRef::steal(f);
  if (PyObject* closure = item(slots, s.operands[1]); closure && PyFunction_SetClosure(f, closure) < 0) return nullptr;
  if (PyObject* defaults = item(slots, s.operands[2]); defaults && PyFunction_SetDefaults(f, defaults) < 0)
    return nullptr;
  if (PyObject* kwdefaults = item(slots, s.operands[3]); kwdefaults && PyFunction_SetKwDefaults(f, kwdefaults) < 0)
    return nullptr;
  if (PyObject* name = item(slots, s.operands[4]); name && PyObject_SetAttrString(f, "__name__", name) < 0)
    return nullptr;
  return owned.release();
}

PyObject* make_instance(const RecipeStep& s, const std::vector<PyRef>& slots) {
  auto* type = reinterpret_cast<PyTypeObject*>(s.object.get());
  PyRef arguments = PyRef::steal(tuple_of(s.operands, slots));
  if (!arguments) return nullptr;
  PyTypeObject* base = builtin_base(type);
  PyRef made = PyRef::steal(base->tp_new(type, arguments.get(), nullptr));
  if (made && s.number == 1 && base->tp_init(made.get(), arguments.get(), nullptr) < 0) return nullptr;
  return made.release();
}

PyObject* call_slot(const RecipeStep& s, const std::vector<PyRef>& slots) {
  std::vector<PyObject*> arguments;
  for (size_t i = 1; i < s.operands.size(); ++i) arguments.push_back(item(slots, s.operands[i]));
  const size_t named = s.object ? static_cast<size_t>(PyTuple_GET_SIZE(s.object.get())) : 0;
  return PyObject_Vectorcall(item(slots, s.operands[0]), arguments.data(), arguments.size() - named, s.object.get());
}

PyObject* advance(PyObject* iterator, int64_t position) {
  const bool reversed = Py_IS_TYPE(iterator, &PyReversed_Type) || Py_IS_TYPE(iterator, &PyListRevIter_Type);
  if (position == 0 && !reversed) return Py_NewRef(iterator);
  PyRef done = PyRef::steal(PyObject_CallMethod(iterator, "__setstate__", "L", static_cast<long long>(position)));
  return done ? Py_NewRef(iterator) : nullptr;
}

// Something that the trace set and then deleted need not have existed before.
bool absent_now(bool done, PyObject* error) {
  if (done || !PyErr_ExceptionMatches(error)) return done;
  drop_error();
  return true;
}

// As warnings.warn() does for the frame whose globals these are.
bool give_warning(PyObject* category, PyObject* message, PyObject* globals, PyObject* file, int64_t line) {
  PyObject* module = PyDict_GetItemWithError(globals, interned("__name__"));
  const PyRef unnamed = PyRef::steal(PyUnicode_FromString("<string>"));
  if (!module || (module != Py_None && !PyUnicode_Check(module))) module = unnamed.get();
  const PyRef fresh = PyRef::steal(PyDict_New());
  PyObject* registry = fresh ? PyDict_SetDefault(globals, interned("__warningregistry__"), fresh.get()) : nullptr;
  return module && registry &&
         PyErr_WarnExplicitObject(category, message, file, static_cast<int>(line), module, registry) == 0;
}

bool consume(PyObject* iterator, int64_t count) {
  for (; count > 0; --count)
    if (!PyRef::steal(PyIter_Next(iterator))) break;
  return !PyErr_Occurred();
}

}  // namespace

bool Recipe::run(const RecipeInputs& inputs, std::vector<PyRef>& slots) const {
  slots.resize(slot_count_);
  return run_steps(0, end_begins_.value_or(steps_.size()), inputs, slots);
}

bool Recipe::run_end(const RecipeInputs& inputs, std::vector<PyRef>& slots) const {
  return run_steps(end_begins_.value_or(steps_.size()), steps_.size(), inputs, slots);
}

bool Recipe::run_steps(size_t from, size_t to, const RecipeInputs& inputs, std::vector<PyRef>& slots) const {
  for (; from < to; ++from)
    if (!run_step(steps_[from], inputs, slots)) return false;
  return true;
}

bool Recipe::run_step(const RecipeStep& s, const RecipeInputs& in, std::vector<PyRef>& slots) const {
  auto at = [&](size_t i) { return item(slots, s.operands[i]); };
  auto give = [&](PyObject* made) {
    slots[s.result] = PyRef::steal(made);
    return made != nullptr;
  };
  switch (s.op) {
    case RecipeOp::fetch: slots[s.result] = PyRef::borrow(in.registers[s.number]); return true;
    case RecipeOp::constant: slots[s.result] = s.object; return true;
    case RecipeOp::output: slots[s.result] = PyRef::borrow(in.outputs[s.number]); return true;
    case RecipeOp::size: return give(PyLong_FromLongLong(sizes_[s.number].eval({in.symbols, SIZE_MAX / 16})));
    case RecipeOp::tuple: return give(tuple_of(s.operands, slots));
    case RecipeOp::list: return give(PyList_New(0));
    case RecipeOp::dict: return give(PyDict_New());
    case RecipeOp::set: return give(PySet_New(nullptr)) && fill_set(slots[s.result].get(), s, slots, 0);
    case RecipeOp::frozenset: return give(PyFrozenSet_New(nullptr)) && fill_set(slots[s.result].get(), s, slots, 0);
    case RecipeOp::slice: return give(PySlice_New(at(0), at(1), at(2)));
    case RecipeOp::cell: return give(PyCell_New(nullptr));
    case RecipeOp::fill_list:
      for (size_t i = 1; i < s.operands.size(); ++i)
        if (PyList_Append(at(0), at(i)) < 0) return false;
      return true;
    case RecipeOp::fill_dict:
      for (size_t i = 1; i + 1 < s.operands.size(); i += 2)
        if (!assign_item(at(0), at(i), at(i + 1))) return false;
      return true;
    case RecipeOp::fill_cell:
    case RecipeOp::assign_cell: return PyCell_Set(at(0), at(1)) == 0;
    case RecipeOp::function: return give(make_function(s, slots));
    case RecipeOp::instance_dict: return give(PyObject_GenericGetDict(at(0), nullptr));
    case RecipeOp::method: return give(bound_method(at(0), at(1)));
    case RecipeOp::instance: return give(make_instance(s, slots));
    case RecipeOp::set_attribute: {
      auto* set = PyType_Check(at(0)) || PyModule_Check(at(0)) ? PyObject_SetAttr : PyObject_GenericSetAttr;
      const bool done = set(at(0), s.object.get(), at(1)) == 0;
      return at(1) ? done : absent_now(done, PyExc_AttributeError);
    }
    case RecipeOp::call: {
      PyRef arguments = PyRef::steal(tuple_of(s.operands, slots));
      return arguments && give(PyObject_Call(s.object.get(), arguments.get(), nullptr));
    }
    case RecipeOp::warn: return give_warning(at(0), at(1), at(2), s.object.get(), s.number);
    case RecipeOp::call_slot: return give(call_slot(s, slots));
    case RecipeOp::advance: return give(advance(at(0), s.number));
    case RecipeOp::consume: return consume(at(0), s.number) && give(Py_NewRef(at(0)));
    case RecipeOp::skip: guards::skip_in_enumerate(at(0), s.number); return true;
    case RecipeOp::assign_list: return assign_list(at(0), s.operands, slots);
    case RecipeOp::extend_list: return extend_list(at(0), s.operands, slots);
    case RecipeOp::assign_dict_item: return assign_item(at(0), at(1), at(2));
    case RecipeOp::delete_dict_item: return absent_now(assign_item(at(0), at(1), nullptr), PyExc_KeyError);
    case RecipeOp::clear_dict: {
      PyRef method =
          PyRef::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(builtin_base(Py_TYPE(at(0)))), "clear"));
      PyRef done = method ? PyRef::steal(PyObject_CallOneArg(method.get(), at(0))) : PyRef();
      return static_cast<bool>(done);
    }
    case RecipeOp::fill_set: return fill_set(at(0), s, slots, 1);
    case RecipeOp::change_set: return change_set(at(0), s, slots);
    case RecipeOp::restore_modes: frontend_->restore_modes(modes_[s.number]); return true;
  }
  return false;
}

}  // namespace framejit::frame_hook
