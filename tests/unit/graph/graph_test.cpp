// The graph: laws of its text form, the verifier, the builder, the op table and the eager plan.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "graph/backend.h"
#include "graph/graph_builder.h"
#include "graph/shape_rule.h"
#include "tests/parsers/graph_parser.h"

namespace framejit::graph {
namespace {

TensorMeta tensor(SymSizes sizes, DType dtype = DType::kFloat32) {
  TensorMeta meta;
  meta.dtype = dtype;
  meta.strides = contiguous_strides(sizes);
  meta.sizes = std::move(sizes);
  return meta;
}

constexpr const char* kCanonical =
    R"(graph @f(%x : f32[s0, 64], %w : bf16[64, 64; 1, 64; 8] @cuda:0 grad) where s0 = 8, s1 = 3 in [0, 9], s0 < 2*s1 + 7 {
  constant %constant0 : i64[]
  %0 = view %x, [64, s0] : f32[64, s0] &%x
  %1 = add_.Tensor %0, 1.5, 1 : f32[64, s0]
  [%2, %3], _ = foo.bar [%1, none], values[], floats[], bools[], [], [true, false], [1.0, -inf] : f32[2], other[2]
  %4 = baz @f32, @cpu, @cuda:1, @l0, @m2, @o3, "a\"b", none, 64*s0 - 1, -0.0, nan, max(s0, 4) : f32[4]
  nothing
  update %x = %4
  return %4 as view of input 1, %x as input 0, _, %2 as view of output 0
}
)";

class GraphText : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (const char* name : {"foo.bar", "baz", "nothing"}) {
      OpDef op;
      op.name = name;
      declare_op(op);
    }
  }
};

TEST_F(GraphText, CanonicalTextPrintsAsItself) {
  const Result<Graph> graph = parse_graph(kCanonical);
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(print(graph.value()), kCanonical);
  const Graph& g = graph.value();
  EXPECT_EQ(g.meta(g.inputs[1]).device.index, 0);
  EXPECT_TRUE(g.meta(g.inputs[1]).requires_grad);
  EXPECT_EQ(g.values[index_of(g.nodes[0].results[0])].storage, g.values[index_of(g.inputs[0])].storage);
  EXPECT_EQ(g.nodes[2].result_lists, (std::vector<int16_t>{2, -1}));
  EXPECT_EQ(g.nodes[2].results[2], kNoValue);
  EXPECT_EQ(g.opaque_count, 4u);
  EXPECT_EQ(g.shapes.symbol(1).low, 0);
}

TEST_F(GraphText, NamesAndLinesOfTheProgram) {
  Graph graph = parse_graph(kCanonical).take();
  graph.input_names[0] = "L['self'].weight";
  graph.lines.push_back({"model.py", 12, "f"});
  graph.nodes[0].line = 1;
  EXPECT_NE(print(graph).find("%L_self_weight"), std::string::npos);
  EXPECT_NE(print(graph).find("# model.py:12"), std::string::npos);
}

TEST_F(GraphText, ErrorsNameLineAndColumn) {
  auto message = [](const char* text) { return parse_graph(text).error().message; };
  EXPECT_EQ(message("graph @f() {\n  %0 = nosuch 1 : f32[]\n  return\n}"), "line 2, column 8: unknown op nosuch");
  EXPECT_EQ(message("graph @f() {\n  %0 = relu %9 : f32[]\n  return\n}"), "line 2, column 13: unknown value %9");
  EXPECT_NE(message("graph @f(%x : f99[]) {\n  return\n}").find("unknown dtype 'f99'"), std::string::npos);
  EXPECT_NE(message("graph @f(%x : f32[], %x : f32[]) {\n  return\n}").find("defined twice"), std::string::npos);
  EXPECT_NE(message("graph @f(%x : f32[2; 1, 1]) {\n  return\n}").find("as many strides"), std::string::npos);
}

Arg random_arg(std::mt19937_64& random, const std::vector<ValueId>& values, uint32_t& opaques) {
  const SymExpr size = SymExpr::symbol(0) * SymExpr(static_cast<int64_t>(random() % 5)) +
                       SymExpr(static_cast<int64_t>(random() % 7) - 3);
  switch (random() % 14) {
    case 0: return {};
    case 1: return values[random() % values.size()];
    case 2: return std::vector<ValueId>{values[random() % values.size()], kNoValue};
    case 3: return size;
    case 4: return SymSizes(random() % 3, size);
    case 5: return static_cast<double>(static_cast<int64_t>(random())) / 1024;
    case 6: return std::vector<double>(random() % 3, 0.1);
    case 7: return random() % 2 == 0;
    case 8: return std::vector<bool>(random() % 3, true);
    case 9: return std::string("a \"quoted\"\n# %1 ]");
    case 10: return static_cast<DType>(random() % 12);
    case 11:
      return Device{static_cast<DeviceType>(random() % 3), static_cast<int8_t>(static_cast<int>(random() % 3) - 1)};
    case 12: return TorchEnum{"lmqx"[random() % 4], static_cast<int8_t>(random() % 4)};
    default: opaques = std::max(opaques, 3u); return OpaqueSlot{static_cast<uint32_t>(random() % 3)};
  }
}

