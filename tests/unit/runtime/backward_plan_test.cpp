// A compiled plan as a forward that saves, and as a backward over what was saved.
#include <gtest/gtest.h>

#include "runtime/backward_plan.h"
#include "tests/parsers/executable_parser.h"

namespace framejit::runtime {
namespace {

// Two inputs are saved values, the third is a gradient. The first is read once, the second is viewed and then read.
constexpr const char* kPlan = R"(executable @f {
forward plan @f inputs 3 symbols 0 {
  arena 0: 0 bytes
  b0: input 0 f32[4]
  b1: input 1 f32[4]
  b2: input 2 f32[4]
  b3: tensor f32[4]
  b4: tensor f32[2, 2]
  b5: tensor f32[4]
  b3 = mul.Tensor(b2, b0)
  b4 = view b1
  b5 = mul.Tensor(b3, b1)
  return b5, input 2, b4
}
}
)";

constexpr const char* kBackward = R"(executable @f {
value v0: saved 0 f32[4]
value v1: saved 1 f32[4]
forward plan @"" inputs 0 symbols 0 {
  return 
}
backward plan @f inputs 1 symbols 0 {
  arena 0: 0 bytes
  b0: saved 0 f32[4]
  b1: saved 1 f32[4]
  b2: input 0 f32[4]
  b3: tensor f32[4]
  b4: tensor f32[2, 2]
  b5: tensor f32[4]
  b3 = mul.Tensor(b2, b0)
  free b0
  b4 = view b1
  b5 = mul.Tensor(b3, b1)
  free b1
  return b5, input 0, b4
}
}
)";

Executable parsed(const char* text) {
  auto executable = parse_executable(text);
  EXPECT_TRUE(executable.ok()) << (executable.ok() ? "" : executable.error().message);
  return executable.take();
}

TEST(BackwardPlan, SavedInputsAreFreedAfterTheirLastUse) {
  const Executable backward = as_backward(parsed(kPlan), 2);
  EXPECT_EQ(print(backward), kBackward);
  EXPECT_TRUE(verify(backward).ok()) << "a backward needs no forward beside it";
  EXPECT_TRUE(parsed(kBackward) == backward);
}

TEST(BackwardPlan, WhatIsWrittenOverIsFreedAfterwards) {
  Executable whole = parsed(kPlan);
  whole.forward.buffers.push_back(whole.forward.buffers[5]);
  whole.forward.steps.push_back(AllocateStep{6, 0});
  whole.forward.outputs[0].index = 6;
  const Executable backward = as_backward(std::move(whole), 2);
  const std::string text = print(backward);
  EXPECT_NE(text.find("allocate b6 over b0\n  free b0\n"), std::string::npos) << text;
  EXPECT_TRUE(verify(backward).ok());
  EXPECT_TRUE(parsed(text.c_str()) == backward);
}

TEST(BackwardPlan, ASavedValueThatIsAGradientStays) {
  Executable whole = parsed(kPlan);
  whole.forward.outputs.push_back({Output::kBuffer, 0});
  const std::string text = print(as_backward(std::move(whole), 2));
  EXPECT_EQ(text.find("free b0"), std::string::npos) << text;
  EXPECT_NE(text.find("free b1"), std::string::npos) << text;
}

TEST(BackwardPlan, TheLastOutputsBecomeSavedValues) {
  Executable forward = parsed(kPlan);
  forward.forward.outputs = {{Output::kBuffer, 5}, {Output::kInput, 2}, {Output::kBuffer, 3}};
  save_outputs(forward, 2);
  EXPECT_EQ(forward.forward.outputs.size(), 2u);
  EXPECT_EQ(forward.forward.saves, std::vector<BufferId>{3});
  EXPECT_EQ(forward.saved.size(), 1u);
  EXPECT_TRUE(verify(forward).ok());
}

}  // namespace
}  // namespace framejit::runtime
