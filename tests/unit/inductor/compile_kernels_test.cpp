// Kernels of one plan on two threads: each compiled once, errors in order, defects thrown where the plan is made.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "inductor/compile_kernels.h"
#include "inductor/cpu/jit.h"
#include "inductor/kernel/weak_cache.h"
#include "inductor/loop/nest_builder.h"
#include "runtime/base/log.h"
#include "tests/unit/not_tested.h"

namespace framejit::inductor {
namespace {

// y[i] = x[i] + number
Kernel adding(double number) {
  NestBuilder b(0, "n", {SymExpr(64)});
  b.store(1, {b.dim(0)},
          b.scalar(ScalarOp::k_add, {b.load(0, DType::kFloat32, {b.dim(0)}), b.constant(number, DType::kFloat32)}));
  Kernel kernel;
  kernel.buffers = {{0, DType::kFloat32, false, false, 0}, {1, DType::kFloat32, true, false, 0}};
  kernel.is_flat = true;
  kernel.extent = 64;
  kernel.nests.push_back({b.build(), {0}, 0});
  return kernel;
}

TEST(CompileKernels, EachOnceAndInPlace) {
  auto jit = CpuJit::create();
  ASSERT_TRUE(jit.ok());
  std::vector<Kernel> kernels;
  for (int k = 0; k < 24; ++k)
    kernels.push_back(k % 6 == 5 ? Kernel{} : adding(k % 6));  // every sixth step is not a kernel
  std::vector<CompiledKernel> compiled;
  ASSERT_TRUE(compile_kernels(kernels, *jit.value(), compiled).ok());
  EXPECT_EQ(jit.value()->statistics().kernels, 5);
  EXPECT_EQ(jit.value()->statistics().reused, 15);
  for (size_t k = 0; k < kernels.size(); ++k) {
    if (k % 6 == 5) {
      EXPECT_EQ(compiled[k].code, nullptr);
      continue;
    }
    float x[64] = {1.5f}, y[64] = {};
    void* buffers[2] = {x, y};
    const runtime::LoadedKernel loaded = jit.value()->load(compiled[k].code, {}).take();
    ASSERT_EQ(loaded.function(buffers, nullptr, nullptr, 0, 64), 0);
    EXPECT_EQ(y[0], 1.5f + static_cast<float>(k % 6));
  }
}

TEST(CpuJit, WhatLlvmReportsIsAnError) {
  auto jit = CpuJit::create();
  ASSERT_TRUE(jit.ok());
  EXPECT_TRUE(jit.value()->try_features("").ok());
  const auto refused = jit.value()->try_features("-sse,-sse2");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, Reason::code_generation);
  EXPECT_NE(refused.error().message.find("SSE register return with SSE disabled"), std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(jit.value()->try_features("").ok());  // the refused kernel's target machine is used again
}

TEST(CompileKernels, OneTargetForManyThreads) {
  auto jit = CpuJit::create();
  ASSERT_TRUE(jit.ok());
  std::vector<std::thread> threads;
  std::vector<int> good(4, 0);
  for (size_t t = 0; t < good.size(); ++t)
    threads.emplace_back([&, t] {
      for (int k = 0; k < 20; ++k) good[t] += jit.value()->compile(adding(static_cast<double>(t) * 100 + k)).ok();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, std::vector<int>(4, 20));
}

// Refuses kernels by the number that they add: 2 is a defect, others from 1 on are errors.
class Refusing : public KernelTarget {
 public:
  const TargetInfo& info() const override { return info_; }
  Result<CompiledKernel> compile(const Kernel& kernel) override {
    const double number = kernel.nests[0].nest.body[1].constant.f;
    if (number == 2) throw std::runtime_error("a defect");
    if (number >= 1) return Error{Reason::code_generation, std::to_string(static_cast<int>(number))};
    return CompiledKernel{};
  }
  Result<runtime::LoadedKernel> load(const std::shared_ptr<const runtime::KernelCode>&, runtime::DeviceId) override {
    return runtime::LoadedKernel{};
  }
  Result<std::vector<KernelText>> texts(const Kernel&, bool) override { return std::vector<KernelText>{}; }
  TargetStatistics statistics() const override { return {}; }
  int64_t most_compiling_threads() const override { return 2; }

 private:
  const TargetInfo info_ = reference_target();  // of two cores
};

// Logs from its compile(), and waits there until another thread has arrived too.
class Speaking : public Refusing {
 public:
  Result<CompiledKernel> compile(const Kernel&) override {
    log::emit(log::Kind::Stage, "kernel", {{"stage", "compile"}, {"milliseconds", "0"}});
    ++inside_;
    for (int i = 0; i < 60000 && inside_ < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return CompiledKernel{};
  }

 private:
  std::atomic<int> inside_ = 0;
};

// Three threads meet in its compile().
class Crowded : public Refusing {
 public:
  Crowded() { info_.cores = 4; }
  const TargetInfo& info() const override { return info_; }
  int64_t most_compiling_threads() const override { return 3; }
  Result<CompiledKernel> compile(const Kernel&) override {
    ++inside_;
    for (int i = 0; i < 60000 && inside_ < 3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return CompiledKernel{};
  }
  int inside() const { return inside_; }

 private:
  TargetInfo info_ = reference_target();
  std::atomic<int> inside_ = 0;
};

TEST(CompileKernels, AsManyThreadsAsTheTargetAllows) {
  Crowded target;
  std::vector<CompiledKernel> compiled;
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(compile_kernels({adding(0), adding(0.25), adding(0.5)}, target, compiled).ok());
  EXPECT_EQ(target.inside(), 3);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50)) << "they came one by one";
}

TEST(CompileKernels, EveryThreadLogsUnderTheCompilesId) {
  if (std::thread::hardware_concurrency() < 2) FJ_NOT_TESTED_HERE("compiles on two threads: there is one processor");
  std::mutex mutex;
  std::set<std::string> ids;
  std::set<std::thread::id> threads;
  const uint64_t listener = log::add_listener([&](const log::Event& event) {
    const std::lock_guard lock(mutex);
    ids.insert(event.id);
    threads.insert(std::this_thread::get_id());
  });
  Speaking target;
  std::vector<CompiledKernel> compiled;
  const log::CompileScope scope("7.2");
  ASSERT_TRUE(compile_kernels({adding(0), adding(1)}, target, compiled).ok());
  log::remove_listener(listener);
  EXPECT_EQ(ids, std::set<std::string>{"7.2"});
  EXPECT_EQ(threads.size(), 2u);
}

TEST(CompileKernels, TheFirstErrorInOrderCounts) {
  Refusing target;
  std::vector<CompiledKernel> compiled;
  const auto error = compile_kernels({adding(0), adding(3), adding(1), adding(4)}, target, compiled);
  ASSERT_FALSE(error.ok());
  EXPECT_EQ(error.error().message, "3");
  EXPECT_THROW((void)compile_kernels({adding(0), adding(2), adding(1)}, target, compiled), std::runtime_error);
}

TEST(WeakCache, KeepsWhatIsUsedAndForgetsTheRest) {
  WeakCache<int> cache;
  const auto kept = std::make_shared<int>(7);
  const auto id = [](const std::string& text) { return runtime::content_id("hand", text); };
  cache.insert(id("kept"), kept);
  for (int i = 0; i < 1000; ++i) cache.insert(id(std::to_string(i)), std::make_shared<int>(i));
  EXPECT_EQ(cache.find(id("kept")), kept);
  EXPECT_EQ(cache.find(id("999")), nullptr);
  EXPECT_EQ(cache.find(id("never")), nullptr);
  EXPECT_LE(cache.size(), 200u);
}

}  // namespace
}  // namespace framejit::inductor
