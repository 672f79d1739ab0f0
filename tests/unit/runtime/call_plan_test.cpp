// tests/unit/runtime/call_plan_test.cpp — the plan loop over plain memory: sizes, arena, checks, order, text.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>

#include "runtime/arena.h"
#include "tests/unit/hand_kernels.h"

namespace framejit::runtime {
namespace {

// Buffers are vectors of float; every event is recorded.
class FakeHost : public PlanHost {
 public:
  explicit FakeHost(const CallPlan& plan) : plan_(plan) {}
  void* data(BufferId b) override {
    if (plan_.buffers[b].storage == Storage::kArena)
      return arena_[plan_.buffers[b].index].data() + size(plan_.buffers[b].offset);
    return tensors[b].data();
  }
  void allocate(BufferId b, BufferId) override {
    log += "allocate " + std::to_string(b) + "\n";
    int64_t n = 1;
    for (const Size& s : plan_.buffers[b].sizes) n *= size(s);
    tensors[b].assign(n, 0);
  }
  void view(BufferId base, BufferId result) override {
    log += "view " + std::to_string(base) + " " + std::to_string(result) + "\n";
  }
  void call(const ExternStep& step, size_t index) override {
    log += "call " + step.op + " " + std::to_string(index) + "\n";
  }
  void release(BufferId b) override { log += "free " + std::to_string(b) + "\n"; }
  void take(uint32_t block, int64_t bytes) override {
    log += "take " + std::to_string(block) + " " + std::to_string(bytes) + "\n";
    arena_[block].assign(bytes, 0);
  }
  void enter(const Place& place) override { log += "enter " + text_of(place.device) + "\n"; }
  void give(uint32_t block) override {
    log += "give " + std::to_string(block) + "\n";
    arena_[block] = {};
  }
  void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*body)(void*, int64_t, int64_t),
                    void* state) override {
    ++regions;
    for (int64_t i = begin; i < end; i += grain) body(state, i, std::min(end, i + grain));
  }
  int regions = 0;
  std::map<BufferId, std::vector<float>> tensors;
  std::string log;

 private:
  const CallPlan& plan_;
  std::array<std::vector<char>, kArenaBlocks> arena_;
};

// out[i] = in[i] * scale + sizes[0]; returns 3 if a value is negative.
int64_t scale_kernel(void* const* buffers, const int64_t* sizes, const FjScalar* scalars, int64_t begin, int64_t end) {
  const float* in = static_cast<const float*>(buffers[0]);
  float* out = static_cast<float*>(buffers[1]);
  for (int64_t i = begin; i < end; ++i) {
    if (in[i] < 0) return 3;
    out[i] = in[i] * static_cast<float>(scalars[0].f) + static_cast<float>(sizes[0]);
  }
  return 0;
}

Buffer buffer(Storage storage, uint32_t index, Size n) {
  Buffer b;
  b.storage = storage;
  b.index = index;
  b.sizes = {n};
  b.strides = {{1}};
  return b;
}

// Scaling by 2 is kernel 0 of a table, by 10 kernel 1.
KernelStep kernel(BufferId in, BufferId out, double scale, Size extent) {
  KernelStep k;
  k.kernel = scale == 2.0 ? 0 : 1;
  k.name = "k0";
  k.buffers = {in, out};
  k.sizes = {extent};
  k.extent = extent;
  k.grain = 2;
  return k;
}

// z0 = s0, z1 = 4, z2 = z0 * z1: in -> arena -> out
CallPlan two_kernels() {
  CallPlan plan;
  plan.name = "f";
  plan.input_count = plan.symbol_count = 1;
  plan.size_program = {{SizeOpcode::kSymbol, 0}, {SizeOpcode::kConstant, 4}, {SizeOpcode::kMul, 0, 0, 1}};
  plan.arena = {{{}, {0, 2}}};
  const Size n{0, 0};
  plan.buffers = {buffer(Storage::kInput, 0, n), buffer(Storage::kArena, 0, n), buffer(Storage::kTensor, 0, n)};
  plan.steps = {kernel(0, 1, 2.0, n), AllocateStep{2}, kernel(1, 2, 10.0, n)};
  plan.outputs = {{Output::kBuffer, 2}};
  return plan;
}

