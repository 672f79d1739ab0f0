// Random loop programs: machine code of every vector level, fused and not, compared with the interpreter, at sizes
// other than the hint. Seeded; the message has the text of a failing program (fuzz_rounds.h).
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "graph/scalar_op.h"
#include "inductor/assemble.h"
#include "inductor/cpu/jit.h"
#include "inductor/interp/interpreter.h"
#include "tests/parsers/loop_parser.h"
#include "tests/unit/inductor/fuzz_rounds.h"
#include "tests/unit/inductor/plan_runner.h"
#include "tests/unit/inductor/planted.h"
#include "tests/unit/inductor/random_loops.h"

namespace framejit::inductor::testing {
namespace {

int64_t numel(const LoopBuffer& b, const std::vector<int64_t>& symbols) {
  int64_t n = 1;
  for (const SymExpr& s : b.sizes) n *= s.eval(symbols);
  return n;
}

// Buffers are dense, so memory order is as good as any.
std::vector<Data> input_data(const RandomProgram& random, const std::vector<int64_t>& symbols, uint32_t seed) {
  std::mt19937 bits(seed);
  std::vector<Data> inputs;
  for (const LoopBuffer& b : random.program.buffers) {
    if (b.role != BufferRole::kInput) break;
    const int64_t count = numel(b, symbols), bytes = row_of(b.dtype).bytes;
    Data data{std::vector<char>(static_cast<size_t>(count * bytes + 64))};
    const int top = static_cast<int>(random.facts[inputs.size()].top);
    for (int64_t k = 0; k < count; ++k) {
      graph::ScalarValue value;
      const int low = b.dtype == DType::kUInt8 || b.dtype == DType::kBool ? 0 : -top;
      const int steps = is_float(b.dtype) ? 4 : 1;
      const int number = low * steps + static_cast<int>(bits() % static_cast<uint32_t>((top - low) * steps + 1));
      is_float(b.dtype) ? value.f = number / 4.0 : value.i = number;
      graph::store_element(b.dtype, data.bytes.data() + k * bytes, value);
    }
    inputs.push_back(std::move(data));
  }
  return inputs;
}

// A graph that has only inputs and outputs: the nests between them are the program's own.
graph::Graph frame_of(RandomProgram& random, std::vector<ValueForm>& forms) {
  graph::Graph graph;
  graph.shapes.add_symbol(8);
  for (size_t b = 0; b < random.program.buffers.size(); ++b) {
    LoopBuffer& buffer = random.program.buffers[b];
    graph::ValueInfo info;
    info.meta.dtype = buffer.dtype;
    info.meta.sizes = buffer.sizes;
    info.meta.strides = buffer.strides;
    graph.values.push_back(info);
    buffer.value = static_cast<uint32_t>(b);
    forms.push_back({ValueForm::kBuffer, static_cast<LoopBufferId>(b), {}, 0, 0});
    if (buffer.role == BufferRole::kInput) graph.inputs.push_back(static_cast<graph::ValueId>(b));
    if (buffer.is_output) graph.outputs.push_back(static_cast<graph::ValueId>(b));
  }
  return graph;
}

Result<Outputs> interpret(const LoopProgram& program, const std::vector<Data>& inputs,
                          const std::vector<int64_t>& symbols) {
  std::vector<Data> storage = inputs;
  for (size_t b = storage.size(); b < program.buffers.size(); ++b)
    storage.push_back({std::vector<char>(
        static_cast<size_t>(numel(program.buffers[b], symbols) * row_of(program.buffers[b].dtype).bytes + 64))});
  InterpreterMemory memory{{}, symbols};
  for (Data& d : storage) memory.buffers.push_back(d.bytes.data());
  FJ_TRY_VOID(run_program(program, memory, [](const ExternCall&) {}));
  Outputs out;
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const LoopBuffer& buffer = program.buffers[b];
    if (!buffer.is_output) continue;
    out.values.emplace_back();
    std::vector<int64_t> at(buffer.sizes.size(), 0);
    for (;;) {
      int64_t offset = 0;
      for (size_t k = 0; k < at.size(); ++k) offset += at[k] * buffer.strides[k].eval(symbols);
      const auto value =
          graph::load_element(buffer.dtype, storage[b].bytes.data() + offset * row_of(buffer.dtype).bytes);
      out.values.back().push_back(is_float(buffer.dtype) ? value.f : static_cast<double>(value.i));
      size_t d = at.size();
      while (d > 0 && ++at[d - 1] == buffer.sizes[d - 1].eval(symbols)) at[--d] = 0;
      if (d == 0) break;
    }
  }
  return out;
}

void compare(const RandomProgram& random, const Outputs& got, const Outputs& expected, const std::string& what) {
  size_t o = 0;
  for (size_t b = 0; b < random.program.buffers.size(); ++b) {
    if (!random.program.buffers[b].is_output) continue;
    const Fact& fact = random.facts[b];
    ASSERT_EQ(got.values[o].size(), expected.values[o].size());
    for (size_t k = 0; k < expected.values[o].size(); ++k) {
      const double x = got.values[o][k], y = expected.values[o][k];
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      ASSERT_LE(std::fabs(x - y), fact.exact ? 0 : 4 * fact.error)
          << what << "\n"
          << random.program.buffers[b].name << " element " << k << " is " << x << ", interpreted " << y;
    }
    ++o;
  }
}

class Compiler {
 public:
  explicit Compiler(VectorLevel level) : jit_(CpuJit::create(level).take()) {}
  CpuJit& jit() { return *jit_; }

