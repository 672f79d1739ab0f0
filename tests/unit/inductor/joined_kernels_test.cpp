// tests/unit/inductor/joined_kernels_test.cpp — which kernels of a plan run together.
#include "inductor/joined_kernels.h"

#include <gtest/gtest.h>

#include <string>

namespace framejit::inductor {
namespace {

using runtime::AllocateStep;
using runtime::Buffer;
using runtime::BufferId;
using runtime::CallPlan;
using runtime::FreeStep;
using runtime::KernelStep;
using runtime::Storage;
using runtime::ViewStep;

class JoinedKernels : public ::testing::Test {
 protected:
  BufferId buffer(Storage storage, uint32_t index = 0, runtime::Size offset = {0}) {
    Buffer b;
    b.storage = storage;
    b.index = index;
    b.sizes = {{4}};
    b.strides = {{1}};
    b.offset = offset;
    plan_.buffers.push_back(b);
    return static_cast<BufferId>(plan_.buffers.size() - 1);
  }
  KernelStep& kernel(std::vector<BufferId> reads, std::vector<BufferId> writes, bool may_fail = false) {
    KernelStep step;
    KernelTraits traits{may_fail, std::vector<bool>(reads.size(), false)};
    traits.is_written.resize(reads.size() + writes.size(), true);
    step.buffers = std::move(reads);
    step.buffers.insert(step.buffers.end(), writes.begin(), writes.end());
    traits_.push_back(traits);
    return std::get<KernelStep>(plan_.steps.emplace_back(step));
  }
  // How many kernels run together, group by group; other steps are named.
  std::string joined() {
    join_kernels(plan_, traits_);
    std::string out;
    for (size_t s = 0; s < plan_.steps.size(); ++s) {
      out += out.empty() ? "" : " ";
      if (const auto* step = std::get_if<KernelStep>(&plan_.steps[s])) {
        out += std::to_string(step->together);
        s += step->together - 1;
      } else {
        out += std::holds_alternative<AllocateStep>(plan_.steps[s]) ? "allocate" : "other";
      }
    }
    return out;
  }
  CallPlan plan_;
  std::vector<KernelTraits> traits_;
};

TEST_F(JoinedKernels, OfInputs) {
  const BufferId a = buffer(Storage::kInput, 0), b = buffer(Storage::kInput, 1), c = buffer(Storage::kInput, 2);
  kernel({c}, {a});
  kernel({c}, {b});
  EXPECT_EQ(joined(), "2");
}

TEST_F(JoinedKernels, WhatOneNeedsOfAnother) {
  const BufferId a = buffer(Storage::kInput, 0), b = buffer(Storage::kInput, 1), c = buffer(Storage::kInput, 2);
  kernel({a}, {b});
  kernel({b}, {c});  // reads what was written
  kernel({a}, {b});  // writes what was read
  kernel({c}, {b});  // writes what was written
  EXPECT_EQ(joined(), "1 1 1 1");
}

TEST_F(JoinedKernels, OfOneInputUnderTwoNumbers) {
  const BufferId a = buffer(Storage::kInput, 0), same = buffer(Storage::kInput, 0);
  kernel({}, {a});
  kernel({same}, {});
  EXPECT_EQ(joined(), "1 1");
}

TEST_F(JoinedKernels, Allocations) {
  const BufferId a = buffer(Storage::kTensor), b = buffer(Storage::kTensor), c = buffer(Storage::kTensor);
  plan_.steps.emplace_back(AllocateStep{a});
  kernel({}, {a});
  plan_.steps.emplace_back(AllocateStep{b});
  kernel({}, {b});
  plan_.steps.emplace_back(FreeStep{a});
  plan_.steps.emplace_back(AllocateStep{c});
  kernel({}, {c});
  EXPECT_EQ(joined(), "allocate allocate 2 other allocate 1");
}

TEST_F(JoinedKernels, Views) {
  const BufferId a = buffer(Storage::kTensor), view = buffer(Storage::kTensor), b = buffer(Storage::kTensor);
  plan_.steps.emplace_back(ViewStep{a, view});
  kernel({}, {a});
  kernel({}, {b});
  kernel({view}, {});
  EXPECT_EQ(joined(), "other 2 1");
}

TEST_F(JoinedKernels, RangesOfTheArena) {
  const BufferId low = buffer(Storage::kArena, 0, {0}), high = buffer(Storage::kArena, 0, {16}),
                 middle = buffer(Storage::kArena, 0, {8}), other = buffer(Storage::kArena, 1, {0}),
                 unknown = buffer(Storage::kArena, 0, {0, 3});
  kernel({}, {low});
  kernel({}, {high});
  kernel({}, {other});
  kernel({middle}, {});
  kernel({low, high}, {});
  kernel({}, {unknown});
  EXPECT_EQ(joined(), "3 2 1");
}

TEST_F(JoinedKernels, KernelsThatMayFail) {
  const BufferId a = buffer(Storage::kInput, 0), b = buffer(Storage::kInput, 1), c = buffer(Storage::kInput, 2),
                 d = buffer(Storage::kInput, 3), made = buffer(Storage::kTensor);
  kernel({}, {a});
  kernel({d}, {}, /*may_fail=*/true);  // a has been written by then
  kernel({d}, {made}, /*may_fail=*/true);
  kernel({}, {b});
  kernel({}, {c});
  EXPECT_EQ(joined(), "1 2 2");
}

}  // namespace
}  // namespace framejit::inductor
