// Where a kernel may overwrite an operand: every reason against it, and programs that would go wrong.
#include "inductor/kernel/in_place.h"

#include <gtest/gtest.h>

#include "tests/parsers/loop_parser.h"
#include "tests/unit/inductor/plan_runner.h"

namespace framejit::inductor::testing {
namespace {

// Why y may not take the memory of x, in the kernel of all nests of a program over x: f32[64, 48] and y of the same
// shape, with `outer` common dimensions; "" if it may.
std::string answer(const std::string& nests, size_t outer, const std::string& y = "f32[64, 48]",
                   const std::string& x = "f32[64, 48]", bool is_attention = false) {
  auto parsed = parse_loops("loops @f symbols 1 {\n  input x: " + x +
                            "\n  input n: i64[48]\n  temp t: f32[64]\n  output y: " + y + "\n" + nests + "}\n");
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  Group group;
  for (auto& item : parsed.value().items) group.nests.push_back(std::get<Nest>(item));
  group.outer = outer;
  group.is_attention = is_attention;
  const Kernel kernel = make_kernel(parsed.value(), group, std::vector<bool>(parsed.value().buffers.size(), false),
                                    SizeHints{{64}}, reference_target());
  const auto number = [&](LoopBufferId source) {
    return static_cast<LoopBufferId>(std::find_if(kernel.buffers.begin(), kernel.buffers.end(),
                                                  [&](const KernelBuffer& b) { return b.source == source; }) -
                                     kernel.buffers.begin());
  };
  const auto reason = kept_apart(kernel, number(0), number(3));
  return reason ? name_of(*reason) : "";
}

const std::string kRowMaximum =
    "  nest n0 (i0: 64 | r0: 48) {\n    %0 = load x[i0, r0] : f32\n    %1 = reduce_max %0 : f32\n    store t[i0], %1\n "
    " }\n";
const std::string kLessMaximum =
    "  nest n1 (i0: 64, i1: 48) {\n    %0 = load x[i0, i1] : f32\n    %1 = load t[i0] : f32\n    %2 = sub %0, %1 : "
    "f32\n    store y[i0, i1], %2\n  }\n";

std::string points(const std::string& body) { return "  nest n0 (i0: 64, i1: 48) {\n" + body + "  }\n"; }

TEST(InPlace, ElementByElement) {
  EXPECT_EQ(answer(points("    %0 = load x[i0, i1] : f32\n    %1 = exp %0 : f32\n    store y[i0, i1], %1\n"), 2), "");
}

TEST(InPlace, RowsThatAreReadSeveralTimes) { EXPECT_EQ(answer(kRowMaximum + kLessMaximum, 1), ""); }

TEST(InPlace, AnyNumberOfRows) {
  const auto rows = [](std::string nests) {
    for (size_t at; (at = nests.find("i0: 64")) != std::string::npos;) nests.replace(at, 6, "i0: s0");
    return nests;
  };
  EXPECT_EQ(answer(rows(kRowMaximum + kLessMaximum), 1, "f32[s0, 48]", "f32[s0, 48]"), "");
}

TEST(InPlace, EveryReason) {
  const std::string copied = "    %0 = load x[i0, i1] : f32\n    store y[i0, i1], %0\n";
  const std::pair<const char*, std::string> cases[] = {
      {"element_size", answer(points(copied), 2, "bf16[64, 48]")},
      {"also_written",
       answer(
           points(
               "    %0 = load n[i1] : i64\n    %1 = cast %0 : f32\n    store x[i0, i1], %1\n    store y[i0, i1], %1\n"),
           2)},
      {"placed", answer("  nest n0 (i0: 64 | r0: 48) {\n    %0 = load x[i0, r0] : f32\n    %1 = load n[r0] : i64\n    "
                        "%2 = check %1, 48 : i64\n    store_last y[i0, $2], %0\n  }\n",
                        1)},
      {"other_element", answer(points("    %0 = load x[i0, 47 - i1] : f32\n    store y[i0, i1], %0\n"), 2)},
      {"other_element", answer(points("    %0 = load n[i1] : i64\n    %1 = cast %0 : f32\n    store y[i0, i1], %1\n    "
                                      "%3 = load x[i0, i1] : f32\n    store t[i0], %3\n"),
                               2)},
      {"read_later",
       answer("  nest n1 (i0: 64, i1: 48) {\n    %0 = constant 1 : f32\n    store y[i0, i1], %0\n  }\n" + kRowMaximum,
              1)},
      {"tiled", answer(points("    %0 = load x[i0, i1] : f32\n    store y[i0, i1], %0\n"), 2, "f32[64, 48]",
                       "f32[64, 48; 1, 64]")},
      {"shared_point", answer(kRowMaximum + kLessMaximum, 1, "f32[64, 48]", "f32[64, 48]", true)},
      {"not_by_point", answer("  nest n0 (i0: 64 | r0: 48) {\n    %0 = load x[63 - i0, r0] : f32\n    %1 = reduce_max "
                              "%0 : f32\n    store t[i0], %1\n  }\n"
                              "  nest n1 (i0: 64, i1: 48) {\n    %0 = load t[i0] : f32\n    store y[i0, i1], %0\n  }\n",
                              1)},
  };
  std::vector<std::string> met;
  for (const auto& [expected, got] : cases) {
    EXPECT_EQ(got, expected);
    met.push_back(expected);
  }
#define KEPT_APART(name, text) \
  EXPECT_NE(std::find(met.begin(), met.end(), #name), met.end()) << #name << " has no case";
#include "inductor/kernel/in_place.def"
#undef KEPT_APART
}

// A chain of buffers that each outlive a kernel, because products between them need them in memory.
TEST(InPlace, ChainsEqualTheInterpreter) {
  const auto in_shape = [](std::string text) {
    for (size_t at; (at = text.find("MAT")) != std::string::npos;) text.replace(at, 3, "f32[2048, 8]");
    return text;
  };
  for (const char* between :
       {"%4 = relu %3 : MAT", "%4 = _softmax %3, -1, false : MAT", "%4 = flip %3, [0] : MAT", "%4 = flip %3, [1] : MAT",
        "%4 = cumsum %3, 1, none : MAT", "%4 = add.Tensor %3, %1, 1 : MAT"})
    check_graph(in_shape(std::string("graph @f(%x : MAT, %w : f32[8, 8]) {\n  %0 = mm %x, %w : MAT\n  %1 = sigmoid %0 "
                                     ": MAT\n  %2 = mm %1, %w : MAT\n  %3 = tanh %2 : MAT\n  ") +
                         between +
                         "\n  %5 = mul.Tensor %4, 0.5 : MAT\n  %6 = mm %5, %w : MAT\n  %7 = sub.Tensor %6, %4, 1 : "
                         "MAT\n  %8 = exp %7 : MAT\n  return %8\n}"),
                {.tolerance = 1e-4});
}

}  // namespace
}  // namespace framejit::inductor::testing
