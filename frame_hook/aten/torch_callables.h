// frame_hook/aten/torch_callables.h — C functions and types of torch, known by identity. Looked up when first asked.
#pragma once

#include <Python.h>

#include <unordered_set>

namespace framejit::frame_hook {

PyTypeObject* torch_tensor_type();                           // torch.Tensor, borrowed
bool is_tensor(PyObject* object);                            // of it or a subclass; runs no Python code

class TorchCallables {
 public:
  static const TorchCallables& get();
  // Reads state or builds a constant; never touches a tensor.
  bool is_pure_without_tensors(PyObject* callable) const { return pure_.count(callable) != 0; }
  bool answers_true_while_compiling(PyObject* callable) const;
  PyObject* parameter_type() const { return parameter_; }  // torch.nn.Parameter, borrowed; may be null

 private:
  TorchCallables();
  std::unordered_set<const PyObject*> pure_, compiling_;
  PyObject* parameter_ = nullptr;
};

}  // namespace framejit::frame_hook
