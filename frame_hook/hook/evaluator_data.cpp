// frame_hook/hook/evaluator_data.cpp — stack, locals, cells, names, attributes, containers.
#include <utility>

#include "frame_hook/hook/evaluator.h"

namespace framejit::frame_hook {

using Flow = Evaluator::Flow;

Flow Evaluator::nop(const Instruction&) { return Flow::next; }
Flow Evaluator::resume(const Instruction& i) { return i.has(Instruction::kPolls) ? poll() : Flow::next; }

Flow Evaluator::make_cell(const Instruction& i) {
  PyObject* cell = PyCell_New(locals()[i.arg]);
  if (!cell) return Flow::raise;
  store_local(i.arg, cell);
  return Flow::next;
}

Flow Evaluator::copy_free_vars(const Instruction& i) {
  PyObject* closure = PyFunction_GetClosure(pyver::function(frame_));
  PyObject** slots = locals() + code_.local_count - i.arg;
  for (int k = 0; k < i.arg; k++) slots[k] = Py_NewRef(PyTuple_GET_ITEM(closure, k));
  return Flow::next;
}

// ---- stack

Flow Evaluator::pop_top(const Instruction& i) { return consume_status(i.arg, 0); }
Flow Evaluator::push_null(const Instruction&) { push(nullptr); return Flow::next; }
Flow Evaluator::copy(const Instruction& i) { push(Py_XNewRef(peek(i.arg))); return Flow::next; }
Flow Evaluator::swap(const Instruction& i) {
  std::swap(top_[-1], top_[-i.arg]);
  return Flow::next;
}

// ---- locals and cells

// The texts are those of Python/ceval.c, format_exc_unbound.
Flow Evaluator::unbound(const Instruction& i, bool is_cell) {
  PyObject* name = code_.local_name(i.arg);
  if (!is_cell || i.arg < code_.local_count - code_.free_count) {
    PyErr_Format(PyExc_UnboundLocalError, "cannot access local variable '%U' where it is not associated with a value",
                 name);
  } else {
    PyErr_Format(PyExc_NameError,
                 "cannot access free variable '%U' where it is not associated with a value in enclosing scope", name);
    attach_name(name);
  }
  return Flow::raise;
}

void Evaluator::attach_name(PyObject* name) {
  PyObject* error = pyver::take_exception();
  if (PyObject_SetAttrString(error, "name", name) < 0) PyErr_Clear();
  pyver::give_exception(error);
}

Flow Evaluator::load_fast(const Instruction& i) {
  PyObject* value = locals()[i.arg];
  if (!value) return unbound(i, false);
  push(Py_NewRef(value));
  return Flow::next;
}
Flow Evaluator::load_fast_and_clear(const Instruction& i) {
  push(std::exchange(locals()[i.arg], nullptr));
  return Flow::next;
}
Flow Evaluator::store_fast(const Instruction& i) {
  store_local(i.arg, pop());
  return Flow::next;
}
Flow Evaluator::delete_fast(const Instruction& i) {
  if (!locals()[i.arg]) return unbound(i, false);
  store_local(i.arg, nullptr);
  return Flow::next;
}
Flow Evaluator::load_const(const Instruction& i) { push(Py_NewRef(i.object)); return Flow::next; }

Flow Evaluator::load_deref(const Instruction& i) {
  PyObject* value = PyCell_Get(locals()[i.arg]);
  return value ? push_new(value) : unbound(i, true);
}
Flow Evaluator::store_deref(const Instruction& i) {
  PyObject* value = pop();
  sync();
  PyCell_Set(locals()[i.arg], value);
  Py_DECREF(value);
  return Flow::next;
}
Flow Evaluator::delete_deref(const Instruction& i) {
  PyObject* cell = locals()[i.arg];
  if (!PyCell_GET(cell)) return unbound(i, true);
  PyCell_Set(cell, nullptr);
  return Flow::next;
}

// ---- globals

Flow Evaluator::push_with_null(const Instruction& i, PyObject* value) {
  if (!i.has(Instruction::kNullAbove)) push(nullptr);
  push(value);
  if (i.has(Instruction::kNullAbove)) push(nullptr);
  return Flow::next;
}

Flow Evaluator::raise_name_error(PyObject* name) {
  PyErr_Format(PyExc_NameError, "name '%U' is not defined", name);
  attach_name(name);
  return Flow::raise;
}

Flow Evaluator::load_global(const Instruction& i) {
  PyObject *globals = pyver::globals(frame_), *builtins = pyver::builtins(frame_);
  if (!PyDict_CheckExact(globals) || !PyDict_CheckExact(builtins)) return Flow::leave;
  PyObject* value = PyDict_GetItemWithError(globals, i.object);
  if (!value && !PyErr_Occurred()) value = PyDict_GetItemWithError(builtins, i.object);
  if (!value) return PyErr_Occurred() ? Flow::raise : raise_name_error(i.object);
  Py_INCREF(value);
  return i.has(Instruction::kPushNull) ? push_with_null(i, value) : push_new(value);
}
Flow Evaluator::store_global(const Instruction& i) {
  return consume_status(1, PyDict_SetItem(pyver::globals(frame_), i.object, peek(1)));
}
Flow Evaluator::delete_global(const Instruction& i) {
  if (PyDict_DelItem(pyver::globals(frame_), i.object) == 0) return Flow::next;
  return PyErr_ExceptionMatches(PyExc_KeyError) ? (PyErr_Clear(), raise_name_error(i.object)) : Flow::raise;
}
Flow Evaluator::load_build_class(const Instruction&) {
  PyObject* builtins = pyver::builtins(frame_);
  PyObject* value = PyDict_CheckExact(builtins) ? PyDict_GetItemString(builtins, "__build_class__") : nullptr;
  return value ? push_new(Py_NewRef(value)) : Flow::leave;
}
Flow Evaluator::load_assertion_error(const Instruction&) { push(Py_NewRef(PyExc_AssertionError)); return Flow::next; }

// ---- attributes

Flow Evaluator::load_attr(const Instruction& i) {
  PyObject* object = peek(1);
  if (!i.has(Instruction::kMethod)) return consume(1, PyObject_GetAttr(object, i.object));
  PyObject* value = nullptr;
  const int is_method = _PyObject_GetMethod(object, i.object, &value);
  if (!value) return consume(1, nullptr);
  if (is_method) {
    top_[-1] = value;  // the object's reference moves up
    push(object);
    return Flow::next;
  }
  pop();
  push_with_null(i, value);
  sync();
  Py_DECREF(object);
  return Flow::next;
}

Flow Evaluator::load_super_attr(const Instruction& i) {
  PyObject* arguments[] = {peek(2), peek(1)};
  PyObject* super = PyObject_Vectorcall(peek(3), arguments, i.has(Instruction::kTwoArgSuper) ? 2 : 0, nullptr);
  PyObject* value = super ? PyObject_GetAttr(super, i.object) : nullptr;
  Py_XDECREF(super);
  if (!value || !i.has(Instruction::kMethod)) return consume(3, value);
  PyObject** base = top_ - 3;
  PyObject* operands[] = {base[0], base[1], base[2]};
  top_ = base;
  push_with_null(i, value);
  sync();
  for (PyObject* operand : operands) Py_DECREF(operand);
  return Flow::next;
}
Flow Evaluator::store_attr(const Instruction& i) {
  return consume_status(2, PyObject_SetAttr(peek(1), i.object, peek(2)));
}
Flow Evaluator::delete_attr(const Instruction& i) {
  return consume_status(1, PyObject_SetAttr(peek(1), i.object, nullptr));
}

// ---- building

Flow Evaluator::build_tuple(const Instruction& i) {
  PyObject* tuple = PyTuple_New(i.arg);
  if (!tuple) return consume(i.arg, nullptr);
  for (int k = i.arg - 1; k >= 0; k--) PyTuple_SET_ITEM(tuple, k, pop());
  return push_new(tuple);
}
Flow Evaluator::build_list(const Instruction& i) {
  PyObject* list = PyList_New(i.arg);
  if (!list) return consume(i.arg, nullptr);
  for (int k = i.arg - 1; k >= 0; k--) PyList_SET_ITEM(list, k, pop());
  return push_new(list);
}
Flow Evaluator::build_set(const Instruction& i) {
  PyObject* set = PySet_New(nullptr);
  for (int k = i.arg; set && k > 0; k--)
    if (PySet_Add(set, peek(k)) < 0) Py_CLEAR(set);
  return consume(i.arg, set);
}
Flow Evaluator::build_map(const Instruction& i) {
  PyObject* dict = PyDict_New();
  for (int k = 2 * i.arg; dict && k > 0; k -= 2)
    if (PyDict_SetItem(dict, peek(k), peek(k - 1)) < 0) Py_CLEAR(dict);
  return consume(2 * i.arg, dict);
}
Flow Evaluator::build_const_key_map(const Instruction& i) {
  PyObject *keys = peek(1), *dict = PyDict_New();
  for (int k = 0; dict && k < i.arg; k++)
    if (PyDict_SetItem(dict, PyTuple_GET_ITEM(keys, k), peek(i.arg + 1 - k)) < 0) Py_CLEAR(dict);
  return consume(i.arg + 1, dict);
}
Flow Evaluator::build_string(const Instruction& i) {
  PyObject* parts = PyTuple_New(i.arg);
  PyObject* empty = PyUnicode_FromStringAndSize(nullptr, 0);
  PyObject* joined = nullptr;
  if (parts && empty) {
    for (int k = 0; k < i.arg; k++) PyTuple_SET_ITEM(parts, k, Py_NewRef(peek(i.arg - k)));
    joined = PyUnicode_Join(empty, parts);
  }
  Py_XDECREF(parts);
  Py_XDECREF(empty);
  return consume(i.arg, joined);
}
Flow Evaluator::list_append(const Instruction& i) { return consume_status(1, PyList_Append(peek(i.arg + 1), peek(1))); }
Flow Evaluator::set_add(const Instruction& i) { return consume_status(1, PySet_Add(peek(i.arg + 1), peek(1))); }
Flow Evaluator::map_add(const Instruction& i) {
  return consume_status(2, PyDict_SetItem(peek(i.arg + 2), peek(2), peek(1)));
}

// If it is not iterable, the interpreter has its own error text.
Flow Evaluator::list_extend(const Instruction& i) {
  PyObject* iterable = peek(1);
  if (!Py_TYPE(iterable)->tp_iter && !PySequence_Check(iterable)) return Flow::leave;
  PyObject* none = _PyList_Extend(reinterpret_cast<PyListObject*>(peek(i.arg + 1)), iterable);
  Py_XDECREF(none);
  return consume_status(1, none ? 0 : -1);
}
Flow Evaluator::set_update(const Instruction& i) { return consume_status(1, _PySet_Update(peek(i.arg + 1), peek(1))); }
Flow Evaluator::dict_update(const Instruction& i) {
  PyObject* mapping = peek(1);
  if (!PyDict_Check(mapping)) return Flow::leave;
  return consume_status(1, PyDict_Update(peek(i.arg + 1), mapping));
}
// A duplicate key is a TypeError that names the callee: the interpreter raises it, before anything is merged.
Flow Evaluator::dict_merge(const Instruction& i) {
  PyObject *dict = peek(i.arg + 1), *mapping = peek(1);
  if (!PyDict_CheckExact(mapping)) return Flow::leave;
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Next(mapping, &at, &key, &value);)
    if (!PyUnicode_CheckExact(key) || PyDict_Contains(dict, key) != 0) return Flow::leave;
  return consume_status(1, PyDict_Update(dict, mapping));
}
Flow Evaluator::list_to_tuple(const Instruction&) { return consume(1, PyList_AsTuple(peek(1))); }