// out[i] = the beginning of the part that contains i.
int64_t part_kernel(void* const* buffers, const int64_t*, const FjScalar*, int64_t begin, int64_t end) {
  std::fill(static_cast<float*>(buffers[1]) + begin, static_cast<float*>(buffers[1]) + end, static_cast<float>(begin));
  return 0;
}

Result<void> run(const CallPlan& plan, const int64_t* symbols, FakeHost& host) {
  const testing::HandKernels kernels = {
      std::make_shared<testing::HandKernel>("twice", scale_kernel, std::vector<FjScalar>{{.f = 2.0}}),
      std::make_shared<testing::HandKernel>("tenfold", scale_kernel, std::vector<FjScalar>{{.f = 10.0}}),
      std::make_shared<testing::HandKernel>("part", part_kernel)};
  FJ_TRY(const auto bound, testing::bind_by_hand(plan, kernels));
  return run_steps(bound->forward(), symbols, host);
}

TEST(CallPlan, PartsAreMultiplesOfAUnit) {
  CallPlan plan = two_kernels();
  for (KernelStep* step : {&std::get<KernelStep>(plan.steps[0]), &std::get<KernelStep>(plan.steps[2])}) {
    step->kernel = 2;
    step->unit = 64;
    step->grain = 65;
  }
  FakeHost host(plan);
  const int64_t n = 200;
  host.tensors[0].assign(n, 1.0f);
  ASSERT_TRUE(run(plan, &n, host).ok());
  std::vector<float> expected(128, 0.0f);
  expected.resize(n, 128.0f);
  EXPECT_EQ(host.tensors[2], expected);
  EXPECT_NE(print(plan).find("extent z0 grain 65 unit 64"), std::string::npos) << print(plan);
}

TEST(CallPlan, ArgumentsBeginAtOffsets) {
  CallPlan plan = two_kernels();
  std::get<KernelStep>(plan.steps[0]).offsets = {{0, 2 * sizeof(float)}};
  std::get<KernelStep>(plan.steps[0]).extent = {3, -1};
  FakeHost host(plan);
  const int64_t n = 5;
  host.tensors[0] = {1, 2, 3, 4, 5};
  ASSERT_TRUE(run(plan, &n, host).ok());
  EXPECT_EQ(host.tensors[2],
            (std::vector<float>{(3 * 2 + 5) * 10 + 5, (4 * 2 + 5) * 10 + 5, (5 * 2 + 5) * 10 + 5, 5, 5}));
  EXPECT_NE(print(plan).find("kernel k0(b0, b1) runs c0 offsets [0: 8]"), std::string::npos) << print(plan);
}

TEST(CallPlan, KernelsRunInOrderOverTheArena) {
  const CallPlan plan = two_kernels();
  FakeHost host(plan);
  for (int64_t n : {5, 1, 2, 64}) {
    host.tensors[0].assign(n, 1.0f);
    const auto result = run(plan, &n, host);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(host.tensors[2], std::vector<float>(n, (2.0f + n) * 10 + n));
  }
  EXPECT_EQ(host.log.substr(0, 21), "take 0 20\nallocate 2\n");
}

// Three kernels of other sizes that do not need each other; the second has no points.
CallPlan joined_kernels(int64_t grain) {
  CallPlan plan;
  plan.name = "f";
  plan.input_count = 3;
  const Size sizes[] = {{7}, {0}, {3}};
  for (uint32_t k = 0; k < 3; ++k) {
    plan.buffers.push_back(buffer(Storage::kInput, k, sizes[k]));
    plan.buffers.push_back(buffer(Storage::kTensor, 0, sizes[k]));
    plan.steps.emplace_back(AllocateStep{2 * k + 1});
  }
  for (uint32_t k = 0; k < 3; ++k) {
    KernelStep step = kernel(2 * k, 2 * k + 1, k == 2 ? 10.0 : 2.0, sizes[k]);
    step.grain = grain;
    plan.steps.emplace_back(step);
  }
  std::get<KernelStep>(plan.steps[3]).together = 3;
  return plan;
}

