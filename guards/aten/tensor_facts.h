// guards/aten/tensor_facts.h — what a guard knows about a tensor, read straight from its TensorImpl, and about torch's
// modes.
//
// Facts of a tensor: exact class (Tensor, Parameter), dispatch keys (backend, layout, inference, conj and neg bits),
// dtype, device, requires_grad and being a leaf, no forward-mode tangent, sizes and strides. The storage offset is a
// fact only if the program asked for it: plans address a tensor from its own first element, so slices of one tensor
// share an entry.
#pragma once

#include <Python.h>

#include <c10/core/ScalarType.h>

#include <memory>
#include <string>

#include "graph/tensor_meta.h"
#include "guards/guard.h"

namespace framejit::guards {

// `meta` gives sizes and strides: constants are compared; the first dimension that is a bare symbol binds it and must
// be at least 2; later mentions in sizes and strides are evaluated and compared. All other facts are those of `tensor`
// now.
std::shared_ptr<TensorFacts> make_tensor_facts(PyObject* tensor, const graph::TensorMeta& meta);
// Class, dispatch keys and dtype alone: they decide whether a tensor can be traced. It must be defined.
std::shared_ptr<TensorFacts> make_kind_facts(PyObject* tensor);
// Adds the storage offset that the tensor had at that time; `facts` must come from make_tensor_facts.
void include_offset(TensorFacts& facts);

std::string dtype_name(c10::ScalarType dtype);  // "torch.float32"

// The number of a 0-dim tensor of float32 or float64 on the CPU; false for any other object. For set_number_reader().
bool read_number(PyObject* tensor, double& number);

// The current modes of this thread and process: grad, inference, autocast, default dtype, deterministic and precision
// flags, torch-function modes, saved-tensor hooks, and everything that shows in the thread's dispatch keys.
std::shared_ptr<const ModeFacts> current_mode_facts();
// The fact that no profiler of torch records ops and ranges; null: one does.
std::shared_ptr<const ModeFacts> no_listener_facts();

}  // namespace framejit::guards
