#include "frame_hook/trace/torch/tensor_operands.h"

#include "frame_hook/trace/values/loaded_modules.h"

namespace framejit::frame_hook {

using guards::SourceKind;

namespace {

bool is_torchs_method(PyObject* found) {
  if (!found || found == Py_None) return true;
  if (PyFunction_Check(found)) return are_globals_of(PyFunction_GET_GLOBALS(found), "torch");
  return Py_IS_TYPE(found, &PyMethodDescr_Type) || Py_IS_TYPE(found, &PyWrapperDescr_Type);
}

}  // namespace

Arguments operands(Facts& facts, std::initializer_list<const char*> specials, std::vector<Value*> of) {
  for (Value* v : of) {
    if (v->kind != ValueKind::tensor) continue;
    auto* const type_object = reinterpret_cast<PyObject*>(v->type);
    facts.guard_type_unchanged(v->type, facts.sources().add(SourceKind::constant, guards::kNoSource, 0, type_object));
    for (const char* special : specials)
      if (!is_torchs_method(_PyType_Lookup(v->type, interned(special))))
        graph_break(Reason::unknown_callable, std::string(v->type->tp_name) + "." + special);
  }
  return {std::move(of), {}};
}

Value* float_input(Tracer& t, Value* number, Value* beside, bool promotes) {
  if (!t.numbers.is_open_float(number)) return nullptr;
  const FloatBeside dtype = t.recording().float_beside(t.tensors.traced(as<TensorValue>(beside)));
  if (dtype == FloatBeside::kConstant || (dtype == FloatBeside::kFloat && !promotes)) return nullptr;
  Value* tensor = t.tensors.of_float(number);
  return dtype == FloatBeside::kFloat ? t.call(t.get_attribute(tensor, interned("float")), {}) : tensor;
}

}  // namespace framejit::frame_hook