TEST(CallPlan, KernelsRunTogether) {
  for (int64_t grain : {0, 1, 2, 100}) {
    const CallPlan plan = joined_kernels(grain);
    FakeHost host(plan);
    host.tensors[0] = {1, 2, 3, 4, 5, 6, 7};
    host.tensors[4] = {1, 2, 3};
    ASSERT_TRUE(run(plan, nullptr, host).ok());
    EXPECT_EQ(host.tensors[1], (std::vector<float>{9, 11, 13, 15, 17, 19, 21}));
    EXPECT_EQ(host.tensors[5], (std::vector<float>{13, 23, 33}));
    EXPECT_EQ(host.regions, 1) << "for a grain of " << grain;
    EXPECT_NE(print(plan).find("extent 7" + (grain == 0 ? "" : " grain " + std::to_string(grain)) + " together 3"),
              std::string::npos)
        << print(plan);
  }
}

TEST(CallPlan, PartsOfKernelsThatRunTogetherAreMultiplesOfAUnit) {
  CallPlan plan = joined_kernels(1);
  std::get<KernelStep>(plan.steps[3]).kernel = 2;
  std::get<KernelStep>(plan.steps[3]).unit = 4;
  FakeHost host(plan);
  host.tensors[0].assign(7, 1.0f);
  host.tensors[4].assign(3, 1.0f);
  ASSERT_TRUE(run(plan, nullptr, host).ok());
  EXPECT_EQ(host.tensors[1], (std::vector<float>{0, 0, 0, 0, 4, 4, 4}));
}

TEST(CallPlan, AKernelThatFailsAmongOthers) {
  const CallPlan plan = joined_kernels(2);
  FakeHost host(plan);
  host.tensors[0].assign(7, 1.0f);
  host.tensors[4] = {1, 2, -3};
  const auto result = run(plan, nullptr, host);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().reason, Reason::kernel_check);
}

// in -> block 1 -> block 2 -> block 1, taken again -> out
CallPlan blocks_that_come_and_go() {
  CallPlan plan;
  plan.name = "f";
  plan.input_count = 1;
  const Size n{4};
  plan.buffers = {buffer(Storage::kInput, 0, n), buffer(Storage::kArena, 1, n), buffer(Storage::kArena, 2, n),
                  buffer(Storage::kArena, 1, n), buffer(Storage::kTensor, 0, n)};
  plan.buffers[3].offset = {16};
  plan.arena = {{{}, {0}}, {{}, {32}}, {{}, {16}}};
  plan.steps = {TakeStep{1},     kernel(0, 1, 2.0, n), TakeStep{2},          kernel(1, 2, 2.0, n),
                GiveStep{1},     TakeStep{1},          kernel(2, 3, 2.0, n), GiveStep{2},
                AllocateStep{4}, kernel(3, 4, 2.0, n), GiveStep{1}};
  plan.outputs = {{Output::kBuffer, 4}};
  return plan;
}

TEST(CallPlan, BlocksComeAndGo) {
  const CallPlan plan = blocks_that_come_and_go();
  FakeHost host(plan);
  host.tensors[0].assign(4, 1.0f);
  ASSERT_TRUE(run(plan, nullptr, host).ok());
  EXPECT_EQ(host.tensors[4], std::vector<float>(4, 76.0f));
  EXPECT_EQ(host.log, "take 1 32\ntake 2 16\ngive 1\ntake 1 32\ngive 2\nallocate 4\ngive 1\n");
}

