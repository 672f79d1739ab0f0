#include "frame_hook/trace/torch/real_calls.h"

#include "frame_hook/trace/protocol/lookup.h"
#include "frame_hook/trace/types/set_order.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/numpy_objects.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

namespace {

struct CallArguments {  // in vectorcall form
  std::vector<PyRef> owned;
  std::vector<PyObject*> args;
  PyRef names;
  size_t positional = 0;
};

CallArguments materialise_arguments(RealCalls& calls, const Arguments& from) {
  CallArguments to;
  to.positional = from.positional.size();
  to.owned.reserve(to.positional + from.keywords.size());
  for (Value* v : from.positional) to.owned.push_back(calls.materialise(v));
  if (!from.keywords.empty()) {
    to.names = PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(from.keywords.size())));
    for (size_t i = 0; i < from.keywords.size(); ++i) {
      PyTuple_SET_ITEM(to.names.get(), i, Py_NewRef(from.keywords[i].first));
      to.owned.push_back(calls.materialise(from.keywords[i].second));
    }
  }
  for (const PyRef& r : to.owned) to.args.push_back(r.get());
  return to;
}

// Ints that are symbols, also in lists, become their numbers. False: there are none.
bool make_symbols_constant(Shadows& shadows, Value* v) {
  if (v->kind == ValueKind::sym_int && !shadows.heap.is_constant(v)) return constant_of(shadows, v), true;
  if (v->kind != ValueKind::tuple && v->kind != ValueKind::list) return false;
  bool found = false;
  for (Value* item : items_of(shadows, v)) found = make_symbols_constant(shadows, item) || found;
  return found;
}
bool make_symbols_constant(Shadows& shadows, const Arguments& args) {
  bool found = false;
  for (Value* v : args.positional) found = make_symbols_constant(shadows, v) || found;
  for (const auto& [name, v] : args.keywords) found = make_symbols_constant(shadows, v) || found;
  return found;
}

}  // namespace

PyRef RealCalls::materialise_items(Value* v, const std::vector<Value*>& items) {
  const bool is_list = v->kind == ValueKind::list;
  PyRef made = PyRef::steal(is_list ? PyList_New(static_cast<Py_ssize_t>(items.size()))
                                    : PyTuple_New(static_cast<Py_ssize_t>(items.size())));
  if (!made) dicts.errors.raise_pending();
  for (size_t i = 0; i < items.size(); ++i) {
    PyObject* object = materialise(items[i]).release();
    if (is_list) PyList_SET_ITEM(made.get(), i, object);
    else PyTuple_SET_ITEM(made.get(), i, object);
  }
  return made;
}

