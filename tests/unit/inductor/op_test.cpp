// Every lowering family over dtypes, sizes (0, 1, odd) and layouts: compiled code compared with the interpreter.
#include <gtest/gtest.h>

#include "tests/parsers/graph_parser.h"
#include "tests/unit/inductor/plan_runner.h"

namespace framejit::inductor::testing {
namespace {

std::string replace_all(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

TEST(Ops, UnaryFloat) {
  for (const char* op :
       {"exp",  "tanh",  "sigmoid", "erf",  "abs",   "neg",  "relu",       "silu",   "sin",       "cos",  "floor",
        "ceil", "round", "trunc",   "sign", "expm1", "exp2", "reciprocal", "square", "hardswish", "mish", "atan"}) {
    for (const char* dtype : {"f32", "f64", "bf16", "f16"}) {
      const std::string t = dtype;
      const double tolerance = t == "f32" ? 3e-6 : t == "f64" ? 1e-14 : t == "bf16" ? 8e-3 : 1e-3;
      check_graph(replace_all("graph @f(%x : $T[5, 27]) {\n %0 = " + std::string(op) + " %x : $T[5, 27]\n return %0\n}",
                              "$T", dtype),
                  {.tolerance = tolerance, .kernels = 1});
    }
  }
}

TEST(Ops, PositiveDomain) {
  for (const char* op : {"log", "log2", "log10", "log1p", "sqrt", "rsqrt"})
    check_graph("graph @f(%x : f32[133]) {\n %0 = abs %x : f32[133]\n %1 = " + std::string(op) +
                    " %0 : f32[133]\n return %1\n}",
                {.tolerance = 4e-6});
}

TEST(Ops, BinaryIntegers) {
  for (const char* op : {"add.Tensor %x, %y, 1", "mul.Tensor %x, %y", "sub.Tensor %x, %y, 3", "maximum %x, %y",
                         "minimum %x, %y", "bitwise_and.Tensor %x, %y", "bitwise_xor.Tensor %x, %y",
                         "remainder.Scalar %x, 3", "floor_divide.Scalar %x, 3"})
    for (const char* dtype : {"i64", "i32", "i16", "i8", "u8"})
      check_graph(
          replace_all("graph @f(%x : $T[77], %y : $T[77]) {\n %0 = " + std::string(op) + " : $T[77]\n return %0\n}",
                      "$T", dtype),
          {.tolerance = 0, .int_limit = 256});
}

TEST(Ops, ComparisonsAndSelection) {
  for (const char* dtype : {"f32", "bf16", "i64", "u8", "f64"})
    for (const char* op : {"eq.Tensor", "lt.Tensor", "ge.Tensor", "ne.Tensor"})
      check_graph(replace_all("graph @f(%x : $T[3, 21], %y : $T[21]) {\n %0 = " + std::string(op) +
                                  " %x, %y : bool[3, 21]\n %1 = where.self %0, %x, %y : $T[3, 21]\n %2 = logical_not "
                                  "%0 : bool[3, 21]\n return %1, %2\n}",
                              "$T", dtype),
                  {.tolerance = 0});
}

TEST(Ops, Casts) {
  for (const char* from : {"f32", "bf16", "f16", "f64", "i64", "i32", "u8", "bool"})
    for (const char* to : {"f32", "bf16", "f16", "f64", "i64", "i32", "i8", "bool"})
      check_graph("graph @f(%x : " + std::string(from) + "[51]) {\n %0 = _to_copy %x, @" + to +
                      ", none, none, none, false, none : " + to + "[51]\n return %0\n}",
                  {.tolerance = 0, .int_limit = 100});
}

TEST(Ops, SizesAndLayouts) {
  for (const char* shape : {"[0]", "[1]", "[2]", "[63]", "[64]", "[65]", "[1, 1, 1]", "[3, 0, 4]", "[7, 1, 33]", "[]",
                            "[12, 5; 1, 12]", "[6, 10; 40, 2]", "[4, 3, 2; 6, 2, 1]", "[2, 3, 5, 4; 60, 1, 12, 3]"}) {
    const std::string dense = shape;
    check_graph("graph @f(%x : f32" + dense + ") {\n %0 = mul.Tensor %x, 3.0 : f32" + dense + "\n %1 = tanh %0 : f32" +
                    dense + "\n return %1\n}",
                {.tolerance = 3e-6});
  }
}

TEST(Ops, TransposedIntoContiguous) {
  check_graph(R"(graph @f(%x : f32[40, 24]) {
    %0 = permute %x, [1, 0] : f32[24, 40; 1, 24]
    %1 = clone %0, none : f32[24, 40]
    %2 = view %1, [960] : f32[960]
    %3 = add.Tensor %2, 1.0, 1 : f32[960]
    return %3
  })");
}

TEST(Ops, Reductions) {
  for (const char* dims : {"[0]", "[1]", "[2]", "[0, 1]", "[0, 2]", "[1, 2]", "[0, 1, 2]"}) {
    const std::string list = dims;
    std::string result;
    const char* sizes[] = {"7", "13", "65"};
    for (int d = 0; d < 3; ++d)
      if (list.find(static_cast<char>('0' + d)) == std::string::npos)
        result += (result.empty() ? "" : ", ") + std::string(sizes[d]);
    for (const char* op : {"sum.dim_IntList %x, $D, false, none", "mean.dim %x, $D, false, none", "amax %x, $D, false",
                           "amin %x, $D, false", "var.correction %x, $D, 1, false"})
      check_graph("graph @f(%x : f32[7, 13, 65]) {\n %0 = " + replace_all(op, "$D", list) + " : f32[" + result +
                      "]\n return %0\n}",
                  {.tolerance = 4e-6});
    check_graph("graph @f(%x : bool[7, 13, 65]) {\n %0 = any.dims %x, " + list + ", false : bool[" + result +
                "]\n return %0\n}");
    check_graph("graph @f(%x : i32[7, 13, 65]) {\n %0 = sum.dim_IntList %x, " + list + ", false, none : i64[" + result +
                    "]\n return %0\n}",
                {.tolerance = 0});
  }
}

TEST(SlowOps, RunningResults) {
  for (const char* dtype : {"f32", "f16", "i64", "u8"})
    for (const char* op : {"cumsum %x, $D, none : $R[$S]", "cumprod %x, $D, none : $R[$S]"})
      for (const char* sizes : {"5, 27", "40, 1", "3, 2, 9", "0, 4"})
        for (const char* dim : {"0", "-1"}) {
          const std::string t = dtype;
          std::string text = replace_all(
              replace_all("graph @f(%x : $T[$S]) {\n %0 = " + std::string(op) + "\n return %0\n}", "$D", dim), "$S",
              sizes);
          text = replace_all(replace_all(text, "$R", t[0] == 'i' || t == "u8" ? "i64" : t), "$T", t);
          check_graph(text, {.tolerance = 0, .int_limit = 100, .kernels = 1});
        }
  for (const char* dtype : {"f32", "bf16", "f64", "i64", "i16", "bool"})
    for (const char* op : {"cummax", "cummin"})
      for (const char* dim : {"0", "1"})
        check_graph(replace_all("graph @f(%x : $T[13, 21]) {\n %0, %1 = " + std::string(op) + " %x, " + dim +
                                    " : $T[13, 21], i64[13, 21]\n return %0, %1\n}",
                                "$T", dtype),
                    {.tolerance = 0, .kernels = 1});
}

TEST(Ops, OrderedStores) {
  for (const char* dtype : {"f32", "f64", "i32"})
    for (const char* op : {"scatter.src %x, $D, %at, %y", "scatter_add %x, $D, %at, %y",
                           "scatter_reduce.two %x, $D, %at, %y, \"amax\", true"})
      for (const char* dim : {"0", "1"})
        check_graph(replace_all(replace_all("graph @f(%x : $T[9, 40], %at : i64[6, 35], %y : $T[8, 40]) {\n %0 = " +
                                                std::string(op) + " : $T[9, 40]\n return %0\n}",
                                            "$D", dim),
                                "$T", dtype),
                    {.tolerance = 0, .int_limit = 9});
  for (const char* op : {"index_add %a, 0, %at, %b, 1", "index_copy %a, 0, %at, %b",
                         "index_fill.int_Scalar %a, 1, %at, 2", "index_put %a, [%at], %b, true",
                         "index_put %a, [none, %at], 1.0, false", "embedding_dense_backward %b, %at, 11, 2, false"})
    for (const char* columns : {"40", "1", "s1"})
      check_graph(
          replace_all(
              replace_all(
                  R"(graph @f(%x : f32[11, $C], %at : i64[s0], %y : f32[s0, $C], %v : f32[1]) where s0 = 20, s1 = 10 {
        %a = neg %x : f32[11, $C]
        %b = mul.Tensor %y, 2.0 : f32[s0, $C]
        %0 = $O : f32[11, $C]
        %1 = add.Tensor %0, %x, 1 : f32[11, $C]
        return %1, %b
      })",
                  "$O", replace_all(op, ", 1.0, false", ", %v, false")),
              "$C", columns),
          {.tolerance = 0, .int_limit = columns[0] == '1' ? 1 : 10, .symbols = {17, 13}});
}

