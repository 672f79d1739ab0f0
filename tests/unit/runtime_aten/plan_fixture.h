// tests/unit/runtime_aten/plan_fixture.h — handwritten call plans, in a few words.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/aten/plan_runner.h"
#include "runtime/backward_plan.h"
#include "tests/unit/hand_kernels.h"

namespace framejit::runtime {

inline std::vector<Size> sizes_of(at::IntArrayRef values) {
  std::vector<Size> sizes;
  for (int64_t v : values) sizes.push_back({v});
  return sizes;
}

// out[i] = in[i] + 1
inline int64_t add_one(void* const* buffers, const int64_t*, const FjScalar*, int64_t begin, int64_t end) {
  const float* in = static_cast<const float*>(buffers[0]);
  float* out = static_cast<float*>(buffers[1]);
  for (int64_t i = begin; i < end; ++i) out[i] = in[i] + 1;
  return 0;
}
inline int64_t failing(void* const*, const int64_t*, const FjScalar*, int64_t, int64_t) { return 1; }
inline constexpr uint32_t kAddOne = 0, kFailing = 1;  // in the table of kernels of a plan built here

class PlanBuilder {
 public:
  PlanBuilder() { plan_->name = "f"; }

  BufferId input(const at::Tensor& like) {
    BufferId b = buffer(like);
    plan_->buffers[b].storage = Storage::kInput;
    plan_->buffers[b].index = plan_->input_count++;
    return b;
  }
  BufferId constant(const at::Tensor& like, uint32_t index) {
    BufferId b = buffer(like);
    plan_->buffers[b].storage = Storage::kConstant;
    plan_->buffers[b].index = index;
    return b;
  }
  BufferId buffer(const at::Tensor& like) {
    Buffer b;
    b.dtype = dtype_of_torch(static_cast<int>(like.scalar_type()));
    b.torch_dtype = static_cast<int32_t>(like.scalar_type());
    if (!like.device().is_cpu()) b.device = {static_cast<int8_t>(like.device().type()), like.device().index()};
    b.sizes = sizes_of(like.sizes());
    b.strides = sizes_of(like.strides());
    b.offset = {like.storage_offset()};
    plan_->buffers.push_back(b);
    return static_cast<BufferId>(plan_->buffers.size() - 1);
  }
  BufferId result() {  // of an extern call: its shape is the one that the operator returns
    plan_->buffers.emplace_back().is_packed = true;
    return static_cast<BufferId>(plan_->buffers.size() - 1);
  }
  BufferId call(const std::string& op, std::vector<PlanArg> args) {
    const BufferId b = result();
    call(op, std::move(args), {b});
    return b;
  }
  void call(const std::string& op, std::vector<PlanArg> args, std::vector<BufferId> results) {
    ExternStep step;
    step.op = op;
    step.args = std::move(args);
    step.results = std::move(results);
    plan_->steps.emplace_back(std::move(step));
  }
  template <class Step> void step(Step s) { plan_->steps.emplace_back(std::move(s)); }
  void returns(std::vector<BufferId> buffers) {
    for (BufferId b : buffers) plan_->outputs.push_back({Output::kBuffer, b});
  }
  CallPlan& plan() { return *plan_; }
  PlanRunner runner(std::vector<at::Tensor> constants = {}, std::vector<c10::IValue> opaque = {}) {
    auto bound = testing::bind_by_hand(*plan_, kernels_);
    FJ_ASSERT(bound.ok(), bound.error().message);
    return PlanRunner(bound.take(), std::move(constants), std::move(opaque));
  }
  // As a backward whose first `saved` inputs are saved values.
  PlanRunner backward(uint32_t saved) {
    testing::HandLoader loader;
    auto bound = BoundExecutable::bind(as_backward(testing::executable_of(*plan_, kernels_), saved), loader);
    FJ_ASSERT(bound.ok(), bound.error().message);
    const auto executable = bound.take();
    return PlanRunner(executable, executable->backward()[0], {});
  }

 private:
  testing::HandKernels kernels_ = {std::make_shared<testing::HandKernel>("add_one", add_one),
                                   std::make_shared<testing::HandKernel>("failing", failing)};
  std::shared_ptr<CallPlan> plan_ = std::make_shared<CallPlan>();
};

inline PlanArg arg(BufferId b) { return {b}; }
inline PlanArg integer(int64_t v) { return {Size{v}}; }
inline PlanArg integers(std::vector<int64_t> v) { return {sizes_of(v)}; }
inline PlanArg none() { return {None{}}; }

inline std::vector<at::Tensor> run(const PlanRunner& runner, const std::vector<at::Tensor>& inputs,
                                   std::vector<int64_t> symbols = {}) {
  std::vector<at::Tensor> outputs(runner.plan().outputs.size());
  std::vector<const at::Tensor*> pointers;
  for (const at::Tensor& input : inputs) pointers.push_back(&input);
  const auto result = runner.run(pointers.data(), symbols.data(), outputs.data());
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return outputs;
}

}  // namespace framejit::runtime
