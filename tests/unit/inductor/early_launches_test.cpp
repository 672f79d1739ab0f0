// Kernels that may begin before the one before them has ended: what they read before they wait for it.
#include <gtest/gtest.h>

#include "tests/unit/inductor/host_gpu_target.h"
#include "tests/unit/inductor/plan_runner.h"
#include "tests/unit/not_tested.h"

namespace framejit::inductor::testing {
namespace {

TargetInfo overlapping_gpu() {
  TargetInfo target = gpu_target();
  target.traits.multiplies_few_rows = target.traits.launches_overlap = true;
  return target;
}

class Recorded : public HostGpuTarget {
 public:
  Recorded() : HostGpuTarget(32, overlapping_gpu()) {}
  Result<CompiledKernel> compile(const Kernel& kernel) override {
    FJ_TRY(const HipProgram program, emit_hip(kernel, info()));
    texts.push_back(program.text);
    return HostGpuTarget::compile(kernel);
  }
  std::vector<std::string> texts;
};

// Whether the text reads words of columns before it first waits.
bool reads_early(const std::string& text) {
  const size_t read = text.find("stream_run("), waited = text.find("after_previous()");
  EXPECT_NE(waited, std::string::npos) << text;
  return read < waited;
}

TEST(SlowEarlyLaunches, OnlyWhatNoStepWritesIsReadEarly) {
  if (std::system("c++ --version > /dev/null 2>&1") != 0)
    FJ_NOT_TESTED("kernels on an emulated GPU: there is no C++ compiler (c++)");
  const auto texts_of = [](const std::string& body) {
    Recorded target;
    check_graph_with(target,
                     "graph @f(%x : f32[1, 64], %w : f32[40, 64], %y : f32[40, 64]) {\n"
                     "  %wt = permute %w, [1, 0] : f32[64, 40; 1, 64]\n" +
                         body + "}",
                     {.tolerance = 1e-5});
    return target.texts;
  };
  const std::vector<std::string> input = texts_of("  %0 = mm %x, %wt : f32[1, 40]\n  return %0\n");
  ASSERT_EQ(input.size(), 1U);
  EXPECT_TRUE(reads_early(input[0]));
  const std::vector<std::string> updated = texts_of(
      "  %0 = mm %x, %wt : f32[1, 40]\n  %1 = exp %w : f32[40, 64]\n  update %w = %1\n  return %0\n");
  ASSERT_EQ(updated.size(), 2U);
  for (const std::string& text : updated) EXPECT_FALSE(reads_early(text)) << "the plan writes %w at its end";
  const std::vector<std::string> computed = texts_of(
      "  %0 = _softmax %y, 0, false : f32[40, 64]\n  %1 = permute %0, [1, 0] : f32[64, 40; 1, 64]\n"
      "  %2 = mm %x, %1 : f32[1, 40]\n  return %2\n");
  for (const std::string& text : computed) EXPECT_FALSE(reads_early(text)) << "another kernel computes it";
}

}  // namespace
}  // namespace framejit::inductor::testing
