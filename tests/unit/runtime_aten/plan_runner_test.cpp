// tests/unit/runtime_aten/plan_runner_test.cpp — plans over torch tensors, compared with eager ops; and their cost
// besides the work itself.
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/split.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <chrono>
#include <cmath>
#include <thread>
#include <tuple>

#include "plan_fixture.h"
#include "runtime/arena.h"

namespace framejit::runtime {
namespace {

KernelStep kernel(BufferId in, BufferId out, Size extent, int64_t grain = 0) {
  KernelStep k;
  k.kernel = kAddOne;
  k.name = "add_one";
  k.buffers = {in, out};
  k.extent = extent;
  k.grain = grain;
  return k;
}

PlanBuilder one_kernel(const at::Tensor& x, int64_t grain = 0) {
  PlanBuilder b;
  const BufferId in = b.input(x), out = b.buffer(x);
  b.step(AllocateStep{out});
  b.step(kernel(in, out, {x.numel()}, grain));
  b.returns({out});
  return b;
}

TEST(PlanRunner, KernelWritesAFreshTensor) {
  const at::Tensor x = at::randn({3, 5});
  const auto out = run(one_kernel(x).runner(), {x});
  EXPECT_TRUE(at::equal(out[0], x + 1));
  EXPECT_EQ(out[0].strides(), x.strides());
  EXPECT_EQ(out[0]._version(), 0);
  EXPECT_FALSE(out[0].is_view());
}

std::tuple<at::Tensor, int64_t, at::Tensor> with_a_number(const at::Tensor& x) { return {x + 1, 7, x + 2}; }

// cuDNN's attention returns such numbers.
TEST(PlanRunner, NumbersAmongResultsHaveNoBuffer) {
  static torch::Library library(torch::Library::DEF, "framejit_test", std::nullopt, __FILE__, __LINE__);
  library.def("with_a_number", &with_a_number);
  const at::Tensor x = at::randn({3});
  PlanBuilder b;
  const BufferId in = b.input(x), first = b.buffer(x), second = b.buffer(x);
  b.call("framejit_test::with_a_number", {arg(in)}, {first, second});
  b.returns({first, second});
  const auto made = run(b.runner(), {x});
  EXPECT_TRUE(at::equal(made[0], x + 1));
  EXPECT_TRUE(at::equal(made[1], x + 2));
}

// out = saved + 1, over the saved value where that may be.
TEST(PlanRunner, ASavedValueThatNobodyElseHoldsIsWrittenOver) {
  const at::Tensor like = at::ones({5});
  PlanBuilder b;
  const BufferId saved = b.input(like), out = b.buffer(like);
  b.step(AllocateStep{out, saved});
  b.step(kernel(saved, out, {5}));
  b.returns({out});
  const PlanRunner runner = b.backward(1);
  const auto run_on = [&](at::Tensor value, bool may_overwrite) {
    ValuesBetweenPlans between{nullptr, {}, may_overwrite};
    between.saved.push_back(std::move(value));
    at::Tensor made;
    EXPECT_TRUE(runner.run(nullptr, nullptr, &made, &between).ok());
    EXPECT_TRUE(at::equal(made, like + 1));
    return made;
  };
  const auto is_over = [&](at::Tensor value, bool may_overwrite = true) {
    const void* const memory = value.const_data_ptr();
    return run_on(std::move(value), may_overwrite).const_data_ptr() == memory;
  };
  EXPECT_TRUE(is_over(at::ones({5})));
  EXPECT_FALSE(is_over(at::ones({5}), false)) << "hooks may have made it";
  EXPECT_FALSE(is_over(at::ones({9}).slice(0, 2, 7))) << "a part of other memory";
  std::vector<float> theirs(5, 1.0f);
  EXPECT_FALSE(is_over(at::from_blob(theirs.data(), {5}))) << "memory of the program";
  EXPECT_EQ(theirs, std::vector<float>(5, 1.0f));
  for (const at::Tensor& kept : {at::ones({5}), at::ones({5}).view({5})}) {
    EXPECT_FALSE(is_over(kept)) << "kept for another backward";
    EXPECT_FALSE(is_over(kept.detach())) << "shown by another tensor";
    EXPECT_TRUE(at::equal(kept, like));
  }
}

TEST(PlanRunner, ParallelKernelCoversTheRange) {
  const at::Tensor x = at::randn({1000003});
  EXPECT_TRUE(at::equal(run(one_kernel(x, 1000).runner(), {x})[0], x + 1));
}

TEST(PlanRunner, SliceOfAnInputStartsAtItsOwnElement) {
  const at::Tensor all = at::randn({6, 4});
  const PlanRunner runner = one_kernel(all.slice(0, 0, 2)).runner();
  for (int64_t i = 0; i < 5; ++i)
    EXPECT_TRUE(at::equal(run(runner, {all.slice(0, i, i + 2)})[0], all.slice(0, i, i + 2) + 1));
}

TEST(PlanRunner, ArenaAndSymbolicSizes) {
  PlanBuilder b;
  const at::Tensor like = at::ones({4});
  b.plan().symbol_count = 1;
  b.plan().size_program = {{SizeOpcode::kSymbol, 0}, {SizeOpcode::kConstant, 4}, {SizeOpcode::kMul, 0, 0, 1}};
  b.plan().arena = {{{}, {0, 2}}};
  const Size n{0, 0};
  const BufferId in = b.input(like), scratch = b.buffer(like), out = b.buffer(like);
  b.plan().buffers[scratch].storage = Storage::kArena;
  for (BufferId buffer : {in, scratch, out}) b.plan().buffers[buffer].sizes = {n};
  b.step(kernel(in, scratch, n));
  b.step(AllocateStep{out});
  b.step(kernel(scratch, out, n));
  const BufferId sum = b.call("sum", {arg(scratch), none()});
  b.returns({out, sum});
  const PlanRunner runner = b.runner();
  for (int64_t size : {7, 3, 100}) {
    const at::Tensor x = at::randn({size});
    const auto outputs = run(runner, {x}, {size});
    EXPECT_TRUE(at::equal(outputs[0], x + 1 + 1));
    EXPECT_TRUE(at::equal(outputs[1], at::sum(x + 1)));
  }
}

TEST(PlanRunner, ExternArgumentsOfEveryKind) {
  const at::Tensor x = at::randn({4, 6}), y = at::randn({4, 6}), w = at::ones({6}), i = at::full({3}, 2, at::kLong);
  PlanBuilder b;
  const BufferId bx = b.input(x), by = b.input(y), bw = b.input(w), bi = b.input(i);
  b.plan().symbol_count = 1;
  b.plan().size_program = {{SizeOpcode::kSymbol, 0}};
  const BufferId add = b.call("add.Tensor", {arg(bx), arg(by), integer(2)});
  const BufferId half = b.call("mul.Tensor", {arg(add), arg(by)});
  const BufferId scalar = b.call("add.Scalar", {arg(half), {0.5}, integer(1)});
  const BufferId clamped = b.call("clamp", {arg(scalar), none(), {1.5}});
  const BufferId cat = b.call("cat", {{std::vector<BufferId>{bx, clamped}}, integer(1)});
  const BufferId index = b.call("index.Tensor", {arg(cat), {std::vector<BufferId>{kNoBuffer, bi}}});
  const BufferId cast = b.call("_to_copy", {arg(index), {TorchDType{7}}});
  const BufferId norm = b.result(), mean = b.result();
  b.call("native_layer_norm", {arg(bx), integers({6}), arg(bw), none(), {1e-5}}, {norm, mean, kNoBuffer});
  const BufferId left = b.result(), right = b.result();
  b.call("split.Tensor", {arg(bx), integer(3), integer(1)}, {left, right});
  std::get<ExternStep>(b.plan().steps.back()).result_lists = {2};
  const BufferId view = b.call("view", {arg(bx), {std::vector<Size>{{0, 0}, {3}}}});
  const BufferId total = b.call("sum.dim_IntList", {arg(bx), integers({}), {true}, none()});
  const BufferId gelu = b.call("gelu", {arg(bx), {std::string("tanh")}});
  const BufferId dropped = b.call("bernoulli.p", {arg(bx), integer(1), {OpaqueSlot{0}}});
  b.returns({cast, norm, mean, left, right, view, total, gelu, dropped});
  const auto out = run(b.runner({}, {c10::IValue()}), {x, y, w, i}, {8});

  const at::Tensor want = at::cat(std::vector<at::Tensor>{x, at::clamp((x + 2 * y) * y + 0.5, std::nullopt, 1.5)}, 1);
  EXPECT_TRUE(at::equal(out[0], at::index(want, {std::nullopt, i}).to(at::kDouble)));
  const auto [n, m, r] = at::native_layer_norm(x, {6}, w, std::nullopt, 1e-5);
  EXPECT_TRUE(at::equal(out[1], n) && at::equal(out[2], m));
  EXPECT_TRUE(at::equal(out[3], x.slice(1, 0, 3)) && at::equal(out[4], x.slice(1, 3, 6)));
  EXPECT_TRUE(at::equal(out[5], x.view({8, 3})));
  EXPECT_TRUE(at::equal(out[6], at::sum(x, at::IntArrayRef({0, 1}), true)));
  EXPECT_EQ(out[7].sizes(), x.sizes());
  EXPECT_TRUE(at::equal(out[8], at::ones({4, 6})));
}

TEST(PlanRunner, UnknownOperatorIsRefused) {
  PlanBuilder b;
  b.call("no_such_op", {});
  EXPECT_THROW(b.runner(), InternalError);
  PlanBuilder c;
  c.call("mm", {arg(c.input(at::ones({2, 2})))});
  EXPECT_THROW(c.runner(), InternalError);
}

TEST(PlanRunner, AResultOfAnotherDtypeThanPlannedIsRefused) {
  const at::Tensor x = at::ones({3});
  PlanBuilder b;
  const BufferId in = b.input(x), out = b.buffer(x);
  b.call("_to_copy", {arg(in), {TorchDType{7}}}, {out});
  b.returns({out});
  const PlanRunner runner = b.runner();
  EXPECT_THROW((void)run(runner, {x}), InternalError);
}

TEST(PlanRunner, ReturnedViewsAreViewsToTorch) {
  const at::Tensor all = at::randn({5, 4, 6});
  const at::Tensor x = all.select(0, 2);
  PlanBuilder b;
  const BufferId in = b.input(x);
  const BufferId transposed = b.call("transpose.int", {arg(in), integer(0), integer(1)});
  const BufferId chained = b.call("slice.Tensor", {arg(transposed), integer(0), integer(1), integer(4), integer(1)});
  const BufferId strided = b.buffer(x.slice(1, 2, 4));
  b.step(ViewStep{in, strided});
  b.returns({chained, strided});
  b.plan().outputs.push_back({Output::kInput, 0});
  const auto out = run(b.runner(), {x});
  EXPECT_TRUE(at::equal(out[0], x.t().slice(0, 1, 4)));
  EXPECT_TRUE(at::equal(out[1], x.slice(1, 2, 4)));
  for (int i : {0, 1}) {
    EXPECT_TRUE(out[i].is_view());
    EXPECT_TRUE(out[i]._base().is_same(all));
    EXPECT_TRUE(out[i].storage().is_alias_of(all.storage()));
  }
  EXPECT_TRUE(out[2].is_same(x));
  const int64_t version = all._version();
  out[1].add_(1);
  EXPECT_EQ(all._version(), version + 1);
  // If the argument is another part of the same tensor, the view moves along.
  const at::Tensor other = all.select(0, 4);
  EXPECT_TRUE(at::equal(run(b.runner(), {other})[1], other.slice(1, 2, 4)));
}

TEST(PlanRunner, ViewOfAFreshResultHasItAsBase) {
  const at::Tensor x = at::randn({4, 6});
  PlanBuilder b;
  const BufferId in = b.input(x), fresh = b.buffer(x);
  b.step(AllocateStep{fresh});
  b.step(kernel(in, fresh, {24}));
  const BufferId row = b.call("select.int", {arg(fresh), integer(0), integer(1)});
  const BufferId inner = b.buffer(x.slice(0, 1, 3));
  b.step(ViewStep{fresh, inner});
  const BufferId used = b.call("neg", {arg(inner)});
  b.returns({fresh, row, used});
  const auto out = run(b.runner(), {x});
  EXPECT_TRUE(out[1]._base().is_same(out[0]));
  EXPECT_TRUE(at::equal(out[2], -(x + 1).slice(0, 1, 3)));
  EXPECT_FALSE(out[2].is_view());
}

TEST(PlanRunner, WritesComeLastAndBumpVersions) {
  at::Tensor x = at::zeros({3}), y = at::ones({3});
  const int64_t x_version = x._version(), y_version = y._version();
  PlanBuilder b;
  const BufferId bx = b.input(x), by = b.input(y);
  const BufferId sum = b.call("add.Tensor", {arg(bx), arg(by), integer(1)});
  b.returns({sum});
  b.plan().updates = {{0, by}, {1, bx}};  // a swap
  const PlanRunner runner = b.runner();
  EXPECT_TRUE(at::equal(run(runner, {x, y})[0], at::ones({3})));
  EXPECT_TRUE(at::equal(x, at::ones({3})) && at::equal(y, at::zeros({3})));
  EXPECT_EQ(x._version(), x_version + 1);
  EXPECT_EQ(y._version(), y_version + 1);
}

TEST(PlanRunner, UpdateByAViewOfTheInputItself) {
  at::Tensor x = at::randn({4, 4});
  const at::Tensor want = x.t().clone();
  PlanBuilder b;
  const BufferId bx = b.input(x);
  b.plan().updates = {{0, b.call("t", {arg(bx)})}};
  run(b.runner(), {x});
  EXPECT_TRUE(at::equal(x, want));
}

TEST(PlanRunner, InPlaceOperatorBumpsTheVersion) {
  at::Tensor x = at::zeros({3});
  const int64_t version = x._version();
  PlanBuilder b;
  b.returns({b.call("add_.Scalar", {arg(b.input(x)), integer(2), integer(1)})});
  const auto out = run(b.runner(), {x});
  EXPECT_TRUE(out[0].is_same(x));
  EXPECT_EQ(x._version(), version + 1);
  EXPECT_TRUE(at::equal(x, at::full({3}, 2.0)));
}

TEST(PlanRunner, TimedRunsWriteNothing) {
  at::Tensor x = at::randn({300, 300}), y = at::ones({300, 300});
  const at::Tensor before = x.clone();
  const int64_t version = x._version();
  PlanBuilder b;
  const BufferId bx = b.input(x), by = b.input(y);
  const BufferId product = b.call("mm", {arg(bx), arg(by)});
  const BufferId sum = b.call("add.Tensor", {arg(product), arg(by), integer(1)});
  b.returns({sum});
  b.plan().updates = {{0, sum}};
  const PlanRunner runner = b.runner();
  const at::Tensor* const inputs[] = {&x, &y};
  const auto start = std::chrono::steady_clock::now();
  const auto timed = runner.seconds(inputs, nullptr, 60);
  const double around = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ASSERT_TRUE(timed.ok());
  EXPECT_GT(timed.value(), 0);
  EXPECT_LE(timed.value(), around);
  EXPECT_TRUE(std::isinf(runner.seconds(inputs, nullptr, 0).value())) << "it is given up before the first operator";
  const at::Tensor wrong = at::ones({2});
  const at::Tensor* const failing_inputs[] = {&x, &wrong};
  EXPECT_THROW((void)runner.seconds(failing_inputs, nullptr, 60), c10::Error);
  EXPECT_TRUE(at::equal(x, before));
  EXPECT_EQ(x._version(), version);
  EXPECT_TRUE(at::allclose(run(runner, {x, y})[0], at::mm(before, y) + 1))
      << "and the next run has all the time there is";

  PlanBuilder check = one_kernel(x);
  std::get<KernelStep>(check.plan().steps[1]).kernel = kFailing;
  EXPECT_EQ(check.runner().seconds(inputs, nullptr, 60).error().reason, Reason::kernel_check);
}

TEST(PlanRunner, FailureWritesNothingAndTheNextRunWorks) {
  at::Tensor x = at::zeros({3}), y = at::ones({3});
  const int64_t version = x._version();
  PlanBuilder b;
  const BufferId bx = b.input(x), by = b.input(y);
  b.plan().updates = {{0, b.call("add.Tensor", {arg(bx), arg(by), integer(1)})}};
  const PlanRunner runner = b.runner();
  const at::Tensor wrong = at::ones({2});
  const at::Tensor* const inputs[] = {&x, &wrong};
  EXPECT_THROW((void)runner.run(inputs, nullptr, nullptr), c10::Error);
  EXPECT_EQ(x._version(), version);
  run(runner, {x, y});
  EXPECT_TRUE(at::equal(x, at::ones({3})));

  PlanBuilder check = one_kernel(x);
  std::get<KernelStep>(check.plan().steps[1]).kernel = kFailing;
  check.plan().updates = {{0, 1}};
  at::Tensor out;
  EXPECT_EQ(check.runner().run(inputs, nullptr, &out).error().reason, Reason::kernel_check);
  EXPECT_EQ(x._version(), version + 1);
}

TEST(PlanRunner, RefusesToWriteAnInferenceTensorOutsideOfInferenceMode) {
  const at::Tensor y = at::ones({3});
  at::Tensor x;
  {
    const c10::InferenceMode mode;
    x = at::zeros({3});
  }
  PlanBuilder b;
  const BufferId bx = b.input(x), by = b.input(y);
  b.plan().updates = {{0, b.call("add.Tensor", {arg(bx), arg(by), integer(1)})}};
  const PlanRunner runner = b.runner();
  const at::Tensor* const inputs[] = {&x, &y};
  EXPECT_EQ(runner.run(inputs, nullptr, nullptr).error().reason, Reason::inference_tensor);
  EXPECT_TRUE(at::equal(x, at::zeros({3})));
  const c10::InferenceMode mode;
  run(runner, {x, y});
  EXPECT_TRUE(at::equal(x, y));
}

// in + 1 in block 1, then a library call, then the same in block 2 with block 1 taken again.
TEST(PlanRunner, BlocksGoBackHoweverACallEnds) {
  const at::Tensor x = at::randn({5000}), y = at::randn({5000}), wrong = at::randn({4999});
  const Size n{5000}, bytes{20000};
  PlanBuilder b;
  const BufferId in = b.input(x), other = b.input(y), first = b.buffer(x), second = b.buffer(x), again = b.buffer(x),
                 out = b.buffer(x);
  b.plan().buffers[first].storage = b.plan().buffers[second].storage = b.plan().buffers[again].storage =
      Storage::kArena;
  b.plan().buffers[first].index = b.plan().buffers[again].index = 1;
  b.plan().buffers[second].index = 2;
  b.plan().arena = {{{}, {0}}, {{}, bytes}, {{}, bytes}};
  b.step(TakeStep{1});
  b.step(kernel(in, first, n));
  b.step(TakeStep{2});
  const BufferId sum = b.call("add.Tensor", {arg(first), arg(other), integer(1)});
  b.step(kernel(first, second, n));
  b.step(GiveStep{1});
  b.step(TakeStep{1});
  b.step(kernel(second, again, n));
  b.step(AllocateStep{out});
  b.step(kernel(again, out, n));
  b.returns({sum, out});
  const PlanRunner runner = b.runner();
  (void)run(runner, {x, y});
  const int64_t idle = ArenaPool::cpu().idle_bytes();
  EXPECT_GE(idle, 2 * bytes.constant);
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto outputs = run(runner, {x, y});
    EXPECT_TRUE(at::equal(outputs[0], (x + 1) + y) && at::equal(outputs[1], x + 1 + 1 + 1 + 1));
    EXPECT_EQ(ArenaPool::cpu().idle_bytes(), idle);
    const at::Tensor* const inputs[] = {&x, &wrong};
    EXPECT_THROW((void)runner.run(inputs, nullptr, nullptr), c10::Error);
    EXPECT_EQ(ArenaPool::cpu().idle_bytes(), idle);
  }
}

TEST(PlanRunner, LargeResultsLieInBlocksOfThePool) {
  const at::Tensor x = at::randn({1 << 19});
  PlanBuilder b;
  const BufferId in = b.input(x), out = b.buffer(x);
  b.step(AllocateStep{out});
  b.step(kernel(in, out, Size{1 << 19}));
  b.returns({out});
  const PlanRunner runner = b.runner();
  at::Tensor first = run(runner, {x})[0], view = first.narrow(0, 5, 7);
  const void* const data = first.const_data_ptr();
  const int64_t idle = ArenaPool::cpu().idle_bytes();
  first.reset();
  EXPECT_EQ(ArenaPool::cpu().idle_bytes(), idle);  // a view holds it
  EXPECT_TRUE(at::equal(view, (x + 1).narrow(0, 5, 7)));
  view.reset();
  EXPECT_GE(ArenaPool::cpu().idle_bytes(), idle + (2 << 20));
  EXPECT_EQ(run(runner, {x})[0].const_data_ptr(), data);
  at::Tensor grown = run(runner, {x})[0];
  grown.resize_({1 << 20}).fill_(1);  // by torch, which asks the allocator that the memory came from
  grown.resize_({3}).resize_({1 << 21}).fill_(2);
  EXPECT_TRUE(at::equal(grown, at::full({1 << 21}, 2.0F)));
}

TEST(PlanRunner, ModesOfTheThreadDecideWhatOutputsAre) {
  const at::Tensor x = at::randn({3}), leaf = at::randn({3}).requires_grad_();
  const PlanRunner runner = one_kernel(x).runner();
  PlanBuilder b;
  b.returns({b.call("relu", {arg(b.input(x))})});
  const PlanRunner relu = b.runner();
  EXPECT_FALSE(run(relu, {leaf})[0].requires_grad());
  EXPECT_FALSE(run(runner, {x})[0].is_inference());
  {
    const c10::InferenceMode mode;
    EXPECT_TRUE(run(runner, {x})[0].is_inference());
    EXPECT_TRUE(run(relu, {x})[0].is_inference());
  }
  {  // the recorded ops have their casts already
    PlanBuilder m;
    const at::Tensor a = at::randn({2, 2});
    m.returns({m.call("mm", {arg(m.input(a)), arg(m.input(a))})});
    const c10::impl::IncludeDispatchKeyGuard autocast(c10::DispatchKey::AutocastCPU);
    EXPECT_EQ(run(m.runner(), {a, a})[0].scalar_type(), at::kFloat);
  }
}

TEST(PlanRunner, ThreadsShareARunner) {
  const at::Tensor x = at::randn({512});
  PlanBuilder b;
  const BufferId in = b.input(x), mid = b.buffer(x);
  b.step(AllocateStep{mid});
  b.step(kernel(in, mid, {512}));
  b.returns({b.call("add.Tensor", {arg(mid), arg(in), integer(1)})});
  const PlanRunner runner = b.runner();
  const at::Tensor want = x + 1 + x;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        at::Tensor out;
        const at::Tensor* const input = &x;
        if (!runner.run(&input, nullptr, &out).ok() || !at::equal(out, want)) ++wrong;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace framejit::runtime