TEST(Ops, RunningResultsAmongOthers) {
  const std::string text = R"(graph @f(%x : f32[$S]) where s0 = 20 {
    %0 = exp %x : f32[$S]
    %1 = cumsum %0, $D, none : f32[$S]
    %2 = sum.dim_IntList %1, [$D], true, none : f32[$K]
    %3 = div.Tensor %1, %2 : f32[$S]
    %4 = neg %x : f32[$S]
    %5, %6 = cummax %4, $D : f32[$S], i64[$S]
    return %3, %5, %6
  })";
  for (const auto& [rows, columns] : {std::pair{"33", "50"}, {"s0", "50"}, {"33", "s0"}})
    for (const int dim : {0, 1}) {
      const std::string sizes = std::string(rows) + ", " + columns,
                        kept = dim == 0 ? std::string("1, ") + columns : std::string(rows) + ", 1";
      check_graph(replace_all(replace_all(replace_all(text, "$K", kept), "$D", std::to_string(dim)), "$S", sizes),
                  {.tolerance = 1e-5, .symbols = {17}});
    }
}

TEST(Ops, Positions) {
  for (const char* dtype : {"f32", "i64", "bf16", "u8"}) {
    check_graph(replace_all("graph @f(%x : $T[9, 70]) {\n %0 = argmax %x, 1, false : i64[9]\n %1 = argmin %x, 0, true "
                            ": i64[1, 70]\n return %0, %1\n}",
                            "$T", dtype),
                {.tolerance = 0, .int_limit = 50});
    check_graph(
        replace_all("graph @f(%x : $T[9, 70]) {\n %0 = argmax %x, none, false : i64[]\n return %0\n}", "$T", dtype),
        {.tolerance = 0, .int_limit = 50});
    check_graph(
        replace_all("graph @f(%x : $T[9, 70]) {\n %0, %1 = max.dim %x, 1, false : $T[9], i64[9]\n return %0, %1\n}",
                    "$T", dtype),
        {.tolerance = 0, .int_limit = 50});
  }
}

