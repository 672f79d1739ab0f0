// A plan with tensors of a CPU and of a fake GPU, whose kernels are the interpreter's. Kernels run on the GPU, the
// library does the work on the CPU between them, and each step names its device.
#include <gtest/gtest.h>

#include "inductor/assemble.h"
#include "inductor/interp/interp_target.h"
#include "inductor/schedule/schedule.h"
#include "tests/parsers/graph_parser.h"
#include "tests/unit/inductor/plan_runner.h"

namespace framejit::inductor {
namespace {

class FakeGpu final : public KernelTarget {
 public:
  const TargetInfo& info() const override { return info_; }
  Result<CompiledKernel> compile(const Kernel& kernel) override { return interp_->compile(kernel); }
  Result<std::vector<KernelText>> texts(const Kernel&, bool) override { return std::vector<KernelText>(); }
  TargetStatistics statistics() const override { return interp_->statistics(); }
  Result<runtime::LoadedKernel> load(const std::shared_ptr<const runtime::KernelCode>& code,
                                     runtime::DeviceId device) override {
    loaded += runtime::text_of(device) + ";";
    return interp_->load(code, {});
  }
  std::string loaded;

 private:
  const TargetInfo info_ = gpu_target();
  const std::unique_ptr<KernelTarget> interp_ = make_interp_target();
};

constexpr const char* kBoth = R"(graph @f(%x : f32[6, 40] @cuda:0, %a : f32[6, 5], %b : f32[5, 7]) {
  %0 = exp %x : f32[6, 40] @cuda:0
  %1 = mm %a, %b : f32[6, 7]
  %2 = sum.dim_IntList %0, [1], true, none : f32[6, 1] @cuda:0
  %3 = div.Tensor %0, %2 : f32[6, 40] @cuda:0
  return %3, %1
})";

std::string steps_of(const std::string& text, FakeGpu& gpu) {
  testing::declare_ops();
  const auto graph = graph::parse_graph(text);
  EXPECT_TRUE(graph.ok()) << graph.error().message;
  LoweredGraph lowered = lower(graph.value(), gpu.info());
  const Schedule schedule = make_schedule(std::move(lowered.program), {}, gpu.info());
  const auto plan = assemble(graph.value(), lowered.forms, schedule, {}, gpu);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  const auto right = runtime::verify(plan.value());
  EXPECT_TRUE(right.ok()) << right.error().message;
  EXPECT_TRUE(runtime::BoundExecutable::bind(plan.value(), gpu).ok());
  std::string steps;
  for (const runtime::Step& step : plan.value().forward.steps) {
    if (const auto* kernel = std::get_if<runtime::KernelStep>(&step))
      steps += "kernel on " + runtime::text_of(kernel->place.device) + "\n";
    if (const auto* call = std::get_if<runtime::ExternStep>(&step))
      steps += call->op + " on " + runtime::text_of(call->place.device) + "\n";
  }
  return steps;
}

TEST(TwoDevices, KernelsOfTheGpuBesideTheLibraryOnTheCpu) {
  FakeGpu gpu;
  const char* const text = R"(graph @f(%x : f32[6, 40] @cuda:0, %a : f32[6, 6], %s : f32[]) {
    %0 = exp %x : f32[6, 40] @cuda:0
    %1 = mm %a, %a : f32[6, 6]
    %2 = relu %1 : f32[6, 6]
    %3 = mul.Tensor %0, %s : f32[6, 40] @cuda:0
    %4 = add.Tensor %3, %0, 1 : f32[6, 40] @cuda:0
    return %4, %2
  })";
  const std::string steps = steps_of(text, gpu);
  EXPECT_NE(steps.find("kernel on 1:0"), std::string::npos) << steps;
  EXPECT_EQ(steps.find("kernel on cpu"), std::string::npos) << steps;
  EXPECT_NE(steps.find("mm on cpu"), std::string::npos) << steps;
  EXPECT_NE(steps.find("relu on cpu"), std::string::npos) << "no kernel of the CPU in a plan with a GPU\n" << steps;
  EXPECT_NE(steps.find("mul.Tensor on 1:0"), std::string::npos) << "a number on the CPU beside a tensor of the GPU\n"
                                                              << steps;
  EXPECT_EQ(gpu.loaded.find("cpu"), std::string::npos) << gpu.loaded;
}

TEST(TwoDevices, BothComputeWhatTheInterpreterDoes) {
  FakeGpu gpu;
  testing::check_graph_with(gpu, kBoth);
  EXPECT_NE(gpu.loaded.find("1:0;"), std::string::npos);
}

TEST(TwoDevices, AGraphOfTheCpuAloneHasNoStepOnTheGpu) {
  FakeGpu gpu;
  const std::string steps =
      steps_of("graph @f(%a : f32[6, 6]) {\n  %0 = mm %a, %a : f32[6, 6]\n  return %0\n}", gpu);
  EXPECT_EQ(steps, "mm on cpu\n");
}

}  // namespace
}  // namespace framejit::inductor
