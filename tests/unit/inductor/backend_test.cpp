// Graphs through the whole inductor, for every vector level, compared with the interpreter.
#include <gtest/gtest.h>

#include "tests/parsers/graph_parser.h"
#include "tests/unit/inductor/plan_runner.h"

namespace framejit::inductor::testing {
namespace {

TEST(Backend, PointwiseChainIsOneKernel) {
  check_graph(R"(graph @f(%x : f32[37, 19], %y : f32[19]) {
    %0 = add.Tensor %x, %y, 1 : f32[37, 19]
    %1 = mul.Tensor %0, 2.5 : f32[37, 19]
    %2 = relu %1 : f32[37, 19]
    %3 = exp %2 : f32[37, 19]
    return %3
  })", {.tolerance = 2e-6, .kernels = 1});
}

TEST(Backend, SoftmaxIsOneKernel) {
  check_graph(R"(graph @f(%x : f32[9, 70]) {
    %0 = _softmax %x, -1, false : f32[9, 70]
    return %0
  })", {.kernels = 1});
}

TEST(Backend, LayerNormIsOneKernel) {
  check_graph(R"(graph @f(%x : f32[2, 11, 100], %w : f32[100], %b : f32[100]) {
    %0, %1, %2 = native_layer_norm %x, [100], %w, %b, 1e-05 : f32[2, 11, 100], f32[2, 11, 1], f32[2, 11, 1]
    return %0
  })", {.tolerance = 5e-6, .kernels = 1});
}

TEST(Backend, LibraryCallsBetweenKernels) {
  check_graph(R"(graph @f(%x : f32[6, 8], %w : f32[8, 12], %b : f32[12]) {
    %0 = mul.Tensor %x, 2.0 : f32[6, 8]
    %1 = mm %0, %w : f32[6, 12]
    %2 = add.Tensor %1, %b, 1 : f32[6, 12]
    %3 = gelu %2, "none" : f32[6, 12]
    return %3
  })", {.tolerance = 5e-6, .kernels = 2});
}

TEST(Backend, LongReductionsInParts) {
  check_graph(R"(graph @f(%x : f32[256, 320]) {
    %0 = mul.Tensor %x, %x : f32[256, 320]
    %1 = mean %0, none : f32[]
    %2 = sqrt %1 : f32[]
    %3 = amax %x, [0, 1], false : f32[]
    return %2, %3, %0
  })");
  check_graph(R"(graph @f(%x : bf16[4, 20000]) {
    %0 = sum.dim_IntList %x, [1], true, none : bf16[4, 1]
    %1 = add.Tensor %x, %0, 1 : bf16[4, 20000]
    return %1
  })", {.tolerance = 1e-2});
}

TEST(Backend, ColumnsInParts) {
  check_graph(R"(graph @f(%x : f32[640, 410], %w : f32[410]) {
    %0 = mul.Tensor %x, 0.25 : f32[640, 410]
    %1 = sum.dim_IntList %0, [0], false, none : f32[410]
    %2 = mul.Tensor %1, %w : f32[410]
    return %2, %0
  })");
}

// The storages of a plan's buffers except inputs, in order: one letter each.
std::string storages(const std::string& text) {
  const auto graph = graph::parse_graph(text);
  EXPECT_TRUE(graph.ok());
  const auto plan = make_inductor_backend()->compile(graph.value());
  EXPECT_TRUE(plan.ok());
  std::string found;
  for (const runtime::Buffer& b : plan.value().forward.buffers)
    if (b.storage == runtime::Storage::kArena || b.storage == runtime::Storage::kTensor)
      found += b.storage == runtime::Storage::kArena ? 'a' : 't';
  return found;
}

TEST(Backend, LargeOperandsAndResultsOfLibraryCallsLieInTheArena) {
  const std::string text = R"(graph @f(%x : f32[160, 128], %w : f32[128, 128], %b : f32[128]) {
    %0 = mul.Tensor %x, 2.0 : f32[160, 128]
    %1 = addmm %b, %0, %w : f32[160, 128]
    %2 = relu %1 : f32[160, 128]
    %3 = mm %2, %w : f32[160, 128]
    %4 = neg %3 : f32[160, 128]
    return %4
  })";
  check_graph(text, {.tolerance = 1e-4, .kernels = 3});
  EXPECT_EQ(storages(text), "aatat") << "the later product lies in the memory of the output";
}