 private:
  std::unique_ptr<CpuJit> jit_;
};

struct Defect {
  const char* name = "";
  PlantedTarget::Change kernels = {};
  PlanChange plan = {};
};

void check_program(uint32_t seed, const Defect& planted = {}) {
  RandomProgram random = random_program(seed);
  const std::string text = print(random.program);
  const SizeHints hints{{8}};
  const auto verified = verify(random.program, hints.symbols);
  ASSERT_TRUE(verified.ok()) << verified.error().message << "\n" << text;
  const auto parsed = parse_loops(text);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message << ", " << text;
  ASSERT_EQ(print(parsed.value()), text);
  std::vector<ValueForm> forms;
  const graph::Graph graph = frame_of(random, forms);
  for (const VectorLevel level : {VectorLevel::kAvx512, VectorLevel::kAvx2, VectorLevel::k128}) {
    if (!is_available(level)) continue;
    const bool fuse = level != VectorLevel::kAvx2 || seed % 2 == 0;
    const std::string what =
        "level " + std::to_string(static_cast<int>(level)) + (fuse ? " fused" : " unfused") + "\n" + text;
    Compiler compiler(level);
    const Schedule schedule =
        fuse ? make_schedule(random.program, hints, reference_target()) : make_plain_schedule(random.program);
    PlantedTarget target(compiler.jit(), planted.kernels);
    auto plan = assemble(graph, forms, schedule, hints, target);
    ASSERT_TRUE(plan.ok()) << plan.error().message << "\n" << what;
    if (seed % 4 != 0) share_kernels(plan.value());
    if (planted.plan) planted.plan(plan.value());
    for (const int64_t size : {int64_t{8}, int64_t{2} + seed % 39}) {
      const auto inputs = input_data(random, {size}, seed);
      const auto expected = interpret(random.program, inputs, {size});
      const auto got = run_plan(plan.value(), target, inputs, {size}, 1);
      ASSERT_EQ(got.ok(), expected.ok()) << (got.ok() ? "has not failed, interpreted it has: "
                                                      : "has failed, interpreted it has not: ")
                                         << (got.ok() ? expected.error() : got.error()).message << "\n"
                                         << what;
      if (got.ok()) compare(random, got.value(), expected.value(), "s0 = " + std::to_string(size) + ", " + what);
      for (const int threads : {2, 3}) {
        const auto again = run_plan(plan.value(), target, inputs, {size}, threads);
        ASSERT_EQ(again.ok(), got.ok());
        if (!got.ok()) continue;
        ASSERT_EQ(again.value().bytes, got.value().bytes)
            << threads << " threads give other bits, s0 = " << size << ", " << what;
      }
      if (::testing::Test::HasFailure()) return;
    }
  }
}

constexpr int kLoopRounds = 100;

TEST(SlowFuzz, LoopPrograms) {
  for_each_seed(kLoopRounds, [](uint32_t seed) { check_program(seed); });
}

// --- planted defects ---

template <class Change>
PlantedTarget::Change in_each_instruction(Change change) {
  return [=](Kernel& kernel) {
    for (KernelNest& n : kernel.nests)
      for (LoopInst& inst : n.nest.body) change(kernel, inst);
  };
}
PlantedTarget::Change taken_for(std::map<ScalarOp, ScalarOp> others) {
  return in_each_instruction([=](const Kernel&, LoopInst& inst) {
    if (inst.op == LoopOp::kScalar && others.contains(inst.scalar)) inst.scalar = others.at(inst.scalar);
  });
}
PlantedTarget::Change taken_for(ReduceOp right, ReduceOp wrong) {
  return in_each_instruction([=](const Kernel&, LoopInst& inst) {
    if (inst.op == LoopOp::kReduce && inst.reduce == right) inst.reduce = wrong;
  });
}

void load_one_too_low(const Kernel& kernel, LoopInst& inst) {
  if (inst.op == LoopOp::kLoad && !kernel.buffers[inst.buffer].is_local)
    inst.index[0] = SymExpr::max(inst.index[0] - SymExpr(1), 0);
}
void never_wrap(const Kernel&, LoopInst& inst) { inst.wrap = false; }

TEST(SlowPlanted, LoopDefectsAreFound) {
  const Defect defects[] = {
      {"an add that subtracts", taken_for({{ScalarOp::k_add, ScalarOp::k_sub}})},
      {"equal numbers taken for different ones",
       taken_for({{ScalarOp::k_lt, ScalarOp::k_le}, {ScalarOp::k_gt, ScalarOp::k_ge}})},
      {"negative numbers that are rounded towards zero",
       taken_for({{ScalarOp::k_floor, ScalarOp::k_trunc}, {ScalarOp::k_floor_div, ScalarOp::k_trunc_div}})},
      {"a largest that is the smallest", taken_for(ReduceOp::kMax, ReduceOp::kMin)},
      {"a load that is off by one", in_each_instruction(load_one_too_low)},
      {"a mask that misses the last lane", {}, miss_the_last},
      {"a thread that begins one late", {}, begin_one_late},
      {"memory that is shared by what lives at once", {}, share_memory},
  };
  for (const Defect& defect : defects) {
    SCOPED_TRACE(defect.name);
    EXPECT_GT(seeds_until_found(kLoopRounds, ", interpreted ", [&](uint32_t seed) { check_program(seed, defect); }), 0);
  }
  EXPECT_GT(seeds_until_found(kLoopRounds, "failed",
                              [](uint32_t seed) {
                                check_program(seed, {"an index that does not count from the end",
                                                     in_each_instruction(never_wrap)});
                              }),
            0);
  EXPECT_EQ(
      seeds_until_found(
          3, "", [](uint32_t seed) { check_program(seed, {"none", [](Kernel&) {}, [](runtime::Executable&) {}}); }),
      0);
}

// Moves every index that the verifier sees, one after another, by the size of its buffer.
void check_bounds(uint32_t seed, int& moved) {
  LoopProgram program = random_program(seed).program;
  const NestSymbols symbols(program.symbol_count);
  constexpr int64_t kHints[] = {8};
  for (auto& item : program.items) {
    if (!std::holds_alternative<Nest>(item)) continue;
    for (LoopInst& inst : std::get<Nest>(item).body)
      for (size_t k = 0; (inst.op == LoopOp::kLoad || inst.op == LoopOp::kStore) && k < inst.index.size(); ++k) {
        const SymExpr right = inst.index[k], size = program.buffers[inst.buffer].sizes[k];
        if (inst.is_masked() || mentions_values(right, symbols)) continue;
        for (const SymExpr& wrong : {right + size, right - size}) {
          inst.index[k] = wrong;
          const auto verified = verify(program, kHints);
          ASSERT_FALSE(verified.ok()) << print(program);
          ASSERT_NE(verified.error().message.find(", and the buffer has "), std::string::npos);
          ++moved;
        }
        inst.index[k] = right;
      }
  }
}

TEST(Planted, IndicesOutsideAreFound) {
  int moved = 0;
  for (uint32_t seed = 1; seed <= kLoopRounds && !HasFailure(); ++seed) check_bounds(seed, moved);
  EXPECT_GT(moved, kLoopRounds);
}

}  // namespace
}  // namespace framejit::inductor::testing
