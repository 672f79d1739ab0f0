// What the verifier of loop programs finds, and where the parser of their text stops.
#include "inductor/loop/loop_program.h"
#include "tests/parsers/loop_parser.h"

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
  const auto verified = verify(broken, {});
  ASSERT_FALSE(verified.ok());
  EXPECT_NE(verified.error().message.find("no such buffer"), std::string::npos);
}

// The verifier's answer about t[s0] and u[6], if s0 is 4 and s1 is -1. The nest is over (i0: s0, i1: 3), or reduces
// over r0.
std::string bounds_error_of(const std::string& body, const std::string& dims = "i0: s0, i1: 3") {
  const auto parsed =
      parse_loops("loops @f symbols 2 {\n  input t: f32[s0]\n  temp u: f32[6]\n  input n: i64[]\n  nest n0 (" + dims +
                  ") {\n" + body + "  }\n}\n");
  if (!parsed.ok()) return "not parsed: " + parsed.error().message;
  constexpr int64_t kHints[] = {4, -1};
  const auto verified = verify(parsed.value(), kHints);
  return verified.ok() ? "none" : verified.error().message;
}

TEST(LoopProgram, IndicesInsideOfBuffersPass) {
  for (const char* index :
       {"t[i0]", "t[3]", "t[-s1]", "t[s0 - 1]", "t[s0 - 1 - i0]", "t[i0 + s1 + 1]", "t[(i0 + 3*i1) // 3]",
        "t[min(i0 + i1, s0 - 1)]", "u[2*i1 + 1]", "u[i0 + i1]", "u[(7*i0 + 5*i1) % 6]"})
    EXPECT_EQ(bounds_error_of("    %0 = load " + std::string(index) + " : f32\n"), "none") << index;
}

TEST(LoopProgram, VerifyFindsAnIndexOutsideOfItsBuffer) {
  const struct {
    const char *access, *value, *size;
  } table[] = {
      {"t[4]", "4", "4"},        {"t[-1]", "-1", "4"},           {"t[s0]", "4", "4"},
      {"t[s1]", "-1", "4"},      {"t[i0 + 1]", "4", "4"},        {"t[s1 + i0]", "-1", "4"},
      {"u[6]", "6", "6"},        {"u[-1]", "-1", "6"},           {"u[s1]", "-1", "6"},
      {"u[s0 + i1]", "6", "6"},  {"u[i0 + 2*i1]", "7", "6"},     {"u[i0 - i1]", "-2", "6"},
      {"u[s1 + i1]", "-1", "6"}, {"u[i0*i1 + 1]", "7", "6"},     {"u[2*i1 + 2*(i0//2)]", "6", "6"},
      {"u[s1*i1]", "-2", "6"},   {"u[max(i1, 2*i0)]", "6", "6"}, {"u[6//(s0 - 4)]", "no int64", "6"},
  };
  for (const auto& row : table) {
    const std::string access = row.access, is = std::string(" is ") + row.value + ", and the buffer has " + row.size;
    EXPECT_EQ(bounds_error_of("    %0 = load " + access + " : f32\n"),
              "nest n0: index 0 of \"%0 = load " + access + " : f32\"" + is + " there");
    EXPECT_EQ(bounds_error_of("    %0 = constant 1.0 : f32\n    store " + access + ", %0\n"),
              "nest n0: index 0 of \"store " + access + ", %0\"" + is + " there");
  }
}

TEST(LoopProgram, AnIndexOutsideMayStandWhereNothingReadsIt) {
  const std::string outside = "    %0 = load u[i1 + 4] : f32\n",
                    found = "index 0 of \"%0 = load u[i1 + 4] : f32\" is 6";
  EXPECT_NE(bounds_error_of(outside).find(found), std::string::npos);
  EXPECT_EQ(bounds_error_of(outside, "i0: s1 + 1, i1: 3"), "none") << "no point";
  const std::string reduced = "    %0 = load u[r0 + 4] : f32\n    %1 = reduce_sum %0 : f32\n";
  EXPECT_NE(bounds_error_of(reduced, "i0: s0 | r0: 3"), "none");
  EXPECT_EQ(bounds_error_of(reduced, "i0: s0 | r0: s0 - 4"), "none") << "no reduced point";
  EXPECT_NE(bounds_error_of("    %0 = load u[i0 + 4] : f32\n", "i0: s0 | r0: s0 - 4"), "none");
  EXPECT_EQ(
      bounds_error_of("    %0 = constant 1.0 : f32\n    %1 = lt %0, %0 : bool\n    %2 = load u[i1 + 4] if %1 else "
                      "%0 : f32\n"),
      "none")
      << "a mask";
}

TEST(LoopProgram, CheckedIndicesLieBelowTheExtentOfTheirCheck) {
  const auto gather = [](const std::string& extent, const std::string& index) {
    return bounds_error_of("    %0 = load n[] : i64\n    %1 = check_wrap %0, " + extent + " : i64\n    %2 = load u[" +
                           index + "] : f32\n");
  };
  EXPECT_EQ(gather("6", "$1"), "none");
  EXPECT_EQ(gather("s0", "$1 + i1"), "none");
  EXPECT_NE(gather("7", "$1").find("is 6, and the buffer has 6"), std::string::npos);
  EXPECT_NE(gather("s0", "$1 + s1").find("is -1, and the buffer has 6"), std::string::npos);
  EXPECT_EQ(gather("s0 - 4", "$1 - 1"), "none") << "the check fails";
  EXPECT_EQ(gather("6", "$0 + 9"), "none") << "not known";
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
      {"no index expression", points("    %0 = load x[i0, +] : f32\n"), "expected a size: an integer"},
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