TEST_F(GraphText, FuzzedGraphsRoundTrip) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    GraphBuilder b;
    b.shapes().add_symbol(5);
    std::vector<ValueId> values;
    for (int i = 0; i < 2; ++i)
      values.push_back(b.add_input(tensor({SymExpr::symbol(0), 4}), b.new_storage(),
                                   "L['x'][" + std::to_string(random() % 2) + "]"));
    uint32_t opaques = 0;
    for (int i = 0; i < 8; ++i) {
      Node node;
      node.op = find_op(random() % 2 != 0 ? "foo.bar" : "baz");
      for (size_t a = random() % 6; a-- > 0;) node.args.push_back(random_arg(random, values, opaques));
      for (size_t r = random() % 3; r-- > 0;) {
        TensorMeta meta = tensor({static_cast<int64_t>(random() % 4), 3}, static_cast<DType>(random() % 12));
        if (random() % 3 == 0) meta.strides = {1, 7}, meta.offset = SymExpr::symbol(0);
        const uint32_t storage =
            random() % 3 == 0 ? b.peek().values[index_of(values[random() % values.size()])].storage : b.new_storage();
        node.results.push_back(random() % 5 == 0 ? kNoValue : b.new_value(meta, storage));
      }
      if (node.results.size() == 2 && random() % 2 == 0) node.result_lists = {2};
      const std::vector<ValueId> results = node.results;
      b.add_node(std::move(node));
      for (ValueId v : results)
        if (v != kNoValue) values.push_back(v);
    }
    while (b.peek().opaque_count < opaques) b.new_opaque();
    const Graph g = b.build({values.back(), values.front()});
    ASSERT_TRUE(verify(g).ok()) << verify(g).error().message;
    const std::string text = print(g);
    const Result<Graph> again = parse_graph(text);
    ASSERT_TRUE(again.ok()) << again.error().message << "\n" << text;
    ASSERT_EQ(print(again.value()), text);
    ASSERT_TRUE(verify(again.value()).ok());
    for (size_t i = 0; i < g.nodes.size(); ++i) ASSERT_EQ(again.value().nodes[i].args.size(), g.nodes[i].args.size());
  }
}

TEST(GraphVerify, FindsWhatIsBroken) {
  const Graph good =
      parse_graph("graph @f(%x : f32[3]) {\n  %0 = exp %x : f32[3]\n  %1 = exp %0 : f32[3]\n  return %1\n}").take();
  ASSERT_TRUE(verify(good).ok());
  auto broken = [&](auto change) {
    Graph g = good;
    change(g);
    return !verify(g).ok();
  };
  EXPECT_TRUE(broken([](Graph& g) { std::swap(g.nodes[0], g.nodes[1]); }));
  EXPECT_TRUE(broken([](Graph& g) { g.nodes[0].op = nullptr; }));
  EXPECT_TRUE(broken([](Graph& g) { g.values[1].meta.strides.clear(); }));
  EXPECT_TRUE(broken([](Graph& g) { g.values[1].meta.sizes[0] = SymExpr::symbol(0); }));
  EXPECT_TRUE(broken([](Graph& g) { g.nodes[1].results[0] = g.nodes[0].results[0]; }));
  EXPECT_TRUE(broken([](Graph& g) { g.output_aliases[0] = {OutputKind::kViewOfInput, 1}; }));
  EXPECT_TRUE(broken([](Graph& g) { g.output_aliases[0] = {OutputKind::kViewOfInput, 0}; }));  // it is computed
  EXPECT_TRUE(broken([](Graph& g) { g.updates = {{4, g.outputs[0]}}; }));
  EXPECT_TRUE(broken([](Graph& g) { g.nodes[0].result_lists = {3}; }));
}

TEST(GraphBuilder, MergesPureNodesOnly) {
  GraphBuilder b("f", true);
  const ValueId x = b.add_input(tensor({3}), b.new_storage(), "x");
  EXPECT_EQ(b.emit("exp", {x}), b.emit("exp", {x}));
  EXPECT_NE(b.emit("mul.Tensor", {x, 0.0}), b.emit("mul.Tensor", {x, -0.0}));
  const std::vector<Arg> draw{SymSizes{3}, Arg{}, Arg{}, Arg{}, Arg{}};
  EXPECT_NE(b.emit("rand", draw), b.emit("rand", draw));
}