TEST(Ops, RowsInManyForms) {
  for (const char* dtype : {"f32", "bf16", "f64"}) {
    const double tolerance = std::string(dtype) == "bf16" ? 1e-2 : 5e-6;
    for (const char* shape : {"[3, 17]", "[2, 4, 100]", "[1, 1]", "[5, 64]", "[4, 1000]"}) {
      std::string text = replace_all(
          "graph @f(%x : $T$S) {\n %0 = _softmax %x, -1, false   : $T$S\n %1 = _log_softmax %x, -1, false   : $T$S\n "
          "return %0, %1\n}",
          "$S", shape);
      check_graph(replace_all(text, "$T", dtype), {.tolerance = tolerance});
    }
    check_graph(replace_all("graph @f(%x : $T[6, 9, 5]) {\n %0 = _softmax %x, 1, false : $T[6, 9, 5]\n return %0\n}",
                            "$T", dtype),
                {.tolerance = tolerance});
  }
}

TEST(Ops, Indexing) {
  check_graph(R"(graph @f(%w : f32[11, 24], %i : i64[3, 5]) {
    %0 = embedding %w, %i, -1, false, false : f32[3, 5, 24]
    %1 = sum.dim_IntList %0, [1], false, none : f32[3, 24]
    return %0, %1
  })", {.int_limit = 11});
  check_graph(R"(graph @f(%x : f32[6, 33], %i : i64[4]) {
    %0 = index_select %x, 0, %i : f32[4, 33]
    %1 = index_select %x, 1, %i : f32[6, 4]
    return %0, %1
  })", {.int_limit = 6});
  check_graph(R"(graph @f(%x : f32[6, 33], %i : i64[6, 20]) {
    %0 = gather %x, 1, %i : f32[6, 20]
    return %0
  })", {.int_limit = 33});
  check_graph(R"(graph @f(%x : f32[6, 8, 5], %i : i64[3, 1], %j : i32[4]) {
    %0 = index.Tensor %x, [%i, %j] : f32[3, 4, 5]
    return %0
  })", {.int_limit = 6});
}