TEST(CallPlan, TextOfBlocks) {
  CallPlan plan = blocks_that_come_and_go();
  plan.steps.erase(plan.steps.begin() + 4, plan.steps.end());
  EXPECT_EQ(print(plan), R"(plan @f inputs 1 symbols 0 {
  arena 0: 0 bytes
  arena 1: 32 bytes
  arena 2: 16 bytes
  b0: input 0 f32[4]
  b1: arena 1:0 f32[4]
  b2: arena 2:0 f32[4]
  b3: arena 1:16 f32[4]
  b4: tensor f32[4]
  take arena 1
  kernel k0(b0, b1) runs c0 sizes [4] extent 4 grain 2
  take arena 2
  kernel k0(b1, b2) runs c0 sizes [4] extent 4 grain 2
  return b4
}
)");
}

TEST(CallPlan, FailedKernelCheckStopsThePlan) {
  const CallPlan plan = two_kernels();
  FakeHost host(plan);
  const int64_t n = 7;
  host.tensors[0] = {1, 1, 1, 1, 1, -1, 1};
  const auto result = run(plan, &n, host);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().reason, Reason::kernel_check);
  EXPECT_EQ(result.error().message, "a check of kernel k0 failed");
  EXPECT_EQ(host.log, "take 0 28\n");
}

TEST(CallPlan, OtherStepsGoToTheHost) {
  CallPlan plan;
  plan.input_count = 1;
  plan.buffers = {buffer(Storage::kInput, 0, {3}), buffer(Storage::kTensor, 0, {3})};
  ExternStep call;
  call.op = "relu";
  plan.steps = {call, ViewStep{0, 1}, FreeStep{1}};
  FakeHost host(plan);
  EXPECT_TRUE(run(plan, nullptr, host).ok());
  EXPECT_EQ(host.log, "call relu 0\nview 0 1\nfree 1\n");
}

TEST(CallPlan, SizeProgramIsPythons) {
  CallPlan plan;
  plan.symbol_count = 1;
  plan.size_program = {{SizeOpcode::kSymbol, 0},    {SizeOpcode::kConstant, 3},  {SizeOpcode::kFloorDiv, 0, 0, 1},
                       {SizeOpcode::kMod, 0, 0, 1}, {SizeOpcode::kMin, 0, 0, 1}, {SizeOpcode::kMax, 0, 0, 1},
                       {SizeOpcode::kAdd, 0, 0, 1}};
  FakeHost host(plan);
  const int64_t symbol = -7;
  ASSERT_TRUE(run(plan, &symbol, host).ok());
  EXPECT_EQ(host.sizes, (std::vector<int64_t>{-7, 3, -3, 2, -7, 3, -4}));
}

TEST(CallPlan, SizesThatAreNoneStopThePlan) {
  CallPlan plan;
  plan.symbol_count = 2;
  plan.size_program = {{SizeOpcode::kSymbol, 0},
                       {SizeOpcode::kSymbol, 1},
                       {SizeOpcode::kMul, 0, 0, 0},
                       {SizeOpcode::kFloorDiv, 0, 0, 1}};
  FakeHost host(plan);
  for (const auto& [a, b, runs] :
       {std::tuple(int64_t{3}, int64_t{2}, true), std::tuple(int64_t{1} << 32, int64_t{2}, false),
        std::tuple(int64_t{3}, int64_t{0}, false)}) {
    const int64_t symbols[] = {a, b};
    const auto result = run(plan, symbols, host);
    ASSERT_EQ(result.ok(), runs);
    if (!runs) { EXPECT_EQ(result.error().reason, Reason::size_out_of_range); }
  }
}

