// What the verifier of loop programs finds, and where the parser of their text stops.
#include "inductor/loop/loop_program.h"

#include <gtest/gtest.h>

namespace framejit::inductor {
namespace {

std::string program(const std::string& items) {
  return "loops @f symbols 1 {\n  input x: f32[s0, 8]\n  input h: bf16[8]\n  input n: i64[8]\n  temp t: f32[s0]\n  "
         "output y: f32[s0, 8]\n" +
         items + "}\n";
}

std::string error_of(const std::string& text) {
  const auto parsed = parse_loops(text);
  return parsed.ok() ? "none" : std::string(name_of(parsed.error().reason)) + ": " + parsed.error().message;
}

// A body over (i0: s0, i1: 8), or over (i0: s0 | r0: 8).
std::string points(const std::string& body) { return program("  nest n0 (i0: s0, i1: 8) {\n" + body + "  }\n"); }
std::string rows(const std::string& body) { return program("  nest n0 (i0: s0 | r0: 8) {\n" + body + "  }\n"); }

struct Broken {
  const char* what;
  std::string text, error;
};

void expect_errors(const std::vector<Broken>& table) {
  for (const Broken& row : table) {
    const std::string error = error_of(row.text);
    EXPECT_NE(error.find(row.error), std::string::npos) << row.what << ": " << error << "\n"
                                                        << row.text;
  }
}

TEST(LoopProgram, WhatIsRightPasses) {
  EXPECT_EQ(error_of(points("    %0 = load x[i0, i1] : f32\n    %1 = exp %0 : f32\n    store y[i0, i1], %1\n")),
            "none");
  EXPECT_EQ(error_of(points("    %0 = load x[i0, i1] : f32\n    %1 = lt %0, %0 : bool\n    %2 = load x[i0 + 9, i1] if "
                            "%1 else %0 : f32\n    store y[i0, i1], %2\n")),
            "none");
  EXPECT_EQ(error_of(rows("    %0 = load x[i0, r0] : f32\n    %1 = reduce_sum %0 : f32\n    store t[i0], %1\n")),
            "none");
  EXPECT_EQ(error_of(points("    %0 = load n[i1] : i64\n    %1 = check %0, s0 : i64\n    %2 = load x[$1, i1] : f32\n   "
                            " store y[i0, i1], %2\n")),
            "none");
}

TEST(LoopProgram, VerifyFindsWhatIsBroken) {
  const std::string load = "    %0 = load x[i0, i1] : f32\n",
                    inner = "    %0 = load x[i0, r0] : f32\n    %1 = reduce_sum %0 : f32\n";
  std::string deep = "  nest n0 (";
  for (int d = 0; d < 25; ++d) deep += "i" + std::to_string(d) + ": 1, ";
  expect_errors({
      {"used before it is made", points("    %0 = exp %1 : f32\n    %1 = load x[i0, i1] : f32\n"),
       "not_verified: nest n0, %0: reads a value that is not defined before it"},
      {"uses itself", points("    %0 = exp %0 : f32\n"), "not defined before it"},
      {"uses a store", points(load + "    store y[i0, i1], %0\n    %2 = exp %1 : f32\n"), "not defined before it"},
      {"index of nothing", points("    %0 = load x[$4, i1] : f32\n"), "not defined before it"},
      {"points and results mixed", rows(inner + "    %2 = sub %0, %1 : f32\n"),
       "not_verified: nest n0, %2: mixes reduced dimensions with the result of a reduction"},
      {"a result stored at every reduced point", rows(inner + "    store y[i0, r0], %1\n"), "mixes reduced dimensions"},
      {"half precision as a value", points("    %0 = load h[i1] : bf16\n"), "half precision is not a value dtype"},
      {"an index too few", points("    %0 = load x[i0] : f32\n"), "one index per dimension of the buffer is needed"},
      {"loaded as another dtype", points("    %0 = load n[i1] : f32\n"), "dtype differs from the buffer's"},
      {"stored as another dtype", points("    %0 = load n[i1] : i64\n    store y[i0, i1], %0\n"),
       "dtype differs from the buffer's"},
      {"a reduction over nothing", points(load + "    %1 = reduce_max %0 : f32\n"), "reduces over nothing"},
      {"a reduction of a reduction", rows(inner + "    %2 = reduce_max %1 : f32\n"),
       "reduces the result of a reduction"},
      {"a choice by a number", points(load + "    %1 = select %0, %0, %0 : f32\n"), "select needs a bool"},
      {"operands of two dtypes", points(load + "    %1 = load n[i1] : i64\n    %2 = add %0, %1 : f32\n"),
       "operands of different dtypes"},
      {"a comparison that is no bool", points(load + "    %1 = lt %0, %0 : f32\n"), "wrong result dtype"},
      {"a mask that is a number", points(load + "    %1 = load x[i0, i1] if %0 else %0 : f32\n"), "a mask is a bool"},
      {"another value of another dtype",
       points(load + "    %1 = lt %0, %0 : bool\n    %2 = load n[i1] if %1 else %0 : i64\n"),
       "the other value of a masked load has another dtype"},
      {"no such dimension", points("    %0 = load x[i0, i2] : f32\n"), "no such dimension"},
      {"a size that the program lacks", points("    %0 = load x[s7, i1] : f32\n"), "no such dimension"},
      {"an index that is no integer", points(load + "    %1 = load x[$0, i1] : f32\n"), "an index is an i64"},
      {"too many dimensions", program(deep + ") {\n  }\n"), "not_verified: nest n0 has too many dimensions"},
      {"two nests of one name", program("  nest n0 () {\n  }\n  nest n0 () {\n  }\n"),
       "not_verified: two nests are named n0"},
  });
}

TEST(LoopProgram, VerifyFindsABufferThatIsMissing) {
  auto parsed = parse_loops(points("    %0 = load x[i0, i1] : f32\n"));
  ASSERT_TRUE(parsed.ok());
  LoopProgram broken = parsed.take();
  std::get<Nest>(broken.items[0]).body[0].buffer = 99;
  const auto verified = verify(broken);
  ASSERT_FALSE(verified.ok());
  EXPECT_NE(verified.error().message.find("no such buffer"), std::string::npos);
}

TEST(LoopProgram, TheParserSaysWhereItStops) {
  expect_errors({
      {"another beginning", "graph @f", "expected"},
      {"no number of symbols", "loops @f {", "expected"},
      {"text after the end", program("") + "more", "text after the program"},
      {"an unknown item", program("  loop n0\n"), "expected input, constant, temp, output, extern or nest"},
      {"an unknown dtype", program("  temp z: f33[4]\n"), "unknown dtype f33"},
      {"an unknown buffer", points("    %0 = load z[i0] : f32\n"), "unknown buffer z"},
      {"an unknown buffer of a call", program("  extern 0 mm(x, z) -> (y)\n"), "unknown buffer z"},
      {"no arrow", program("  extern 0 mm(x) (y)\n"), "expected"},
      {"an unknown operation", points("    %0 = frobnicate x[i0] : f32\n"), "unknown operation frobnicate"},
      {"an unknown reduction", rows("    %0 = load x[i0, r0] : f32\n    %1 = reduce_median %0 : f32\n"),
       "unknown reduction reduce_median"},
      {"values out of order", points("    %1 = load x[i0, i1] : f32\n"), "values are numbered in order"},
      {"no index expression", points("    %0 = load x[i0, +] : f32\n"), "expected an index expression"},
      {"a mask without another value",
       points("    %0 = load x[i0, i1] : f32\n    %1 = lt %0, %0 : bool\n    %2 = load x[i0, i1] if %1 : f32\n"),
       "expected"},
      {"an operand too few", points("    %0 = load x[i0, i1] : f32\n    %1 = add %0 : f32\n"), "expected"},
      {"a constant without number", points("    %0 = constant\n"), "expected a number"},
      {"a body that does not end", "loops @f symbols 0 {\n  nest n0 () {\n", "expected"},
  });
}

}  // namespace
}  // namespace framejit::inductor
