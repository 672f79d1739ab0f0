// runtime/aten/extern_call.h — one extern step, resolved once: the operator, its constant arguments, and the arguments
// that each call fills in.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/call_plan.h"

namespace framejit::runtime {

bool all_constant(const std::vector<Size>& sizes);
std::vector<int64_t> constants_of(const std::vector<Size>& sizes);  // the values of constant sizes

// Tensors and sizes of the running call.
class Operands {
 public:
  virtual ~Operands() = default;
  virtual const at::Tensor& tensor(BufferId buffer) = 0;
  virtual void store(BufferId buffer, at::Tensor tensor) = 0;
  virtual bool is_as_planned(BufferId buffer, const at::Tensor& tensor) = 0;
  virtual c10::impl::LocalDispatchKeySet callers_keys() const = 0;  // of the thread, as the program set them
  virtual int64_t value(const Size& size) const = 0;
};

class ExternCall {
 public:
  // Throws InternalError if the operator does not exist or an argument does not fit its schema.
  ExternCall(const ExternStep& step, const std::vector<c10::IValue>& opaque);

  // Runs on the caller's dispatch state and stores the wanted results. `stack` is scratch. Throws ShapeFunctionErred.
  void run(Operands& operands, std::vector<c10::IValue>& stack) const;

  // Buffers of the written arguments.
  const std::vector<BufferId>& written() const { return written_; }
  bool returns_view() const { return returns_view_; }
  // Buffers of the arguments whose storage a result may share.
  const std::vector<BufferId>& viewed() const { return viewed_; }
  // Whether it draws random numbers; from `generator` if it names one, otherwise from its device's default one.
  bool draws(std::optional<at::Generator>& generator) const;

 private:
  struct Filled {  // an argument that is made in each call
    enum Kind : uint8_t { tensor, tensors, optional_tensors, integer, number, wrapped, integers, scalars } kind;
    uint32_t arg;
    std::vector<BufferId> buffers;
    std::vector<Size> sizes;
  };
  void add_argument(const PlanArg& arg, const c10::Argument& formal, const std::vector<c10::IValue>& opaque);
  c10::IValue make(const Filled& filled, Operands& operands) const;
  void note_aliases(const c10::FunctionSchema& schema, const ExternStep& step);

  c10::OperatorHandle op_;
  const bool is_users_;  // its kernel runs under the program's modes
  std::string compared_name_;  // of a user's operator that writes nothing: its results are compared with the plan
  std::vector<int16_t> result_lists_;
  std::vector<c10::IValue> constants_;  // one per argument; None where `filled_` has it
  std::vector<Filled> filled_;
  std::vector<BufferId> results_;
  bool returns_view_ = false;
  std::vector<BufferId> viewed_, written_;
};

}  // namespace framejit::runtime