// ---- taking apart

Flow Evaluator::unpack_exact(PyObject* sequence, int count) {
  pop();
  for (int k = count - 1; k >= 0; k--) push(Py_NewRef(PySequence_Fast_GET_ITEM(sequence, k)));
  sync();
  Py_DECREF(sequence);
  return Flow::next;
}

Flow Evaluator::unpack_sequence(const Instruction& i) {
  PyObject* iterable = peek(1);
  if ((PyTuple_CheckExact(iterable) || PyList_CheckExact(iterable)) && PySequence_Fast_GET_SIZE(iterable) == i.arg)
    return unpack_exact(iterable, i.arg);
  return unpack_iterable(iterable, i.arg, -1);
}
Flow Evaluator::unpack_ex(const Instruction& i) { return unpack_iterable(peek(1), i.arg, i.extra); }

namespace {

PyObject* not_iterable(PyObject* object) {
  if (PyErr_ExceptionMatches(PyExc_TypeError) && !Py_TYPE(object)->tp_iter && !PySequence_Check(object))
    PyErr_Format(PyExc_TypeError, "cannot unpack non-iterable %.200s object", Py_TYPE(object)->tp_name);
  return nullptr;
}

// The items of an iterable as a list: exactly `before`, or at least before + after if after >= 0. The texts are those
// of Python/ceval.c, unpack_iterable.
PyObject* items_of(PyObject* iterable, int before, int after) {
  PyObject* iterator = PyObject_GetIter(iterable);
  if (!iterator) return not_iterable(iterable);
  PyObject* items = PyList_New(0);
  auto fail = [&] { Py_CLEAR(items); };
  while (items && PyList_GET_SIZE(items) < before) {
    PyObject* item = PyIter_Next(iterator);
    if (item) {
      if (PyList_Append(items, item) < 0) fail();
      Py_DECREF(item);
      continue;
    }
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_ValueError,
                   after < 0 ? "not enough values to unpack (expected %d, got %zd)"
                             : "not enough values to unpack (expected at least %d, got %zd)",
                   before + (after < 0 ? 0 : after), PyList_GET_SIZE(items));
    fail();
  }
  if (items && after < 0) {
    PyObject* item = PyIter_Next(iterator);
    if (item) PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d)", before);
    Py_XDECREF(item);
    if (PyErr_Occurred()) fail();
  } else if (items) {
    PyObject* none = _PyList_Extend(reinterpret_cast<PyListObject*>(items), iterator);
    if (!none) {
      fail();
    } else if (PyList_GET_SIZE(items) < before + after) {
      PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected at least %d, got %zd)", before + after,
                   PyList_GET_SIZE(items));
      fail();
    }
    Py_XDECREF(none);
  }
  Py_DECREF(iterator);
  return items;
}

}  // namespace

Flow Evaluator::unpack_iterable(PyObject* iterable, int before, int after) {
  PyObject* items = items_of(iterable, before, after);
  if (!items) return consume(1, nullptr);
  pop();
  const Py_ssize_t count = PyList_GET_SIZE(items);
  if (after >= 0) {
    for (Py_ssize_t k = count - 1; k >= count - after; k--) push(Py_NewRef(PyList_GET_ITEM(items, k)));
    PyObject* middle = PyList_GetSlice(items, before, count - after);
    if (!middle) {
      top_ -= after;
      for (int k = 0; k < after; k++) Py_DECREF(top_[k]);
      push(iterable);
      Py_DECREF(items);
      return consume(1, nullptr);
    }
    push(middle);
  }
  for (int k = before - 1; k >= 0; k--) push(Py_NewRef(PyList_GET_ITEM(items, k)));
  sync();
  Py_DECREF(items);
  Py_DECREF(iterable);
  return Flow::next;
}

}  // namespace framejit::frame_hook