TEST(CallPlan, Text) {
  CallPlan plan = two_kernels();
  ExternStep call;
  call.op = "sum.dim_IntList";
  call.args = {{BufferId{2}},
               {std::vector<Size>{{1}, {0, 0}}},
               {true},
               {None{}},
               {TorchDType{6}},
               {std::string("a\"b")},
               {2.0},
               {OpaqueSlot{1}},
               {TorchEnum{'l', 0}},
               {std::vector<BufferId>{0, kNoBuffer}}};
  call.results = {kNoBuffer};
  plan.steps.push_back(call);
  plan.steps.push_back(FreeStep{1});
  plan.updates = {{0, 2}};
  plan.buffers[0].offset = {8};
  EXPECT_EQ(print(plan), R"(plan @f inputs 1 symbols 1 {
  z0 = s0
  z1 = 4
  z2 = z0*z1
  arena 0: z2 bytes
  b0: input 0 f32[z0; 1] + 8
  b1: arena 0 f32[z0; 1]
  b2: tensor f32[z0; 1]
  kernel k0(b0, b1) runs c0 sizes [z0] extent z0 grain 2
  allocate b2
  kernel k0(b1, b2) runs c1 sizes [z0] extent z0 grain 2
  none = sum.dim_IntList(b2, [1, z0], true, none, @f32, "a\"b", 2.0, @o1, @l0, [b0, none])
  free b1
  update input 0 from b2
  return b2
}
)");
}

TEST(Arena, BlocksAreReusedAndAligned) {
  ArenaPool pool;
  ArenaPool::Block a = pool.take(1000), b = pool.take(1000);
  EXPECT_NE(a.data, b.data);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data) % 64, 0u);
  EXPECT_GE(a.bytes, 1000);
  void* const first = a.data;
  pool.give(a);
  EXPECT_GE(pool.idle_bytes(), 1000);
  EXPECT_EQ(pool.take(900).data, first);
  EXPECT_EQ(pool.idle_bytes(), 0);
  pool.give(b);
  pool.give({first, a.bytes});
  const ArenaPool::Block large = pool.take(int64_t{9} << 20);
  EXPECT_NE(large.data, nullptr);
  pool.give(large);
  pool.trim();
  EXPECT_EQ(pool.idle_bytes(), 0);
  EXPECT_EQ(pool.take(0).data, nullptr);
}

TEST(Arena, WhatLiesIdleIsGivenBackBeforeItFails) {
  ArenaPool pool;
  pool.give(pool.take(1 << 20));
  EXPECT_GT(pool.idle_bytes(), 0);
  EXPECT_THROW(pool.take(int64_t{1} << 60), std::bad_alloc);
  EXPECT_EQ(pool.idle_bytes(), 0);
  pool.give(pool.take(1000));
  EXPECT_GT(pool.idle_bytes(), 0);
}

TEST(Arena, MuchLargerBlocksStayForOthers) {
  ArenaPool pool;
  const ArenaPool::Block large = pool.take(1 << 20);
  pool.give(large);
  const ArenaPool::Block small = pool.take(1 << 18);
  EXPECT_NE(small.data, large.data);
  EXPECT_EQ(pool.take(1 << 19).data, large.data);
  pool.give(large);
  pool.give(small);
}

TEST(Arena, WhatHasBeenIdleLongestGoesFirst) {
  ArenaPool pool(300000);
  std::vector<ArenaPool::Block> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(pool.take(98304));
  for (const auto& block : blocks) pool.give(block);
  EXPECT_EQ(pool.idle_bytes(), 3 * 98304);
  std::set<void*> kept;
  for (int i = 0; i < 3; ++i) kept.insert(pool.take(98304).data);
  EXPECT_EQ(kept, (std::set<void*>{blocks[1].data, blocks[2].data, blocks[3].data}));
  for (size_t i = 1; i < 4; ++i) pool.give(blocks[i]);
}

TEST(Arena, KeepsNoMoreThanItMay) {
  const int64_t most = int64_t{1} << 30;
  ArenaPool pool(most);
  pool.give(pool.take(most + 1));
  EXPECT_EQ(pool.idle_bytes(), 0);
  const ArenaPool::Block small = pool.take(1000), half = pool.take(most / 2), other = pool.take(most / 2);
  for (const auto& block : {small, half, other}) pool.give(block);
  EXPECT_EQ(pool.idle_bytes(), most);
}

}  // namespace
}  // namespace framejit::runtime
