// graph/aten/op_info.h — what the dispatcher knows about an operator, read once from its schema, tags and kernels.
//
// op_info_of() declares the operator in the graph's op table (flags, written arguments, aliases, functional form) and
// keeps what only the recorder needs. Entries live for ever; after the first time on a thread, a look-up
// takes no lock.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

#include "graph/aten/torch_values.h"

namespace framejit::graph {

enum class MetaKernel : uint8_t { kUnknown, kNone, kCpp, kPython };
// Whether a result or its size depends on data: a tag of the operator; for some operators the arguments decide.
enum class DataDependence : uint8_t {
  kNone,
  kAlways,
  kOfMasks,
  kWithoutSize
};  // only with masks as indices; only without an output_size
enum class ReturnClass : uint8_t { kTensor, kTensorList, kOther };

struct OpInfo {
  c10::OperatorHandle handle;
  const OpDef* def = nullptr;
  std::vector<ArgClass> arg_classes;
  std::vector<ReturnClass> returns;
  std::vector<bool> returns_argument;              // per return: whether it is the written argument itself, not a view
                                                   // of it
  int device_arg = -1;
  bool decomposes = false;                         // composite: arrives only below autograd; its own kernel expands it
  DataDependence data_dependence = DataDependence::kNone;
  bool in_place = false;                           // writes argument 0, returns it, keeps its shape
  const c10::KernelFunction* typed_meta = nullptr;
  MetaKernel meta_kernel() const;                  // of the dispatcher; determined on first use

  explicit OpInfo(const c10::OperatorHandle& op) : handle(op) {}

 private:
  mutable MetaKernel meta_kernel_ = MetaKernel::kUnknown;
};

const OpInfo& op_info_of(const c10::OperatorHandle& op);
// By our name ("add.Tensor", "mkldnn::_linear_pointwise"); null if torch has no such operator.
const OpInfo* find_op_info(std::string_view name);

}  // namespace framejit::graph
