// graph/aten/torch_values.h — between c10's types and the graph's: dtypes, devices, arguments.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <span>

#include "graph/graph.h"

namespace framejit::graph {

c10::ScalarType scalar_type_of(DType dtype);  // kOther has none: InternalError
inline DType dtype_of(c10::ScalarType type) { return dtype_of_torch(static_cast<int>(type)); }
Device device_of(c10::Device device);
c10::Device torch_device_of(Device device);

// The class of an argument by its schema; an IValue alone cannot tell a dtype from an int.
enum class ArgClass : uint8_t {
  kTensor,
  kTensorList,
  kOptionalTensorList,
  kDType,
  kLayout,
  kMemoryFormat,
  kQScheme,
  kGenerator,
  kScalar,
  kScalarList,
  kPlain
};
ArgClass class_of(const c10::Argument& argument);

// Sizes of a real (not traced) tensor.
TensorMeta meta_of(const at::Tensor& tensor);

// The form in a graph of an IValue without tensors; nullopt if a graph cannot hold it (complex numbers, streams, names,
// foreign symbolic numbers). The caller handles generators.
std::optional<Arg> arg_of(const c10::IValue& value, ArgClass arg_class);
// A wrapped number as an immediate; nullopt for complex ones.
std::optional<Arg> number_of(const at::Tensor& wrapped_number);

// The reverse, for running nodes: `values` by ValueId, sizes by `size_of`.
using SizeValue = std::function<int64_t(const SymExpr&)>;
c10::IValue ivalue_of(const Arg& arg, const c10::Argument& schema, std::span<const at::Tensor> values,
                      std::span<const c10::IValue> opaques, const SizeValue& size_of);

}  // namespace framejit::graph
