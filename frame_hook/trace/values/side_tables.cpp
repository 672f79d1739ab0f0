#include "frame_hook/trace/values/side_tables.h"

namespace framejit::frame_hook {

Value* WrittenClassData::find(PyTypeObject* owner, PyObject* name) const {
  for (const ClassData& written : values)
    if (written.type == owner && PyUnicode_Compare(written.name.get(), name) == 0) return written.value;
  return nullptr;
}

void WrittenClassData::set(PyTypeObject* owner, PyObject* name, Value* to) {
  for (ClassData& written : values)
    if (written.type == owner && written.name.get() == name) return void(written.value = to);
  values.push_back({owner, PyRef::borrow(name), to});
}

Value* WrittenGradients::find(const TensorValue* v) const {
  for (const auto& [tensor, gradient] : values)
    if (tensor == v) return gradient;
  return nullptr;
}

void WrittenGradients::set(TensorValue* v, Value* to) {
  for (auto& [tensor, gradient] : values)
    if (tensor == v) return void(gradient = to);
  values.emplace_back(v, to);
}

}  // namespace framejit::frame_hook
