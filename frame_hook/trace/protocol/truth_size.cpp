// frame_hook/trace/protocol/truth_size.cpp — whether a value is true, and which size or index it is.
//
// Nothing here runs Python code: if a type answers in Python, that code is inlined.
#include <cmath>

#include "frame_hook/trace/types/numpy_calls.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/payloads.h"
#include "guards/cpython/interrupts.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

using guards::GuardKind;
using guards::kNoSource;
using guards::SourceKind;

namespace {

bool same_truth_slots(PyTypeObject* a, PyTypeObject* b) {
  auto bool_slot = [](PyTypeObject* t) { return t->tp_as_number ? t->tp_as_number->nb_bool : nullptr; };
  auto length_slot = [](PyTypeObject* t) { return t->tp_as_mapping ? t->tp_as_mapping->mp_length : nullptr; };
  return bool_slot(a) == bool_slot(b) && length_slot(a) == length_slot(b);
}

}  // namespace

// Types without nb_bool and without a length are true; lookup_special sees the slots of a Python class.
bool Tracer::instance_truth(Value* v) {
  PyTypeObject* type = facts.type_of(v);
  if (Value* payload = v->kind == ValueKind::instance ? as<InstanceValue>(v)->payload : nullptr;
      payload && same_truth_slots(type, payload->type)) {
    facts.guard_type_unchanged(type, facts.type_source(v));
    return truth(payload);
  }
  if (v->kind == ValueKind::instance && (type->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
    if (Value* method = lookup_special(v, "__bool__")) {
      Value* result = call(method, {});
      if (facts.type_of(result) != &PyBool_Type)
        errors.raise_new(PyExc_TypeError,
                         std::string("__bool__ should return bool, returned ") + result->type->tp_name);
      return constant_of(shadows, result) == Py_True;
    }
  }
  const bool sized = (type->tp_as_mapping && type->tp_as_mapping->mp_length) ||
                     (type->tp_as_sequence && type->tp_as_sequence->sq_length);
  if (sized) {
    if (auto n = length(v)) return *n != 0;
    graph_break(Reason::unsupported_operand, std::string("the truth of an object of type ") + type->tp_name);
  }
  if (type->tp_as_number && type->tp_as_number->nb_bool && !(type->tp_flags & Py_TPFLAGS_HEAPTYPE))
    graph_break(Reason::unsupported_operand, std::string("the truth of an object of type ") + type->tp_name);
  facts.guard_type_unchanged(type, facts.type_source(v));
  return true;
}

bool Tracer::truth(Value* v) {
  switch (v->kind) {
    case ValueKind::object: {
      PyObject* object = v->object.get();
      if (Value* now =
              numbers.is_open(v) && !PyBool_Check(object) ? numbers.computed(operator_function("truth"), {v}) : nullptr)
        return truth(now);
      if (is_exact_scalar(Py_TYPE(object))) return PyObject_IsTrue(constant_of(shadows, v)) == 1;
      if (PyRange_Check(object) || is_numpy_scalar(object)) return PyObject_IsTrue(constant_of(shadows, v)) == 1;
      if (PyType_Check(object) && Py_TYPE(object) != &PyType_Type) {
        PyTypeObject* meta = Py_TYPE(object);
        if ((meta->tp_as_number && meta->tp_as_number->nb_bool) ||
            (meta->tp_as_mapping && meta->tp_as_mapping->mp_length)) {
          if (is_enum_class(object)) return facts.type_of(v), true;
          graph_break(Reason::unsupported_operand,
                      std::string("the truth of class ") + reinterpret_cast<PyTypeObject*>(object)->tp_name);
        }
      }
      return instance_truth(v);
    }
    case ValueKind::tensor:
      if (Value* known = of_known_tensor(calls, operator_function("truth"), v)) return truth(known);
      graph_break(Reason::data_dependent_jump, "a tensor");
    case ValueKind::array: return truth(call_numpy(*this, operator_function("truth"), {{v}, {}}));
    case ValueKind::sym_int:
      return recording().shapes().decide(as<SymIntValue>(v)->expr, graph::Relation::kNe, 0, stack.here());
    case ValueKind::tuple:
    case ValueKind::list:
    case ValueKind::dict:
    case ValueKind::set:
    case ValueKind::view: {
      auto n = length(v);
      FJ_ASSERT(n, "a container without a length");
      return *n != 0;
    }
    case ValueKind::instance: return instance_truth(v);
    case ValueKind::identity: return true;
    case ValueKind::null: FJ_ASSERT(false, "truth of NULL");
    case ValueKind::slice:
    case ValueKind::cell:
    case ValueKind::function:
    case ValueKind::method:
    case ValueKind::iterator:
    case ValueKind::generator:
    case ValueKind::super: facts.type_of(v); return true;
  }
  return true;
}

std::optional<graph::SymExpr> Tracer::as_size(Value* v) {
  if (v->kind == ValueKind::sym_int) return as<SymIntValue>(v)->expr;
  if (v->kind == ValueKind::identity) specialised(heap, v);
  if (v->kind == ValueKind::instance && as<InstanceValue>(v)->payload)
    return facts.type_of(v), as_size(as<InstanceValue>(v)->payload);
  if (v->kind == ValueKind::tensor || v->kind == ValueKind::array) {
    Value* known = v->kind == ValueKind::array ? call_numpy(*this, operator_function("index"), {{v}, {}})
                                               : of_known_tensor(calls, operator_function("index"), v);
    return known ? as_size(known) : std::nullopt;
  }
  if (v->kind != ValueKind::object) return std::nullopt;
  PyRef number = v->object;
  if (is_numpy_scalar(number.get()) && PyIndex_Check(number.get()))
    number = PyRef::steal(PyNumber_Index(constant_of(shadows, v)));
  if (!number || !PyLong_Check(number.get())) return drop_error(), std::optional<graph::SymExpr>();
  if (number.get() == v->object.get()) constant_of(shadows, v);
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.get(), &overflow);
  return overflow ? std::nullopt : std::optional<graph::SymExpr>(graph::SymExpr(value));
}

int64_t Tracer::as_index(Value* v) {
  auto size = as_size(v);
  if (!size) {
    Value* method = v->kind == ValueKind::instance ? lookup_special(v, "__index__") : nullptr;
    if (method) size = as_size(call(method, {}));
  }
  if (!size) {
    if (v->kind == ValueKind::tensor) graph_break(Reason::data_dependent_value, "an index taken from a tensor");
    const PyNumberMethods* numbers = builtin_base(facts.type_of(v))->tp_as_number;
    raise_unless_in_c(errors, v, numbers && numbers->nb_index,
                      std::string("'") + v->type->tp_name + "' object cannot be interpreted as an integer");
  }
  if (auto constant = size->as_constant()) return *constant;
  return recording().shapes().specialise(*size, stack.here());
}

}  // namespace framejit::frame_hook