TEST(Ops, CopiesAndFactories) {
  check_graph(R"(graph @f(%x : f32[3, 8], %y : f32[3, 5]) {
    %0 = cat [%x, %y, %x], 1 : f32[3, 21]
    %1 = stack [%x, %x], 1 : f32[3, 2, 8]
    %2 = constant_pad_nd %x, [1, 2, 0, 3], 7.0 : f32[6, 11]
    %3 = mul.Tensor %0, 2.0 : f32[3, 21]
    return %3, %1, %2
  })", {.tolerance = 0});
  check_graph(R"(graph @f(%x : f32[9, 9]) {
    %0 = tril %x, 0 : f32[9, 9]
    %1 = triu %x, 1 : f32[9, 9]
    %2 = flip %x, [0, 1] : f32[9, 9]
    %3 = repeat %x, [2, 1, 3] : f32[2, 9, 27]
    %4 = roll %x, [2], [1] : f32[9, 9]
    return %0, %1, %2, %3, %4
  })", {.tolerance = 0});
  check_graph(R"(graph @f(%x : f32[9]) {
    %0 = arange.start_step 3, 30, 3, @i64, none, @cpu, none : i64[9]
    %1 = full [9], 2.5, @f32, none, @cpu, none : f32[9]
    %2 = add.Tensor %x, %0, 1 : f32[9]
    %3 = add.Tensor %2, %1, 1 : f32[9]
    return %0, %3
  })");
}

TEST(Ops, RotaryEmbedding) {
  check_graph(R"(graph @f(%q : f32[2, 4, 6, 16], %cos : f32[6, 16], %sin : f32[6, 16]) {
    %0 = slice.Tensor %q, 3, 0, 8, 1 : f32[2, 4, 6, 8; 384, 96, 16, 1]
    %1 = slice.Tensor %q, 3, 8, 9223372036854775807, 1 : f32[2, 4, 6, 8; 384, 96, 16, 1]
    %2 = neg %1 : f32[2, 4, 6, 8]
    %3 = cat [%2, %0], 3 : f32[2, 4, 6, 16]
    %4 = mul.Tensor %3, %sin : f32[2, 4, 6, 16]
    %5 = mul.Tensor %q, %cos : f32[2, 4, 6, 16]
    %6 = add.Tensor %5, %4, 1 : f32[2, 4, 6, 16]
    return %6
  })", {.tolerance = 2e-6, .kernels = 1});
}

TEST(Ops, SymbolicSizes) {
  const std::string text = R"(graph @f(%x : f32[s0, s1, 32], %b : f32[32]) where s0 = 3, s1 = 5 {
    %0 = add.Tensor %x, %b, 1 : f32[s0, s1, 32]
    %1 = view %0, [s0*s1, 32] : f32[s0*s1, 32]
    %2 = _softmax %1, -1, false : f32[s0*s1, 32]
    %3 = sum.dim_IntList %2, [0], false, none : f32[32]
    return %2, %3
  })";
  check_graph(text, {.tolerance = 5e-6});
  check_graph(text, {.tolerance = 5e-6, .symbols = {7, 11}});
}

TEST(Ops, Convolutional) {
  check_graph(R"(graph @f(%x : f32[2, 6, 5, 4; 120, 1, 24, 6], %w : f32[6], %b : f32[6], %m : f32[6], %v : f32[6]) {
    %0 = abs %v : f32[6]
    %1, %2, %3 = _native_batch_norm_legit_no_training %x, %w, %b, %m, %0, 0.1, 1e-05 : f32[2, 6, 5, 4; 120, 1, 24, 6], f32[0], f32[0]
    %4 = relu %1 : f32[2, 6, 5, 4; 120, 1, 24, 6]
    %5 = mean.dim %4, [2, 3], true, none : f32[2, 6, 1, 1]
    return %4, %5
  })",
              {.tolerance = 5e-6});
  check_graph(R"(graph @f(%x : f32[2, 6, 5, 4], %w : f32[6], %b : f32[6]) {
    %0, %1, %2 = native_group_norm %x, %w, %b, 2, 6, 20, 3, 1e-05 : f32[2, 6, 5, 4], f32[2, 3], f32[2, 3]
    return %0, %1, %2
  })", {.tolerance = 5e-6});
}

TEST(Ops, OutOfRangeIndexFails) {
  auto graph = graph::parse_graph(R"(graph @f(%w : f32[4, 24], %i : i64[40]) {
    %0 = embedding %w, %i, -1, false, false : f32[40, 24]
    return %0
  })");
  ASSERT_TRUE(graph.ok());
  const auto inputs = random_inputs(graph.value(), {}, 1, 9);
  EXPECT_FALSE(run_compiled(graph.value(), inputs, {}, {}).ok());
  EXPECT_FALSE(run_interpreted(graph.value(), inputs, {}).ok());
}

}  // namespace
}  // namespace framejit::inductor::testing
