// tests/unit/graph/number_history_test.cpp — which numbers of a recorded graph are known as arithmetic.
#include "graph/number_history.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/graph_builder.h"
#include "tests/parsers/graph_parser.h"

namespace framejit::graph {
namespace {

std::string text_of(const NumberSteps& steps) {
  static constexpr const char* kNames[] = {"input", "float", "", "add", "sub", "mul", "div", "neg", "float32"};
  const std::function<std::string(size_t)> text = [&](size_t at) -> std::string {
    const NumberStep& step = steps[at];
    if (step.op == NumberStep::kConstant) return std::to_string(step.number).substr(0, 4);
    if (step.op <= NumberStep::kFloat) return kNames[step.op] + std::string(" ") + std::to_string(step.a);
    const bool is_unary = step.op >= NumberStep::kNeg;
    return std::string(kNames[step.op]) + (step.is_single ? "32" : "") + "(" + text(step.a) +
           (is_unary ? "" : ", " + text(step.b)) + ")";
  };
  return steps.empty() ? "unknown" : text(steps.size() - 1);
}

// What the first output of the text is made of.
std::string history(const std::string& body, const std::string& inputs = "%x: f32[], %y: f64[]") {
  auto graph = parse_graph("graph @f(" + inputs + ") {\n" + body + "\n}");
  if (!graph.ok()) return graph.error().message;
  NumberHistory numbers;
  return text_of(numbers.find(graph.value(), graph.value().outputs[0], [](ValueId) { return 7.5; }));
}

TEST(NumberHistory, OfInputs) {
  EXPECT_EQ(history("return %x"), "input 0");
  EXPECT_EQ(history("return %x", "%x: f32[1]"), "unknown");
  EXPECT_EQ(history("return %x", "%x: i64[]"), "unknown");
}

TEST(NumberHistory, OfWrites) {
  EXPECT_EQ(history("%x = add_.Tensor %x, 1, 1 : f32[]\nreturn %x"), "add32(input 0, 1.00)");
  EXPECT_EQ(history("%y = add_.Tensor %y, 1, 1 : f64[]\nreturn %y"), "add(input 1, 1.00)");
  EXPECT_EQ(history("%x = add_.Tensor %x, 1, 1 : f32[]\n%x = mul_.Tensor %x, 0.5 : f32[]\nreturn %x"),
            "mul32(add32(input 0, 1.00), 0.50)");
  EXPECT_EQ(history("%x = add_.Tensor %x, 1, 2 : f32[]\nreturn %x"), "unknown") << "alpha";
  EXPECT_EQ(history("%x = sqrt_ %x : f32[]\nreturn %x"), "unknown");
  EXPECT_EQ(history("%x = zero_ %x : f32[]\nreturn %x"), "float32(0.00)");
}

TEST(NumberHistory, OfMixedDtypes) {
  EXPECT_EQ(history("%x = mul_.Tensor %x, %y : f32[]\nreturn %x"), "float32(mul(input 0, input 1))");
  EXPECT_EQ(history("%0 = _to_copy %y, @f32, none, none, none, false, none : f32[]\n"
                    "%x = mul_.Tensor %x, %0 : f32[]\nreturn %x"),
            "mul32(input 0, float32(input 1))");
}

TEST(NumberHistory, OfResults) {
  EXPECT_EQ(history("%0 = neg %y : f64[]\nreturn %0"), "neg(input 1)");
  EXPECT_EQ(history("%0 = rsub.Scalar %y, 1, 1 : f64[]\nreturn %0"), "sub(1.00, input 1)");
  EXPECT_EQ(history("%0 = div.Tensor %x, %y : f64[]\nreturn %0"), "div(input 0, input 1)");
  EXPECT_EQ(history("%0 = exp %y : f64[]\nreturn %0"), "unknown");
}

TEST(NumberHistory, ReadsWhatWasThereAtThatTime) {
  EXPECT_EQ(history("%0 = neg %y : f64[]\n%y = add_.Tensor %y, 1, 1 : f64[]\nreturn %0"), "neg(input 1)");
  EXPECT_EQ(history("%y = add_.Tensor %y, 1, 1 : f64[]\n%0 = neg %y : f64[]\nreturn %0"), "neg(add(input 1, 1.00))");
}

TEST(NumberHistory, OfViews) {  // a write through a view is not followed
  EXPECT_EQ(history("%0 = detach %y : f64[] &%y\n%0 = add_.Tensor %0, 1, 1 : f64[] &%y\nreturn %y"), "unknown");
}

TEST(NumberHistory, LongHistories) {
  std::string body;
  for (int i = 0; i < 100; ++i) body += "%y = add_.Tensor %y, 1, 1 : f64[]\n";
  EXPECT_EQ(history(body + "return %y"), "unknown");
}

TEST(NumberHistory, GrowsWithTheGraph) {
  GraphBuilder builder;
  TensorMeta meta;
  meta.dtype = DType::kFloat64;
  const ValueId x = builder.add_input(meta, builder.new_storage(), "x");
  NumberHistory numbers;
  const auto found = [&] { return text_of(numbers.find(builder.peek(), x, [](ValueId) { return std::nullopt; })); };
  EXPECT_EQ(found(), "input 0");
  const auto mark = builder.mark();
  builder.add_node({find_op("add_.Tensor"), {x, SymExpr(1), SymExpr(1)}, {x}, {}, 0});
  EXPECT_EQ(found(), "add(input 0, 1.00)");
  builder.rollback(mark);
  numbers.forget();
  EXPECT_EQ(found(), "input 0");
}

}  // namespace
}  // namespace framejit::graph
