// Which inputs get their new values in place, and that nothing that may fail runs after the first such write.
#include "inductor/schedule/commit_order.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/graph.h"
#include "inductor/compile.h"
#include "tests/parsers/graph_parser.h"
#include "tests/unit/inductor/plan_runner.h"

namespace framejit::inductor::testing {
namespace {

const char* const kInputs = "%p : f32[64, 64], %g : f32[64, 64], %n : i64[4]";

runtime::CallPlan plan_of(const std::string& body) {
  declare_ops();
  const auto graph = graph::parse_graph("graph @f(" + std::string(kInputs) + ") {\n" + body + "}");
  EXPECT_TRUE(graph.ok()) << (graph.ok() ? "" : graph.error().message);
  auto plan = make_inductor_backend()->compile(graph.value());
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().message);
  return plan.take().forward;
}

bool is_in_place(const runtime::CallPlan& plan, const std::pair<uint32_t, runtime::BufferId>& update) {
  const runtime::Buffer& buffer = plan.buffers[update.second];
  return buffer.storage == runtime::Storage::kInput && buffer.index == update.first;
}

std::vector<bool> in_place(const std::string& body) {
  const runtime::CallPlan plan = plan_of(body);
  std::vector<bool> found;
  for (const auto& update : plan.updates) found.push_back(is_in_place(plan, update));
  return found;
}

const std::vector<bool> kYes{true}, kNo{false};

const std::string kDoubled = "  %0 = mul.Tensor %p, 2 : f32[64, 64]\n", kEnd = "  update %p = %0\n  return ";

TEST(CommitOrder, WhichUpdatesAreInPlace) {
  EXPECT_EQ(in_place(kDoubled + kEnd + "%g\n"), kYes);
  EXPECT_EQ(in_place(kDoubled + "  %1 = add.Tensor %0, %g, 1 : f32[64, 64]\n" + kEnd + "%1\n"), kYes)
      << "the new value is read by a kernel";
  EXPECT_EQ(in_place(kDoubled + "  %1 = mm %g, %g : f32[64, 64]\n" + kEnd + "%1\n"), kYes) << "the call runs first";
  EXPECT_EQ(in_place(kDoubled + "  %1 = index_select %p, 0, %n : f32[4, 64]\n" + kEnd + "%1\n"), kYes)
      << "the check runs first";
}

TEST(CommitOrder, WhichAreCopiedWhenThePlanEnds) {
  EXPECT_EQ(in_place(kDoubled + "  %1 = mm %0, %g : f32[64, 64]\n" + kEnd + "%1\n"), kNo)
      << "the call needs the new value";
  EXPECT_EQ(in_place(kDoubled + kEnd + "%0\n"), kNo) << "a tensor of its own leaves";
  EXPECT_EQ(in_place("  %0 = mm %p, %g : f32[64, 64]\n" + kEnd + "%g\n"), kNo) << "a library makes it";
  const std::string other_elements =
      "  %1 = transpose.int %p, 0, 1 : f32[64, 64; 1, 64]\n  %0 = add.Tensor %p, %1, 1 : f32[64, 64]\n";
  EXPECT_EQ(in_place(other_elements + kEnd + "%g\n"), kNo);
  const std::vector<bool> both{false, false};
  EXPECT_EQ(in_place(kDoubled + "  update %g = %0\n" + kEnd + "%n\n"), both) << "two inputs get it";
  EXPECT_EQ(in_place(kDoubled + "  update %g = %p\n" + kEnd + "%n\n"), both) << "a copy of the old value comes first";
}

// From the first kernel that writes an input on, there are only kernels, and memory that is given back.
TEST(CommitOrder, NothingFailsAfterTheFirstWrite) {
  const runtime::CallPlan plan = plan_of(
      "  %0 = mul.Tensor %p, 2 : f32[64, 64]\n  %1 = mm %g, %g : f32[64, 64]\n  %2 = add.Tensor %1, %0, 1 : f32[64, "
      "64]\n"
      "  %3 = index_select %g, 0, %n : f32[4, 64]\n"
      "  %4 = exp %2 : f32[64, 64]\n  %5 = sum %0, none : f32[]\n  update %p = %0\n  return %4, %3, %5\n");
  EXPECT_TRUE(is_in_place(plan, plan.updates.at(0)));
  bool has_written = false;
  for (const runtime::Step& step : plan.steps) {
    if (const auto* kernel = std::get_if<runtime::KernelStep>(&step)) {
      const std::vector<runtime::BufferId>& used = kernel->buffers;
      has_written = has_written || std::find(used.begin(), used.end(), plan.updates[0].second) != used.end();
      continue;
    }
    const bool frees =
        std::holds_alternative<runtime::FreeStep>(step) || std::holds_alternative<runtime::GiveStep>(step);
    EXPECT_TRUE(frees || !has_written) << print(plan);
  }
  EXPECT_TRUE(has_written);
}

}  // namespace
}  // namespace framejit::inductor::testing