TEST(Backend, TensorsOfTheirOwn) {
  // small ones, outputs, and what an unknown op reads or makes
  EXPECT_EQ(
      storages("graph @f(%x : f32[8, 8]) {\n %0 = neg %x : f32[8, 8]\n %1 = mm %0, %x : f32[8, 8]\n %2 = relu %1 : "
               "f32[8, 8]\n return %2\n}"),
      "ttt");
  EXPECT_EQ(storages("graph @f(%x : f32[160, 160]) {\n %0 = neg %x : f32[160, 160]\n %1 = mm %0, %x : f32[160, 160]\n "
                     "return %0, %1\n}"),
            "tt");
  EXPECT_EQ(
      storages("graph @f(%x : f32[160, 160]) {\n %0 = neg %x : f32[160, 160]\n %1 = bernoulli %0 : f32[160, 160]\n "
               "%2 = neg %1 : f32[160, 160]\n return %2\n}"),
      "ttt");
}

TEST(Backend, SymbolicSizesOfLibraryCallsHaveTensors) {
  check_graph(R"(graph @f(%x : f32[s0, 128], %w : f32[128, 128]) where s0 = 200 {
    %0 = neg %x : f32[s0, 128]
    %1 = mm %0, %w : f32[s0, 128]
    %2 = relu %1 : f32[s0, 128]
    return %2
  })", {.tolerance = 1e-4, .symbols = {130}});
}

// Which inputs a plan writes over, if all are saved values: "1 over 0" for each allocation, by number of the buffer.
std::string written_over(const std::string& text, const std::vector<bool>& spent) {
  const auto graph = graph::parse_graph(text);
  EXPECT_TRUE(graph.ok());
  const auto plan = make_inductor_backend({})->compile_backward(graph.value(), spent);
  EXPECT_TRUE(plan.ok());
  std::string out;
  for (const auto& step : plan.value().forward.steps)
    if (const auto* allocate = std::get_if<runtime::AllocateStep>(&step);
        allocate && allocate->over != runtime::kNoBuffer)
      out += std::to_string(allocate->buffer) + " over " + std::to_string(allocate->over) + " ";
  return out;
}

TEST(Backend, SavedValuesAreWrittenOver) {
  const std::string product = R"(graph @f(%x : f32[9, 70], %g : f32[9, 70]) {
    %0 = exp %x : f32[9, 70]
    %1 = mul.Tensor %0, %g : f32[9, 70]
    return %1
  })";
  EXPECT_EQ(written_over(product, {true, false}), "2 over 0 ");
  EXPECT_EQ(written_over(product, {false, true}), "2 over 1 ");
  EXPECT_EQ(written_over(product, {true, true}), "2 over 0 ");
  EXPECT_EQ(written_over(product, {}), "");
  EXPECT_EQ(written_over(R"(graph @f(%x : f32[9, 70]) {
    %0 = exp %x : f32[9, 70]
    %1 = view %x, [630] : f32[630]
    return %0, %1
  })",
                         {true}),
            "")
      << "it is shown by a result";
  EXPECT_EQ(written_over(R"(graph @f(%x : f32[70, 70]) {
    %0 = t %x : f32[70, 70; 1, 70]
    %1 = mul.Tensor %0, %x : f32[70, 70]
    return %1
  })",
                         {true}),
            "")
      << "elements are read at other points than they are written";
  EXPECT_EQ(written_over(R"(graph @f(%x : f32[70, 70], %g : f32[70, 70]) {
    %0 = exp %x : f32[70, 70]
    %1 = mm %0, %g : f32[70, 70]
    %2 = mul.Tensor %1, %x : f32[70, 70]
    return %2
  })",
                         {true, false})
                .find(" over 0"),
            1u)
      << "only after its last use";
}

}  // namespace
}  // namespace framejit::inductor::testing
