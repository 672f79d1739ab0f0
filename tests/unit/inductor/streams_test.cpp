// Long ranges of light bodies, which are walked as several streams: every element once, whatever the remainder.
#include <gtest/gtest.h>

#include "tests/unit/inductor/plan_runner.h"

namespace framejit::inductor::testing {
namespace {

// A part of a range is a stream if it has at least 1 << 14 elements. Here: four streams, on one, two or three threads.
TEST(Streams, EveryElementOnce) {
  for (const int size : {65535, 65536, 65599, 65600, 65664, 66048, 196608, 262147}) {
    const std::string s = "[" + std::to_string(size) + "]";
    check_graph(
        "graph @f(%x : f32" + s + ", %y : f32" + s + ") {\n  %0 = add.Tensor %x, %y, 2 : f32" + s + "\n  return %0\n}",
        {.kernels = 1});
    check_graph("graph @f(%x : f32" + s + ") {\n  %0 = _to_copy %x, @bf16, none, none, none, false, none : bf16" + s +
                    "\n  return %0\n}",
                {.kernels = 1});
  }
}

TEST(Streams, EveryElementSize) {
  for (const char* dtype : {"bf16", "f16", "i16", "u8"}) {
    const std::string t = std::string(dtype) + "[70001]";
    check_graph("graph @f(%x : " + t + ", %y : " + t + ") {\n  %0 = add.Tensor %x, %y, 1 : " + t + "\n  return %0\n}",
                {.tolerance = 1e-2, .kernels = 1});
  }
}

TEST(Streams, AnyNumberOfSizesKnownLater) {
  const std::string text = R"(graph @f(%x : f32[s0, 48]) where s0 = 2000 {
    %0 = mul.Scalar %x, 3 : f32[s0, 48]
    return %0
  })";
  for (const int64_t rows : {2, 1365, 1366, 4001}) check_graph(text, {.symbols = {rows}});
}

}  // namespace
}  // namespace framejit::inductor::testing