PyRef RealCalls::materialise(Value* v) {
  switch (v->kind) {
    case ValueKind::object:
      if (dicts.heap.is_constant_object(v->object.get())) return PyRef::borrow(constant_of(dicts.shadows, v));
      // Arrays of other libraries: no guard sees writes to their memory, and what is made from them shares it.
      if (PyObject_CheckBuffer(v->object.get()))
        graph_break(Reason::unsupported_operand,
                    std::string("the memory of an object of type ") + Py_TYPE(v->object.get())->tp_name);
      dicts.facts.guard_identity(v);
      return v->object;
    case ValueKind::tensor: return PyRef::borrow(tensors.traced(as<TensorValue>(v)));
    case ValueKind::sym_int: {
      const graph::SymExpr& size = as<SymIntValue>(v)->expr;
      if (auto value = size.as_constant()) return PyRef::steal(PyLong_FromLongLong(*value));
      return PyRef::steal(recording().wrap_size(size));
    }
    case ValueKind::tuple:
      if (dicts.heap.is_constant(v)) return PyRef::borrow(constant_of(dicts.shadows, v));
      return dicts.facts.type_of(v), materialise_items(v, items_of(dicts.shadows, v));
    case ValueKind::list: return dicts.facts.type_of(v), materialise_items(v, items_of(dicts.shadows, v));
    case ValueKind::set: {
      if (dicts.heap.is_constant(v)) return PyRef::borrow(constant_of(dicts.shadows, v));
      dicts.facts.type_of(v);
      PyRef items = materialise_items(v, items_of(dicts.shadows, v));
      return real_set(v->type, items.get());
    }
    case ValueKind::slice: {
      auto* s = as<SliceValue>(v);
      PyRef start = materialise(s->start), stop = materialise(s->stop), step = materialise(s->step);
      return PyRef::steal(PySlice_New(start.get(), stop.get(), step.get()));
    }
    case ValueKind::dict: {
      auto* d = as<DictValue>(v);
      dicts.facts.type_of(d);
      dicts.load(d);
      PyRef made = PyRef::steal(PyDict_New());
      for (size_t i = 0; i < d->entries.size(); ++i) {
        PyRef key = materialise(d->entries[i].key), item = materialise(dicts.get(d, d->entries[i].key));
        if (PyDict_SetItem(made.get(), key.get(), item.get()) < 0) dicts.errors.raise_pending();
      }
      return made;
    }
    case ValueKind::instance: {
      if (c_functions_may_ask(dicts.shadows, v)) break;
      if (dicts.heap.is_constant(v)) return PyRef::borrow(constant_of(dicts.shadows, v));
      auto* instance = as<InstanceValue>(v);
      // torch.Size and torch's named results: C functions only read the tuple.
      if (instance->payload &&
          (instance->payload->kind == ValueKind::tuple || instance->payload->kind == ValueKind::object)) {
        dicts.facts.type_of(v);
        return materialise(instance->payload);
      }
      break;
    }
    case ValueKind::null:
    case ValueKind::cell:
    case ValueKind::function:
    case ValueKind::method:
    case ValueKind::iterator:
    case ValueKind::generator:
    case ValueKind::super:
    case ValueKind::view:
    case ValueKind::identity:
    case ValueKind::array: break;
  }
  graph_break(Reason::unsupported_operand,
              std::string("an object of type ") + (v->type ? v->type->tp_name : "NULL") + " passed to a C function");
}

Value* RealCalls::recorded(PyObject* callable, const Arguments& args) {
  const auto call_with = [&](const CallArguments& made) {
    return tensors.call(callable, made.args.data(), made.positional, made.names.get());
  };
  Value* result = call_with(materialise_arguments(*this, args));
  if (!result && PyErr_ExceptionMatches(PyExc_TypeError) && make_symbols_constant(dicts.shadows, args)) {
    drop_error();  // lists of floats take no symbols
    result = call_with(materialise_arguments(*this, args));
  }
  if (!result) tensors.break_of_recording(PyErr_Occurred() ? "" : name_of_callable(callable));
  if (recording().take_new_leaf())
    dicts.shadows.tables().gradients.new_leaves.emplace(result, attempts.resumable_step());
  return result;
}

Value* RealCalls::pure(PyObject* callable, const Arguments& args) {
  const CallArguments made = materialise_arguments(*this, args);
  const bool of_numpy = calls_numpy(callable, made.args);
  PyObject* result = nullptr;
  {
    const NumpyWarnings raised(of_numpy);
    result = PyObject_Vectorcall(callable, made.args.data(), made.positional, made.names.get());
    if (!result && of_numpy && PyErr_ExceptionMatches(PyExc_FloatingPointError)) {
      drop_error();
      graph_break(Reason::outside_effect, "a floating-point warning of NumPy");
    }
  }
  if (!result) dicts.errors.raise_of_pure_call();
  return dicts.heap.wrap_result(result);
}

Value* RealCalls::plain(PyObject* callable, const Arguments& args) {
  for (Value* v : args.positional)
    if (!dicts.heap.is_constant(v))
      graph_break(Reason::unknown_callable, name_of_callable(callable) + " on " + describe(v));
  for (const auto& [name, v] : args.keywords)
    if (!dicts.heap.is_constant(v))
      graph_break(Reason::unknown_callable, name_of_callable(callable) + " on " + describe(v));
  return pure(callable, args);
}

}  // namespace framejit::frame_hook