TEST(GraphBuilder, MetasStayWhereTheyAreWhileValuesAreAdded) {
  GraphBuilder b("f", true);
  ValueId last = b.add_input(tensor({3, 5}), b.new_storage(), "x");
  const TensorMeta& first = b.meta(last);
  for (int k = 0; k < 300; ++k) last = b.emit("exp", {last});
  EXPECT_EQ(&first, &b.meta(b.peek().inputs[0]));
  EXPECT_EQ(first.sizes, (SymSizes{3, 5}));
}

TEST(GraphBuilder, RollbackDropsTheNodesOfAFailedCall) {
  GraphBuilder b("f", true);
  const ValueId x = b.add_input(tensor({3}), b.new_storage(), "x");
  const ValueId kept = b.emit("exp", {x});
  const GraphBuilder::Mark mark = b.mark();
  b.emit("log", {kept});
  b.rollback(mark);
  EXPECT_EQ(b.peek().nodes.size(), 1u);
  const ValueId log = b.emit("log", {kept});  // not merged with the dropped one
  const Graph g = b.build({log});
  EXPECT_TRUE(verify(g).ok());
  EXPECT_EQ(g.nodes.size(), 2u);
}

TEST(OpTable, DeclaringAddsWhatARowLacks) {
  const OpDef* row = find_op("add.Tensor");
  ASSERT_NE(row, nullptr);
  OpDef schema;
  schema.name = "add.Tensor";
  schema.arg_names = {"self", "other", "alpha"};
  EXPECT_EQ(declare_op(schema), row);
  EXPECT_EQ(row->arg_names.size(), 3u);
  EXPECT_NE(row->shape_rule, nullptr);
  EXPECT_EQ(find_op("no.such"), nullptr);
}

TEST(OpTable, ThreadsMayDeclareAndFind) {
  std::vector<std::thread> threads;
  std::vector<const OpDef*> found(4);
  for (size_t t = 0; t < found.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        OpDef op;
        op.name = "threaded::op" + std::to_string(i);
        declare_op(op);
        found[t] = find_op("threaded::op" + std::to_string(i / 2));
      }
    });
  for (std::thread& t : threads) t.join();
  for (const OpDef* op : found) EXPECT_EQ(op, found[0]);
}

TEST(OpTable, InPlaceRowsNameAFunctionalForm) {
  for (const char* name :
       {"add_.Tensor", "relu_", "masked_fill_.Scalar", "copy_", "zero_", "bernoulli_.float", "index_put_"}) {
    const OpDef* op = find_op(name);
    ASSERT_NE(op, nullptr) << name;
    EXPECT_TRUE(op->has(kMutates)) << name;
    ASSERT_NE(find_op(op->functional), nullptr) << name;
    EXPECT_FALSE(find_op(op->functional)->has(kMutates)) << name;
  }
}

TEST(EagerBackend, PlansEveryNodeAndFreesAfterTheLastUse) {
  const Graph g = parse_graph(R"(graph @f(%x : f32[s0, 4]) where s0 = 3 {
  %0 = exp %x : f32[s0, 4]
  %1 = view %0, [4*s0] : f32[4*s0]
  %2, %3 = sort %1, -1, false : f32[4*s0], i64[4*s0]
  update %x = %0
  return %2, %x as input 0, %x as view of input 0
})").take();
  const runtime::CallPlan plan = make_eager_backend()->compile(g).take().forward;
  std::vector<std::string> steps;
  for (const runtime::Step& step : plan.steps) {
    if (const auto* call = std::get_if<runtime::ExternStep>(&step)) steps.push_back(call->op);
    else if (std::holds_alternative<runtime::FreeStep>(step)) steps.push_back("free");
    else if (std::holds_alternative<runtime::ViewStep>(step)) steps.push_back("view_of_input");
  }
  EXPECT_EQ(steps, (std::vector<std::string>{"exp", "view", "sort", "free", "view_of_input"}));
  const auto& sort = std::get<runtime::ExternStep>(plan.steps[2]);
  EXPECT_EQ(sort.results[1], runtime::kNoBuffer);
  ASSERT_EQ(plan.outputs.size(), 3u);
  EXPECT_EQ(plan.outputs[1].kind, runtime::Output::kInput);
  EXPECT_EQ(plan.outputs[2].kind, runtime::Output::kBuffer);
  ASSERT_EQ(plan.updates.size(), 1u);
  // 4*s0 is one slot, used by both the view's size and its buffer.
  ASSERT_EQ(plan.size_program.size(), 3u);
  EXPECT_EQ(plan.size_program[0].opcode, runtime::SizeOpcode::kSymbol);
  EXPECT_EQ(plan.size_program[2].opcode, runtime::SizeOpcode::kMul);
}

}  // namespace
}  // namespace framejit::graph
