// One question about many adjacent sources, such as the weights of a model: pages between them, which they share with
// neighbours, may be written.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "tests/unit/runtime/watched_memory.h"

namespace framejit::runtime {
namespace {

using testing::kPage;
using testing::Memory;

// Sources of `pages` whole pages and a piece of one at either end, one after the other.
class JoinedQuestionTest : public testing::WriteWatchTest {
 protected:
  static constexpr size_t kEdge = 100;

  void watch_sources(const Memory& memory, size_t pages, size_t count) {
    memory.fill(1);
    step_ = pages + 1;
    for (size_t i = 0; i < count; ++i) {
      const WriteWatch::Answer answer =
          watch_.watch(memory.at(i * step_ + 1), pages * kPage, kPage - kEdge, i + 1 < count ? kEdge : 0);
      ASSERT_TRUE(answer.handle) << answer.why;
      handles_.push_back(answer.handle);
    }
  }
  char* inside(const Memory& memory, size_t source) const { return memory.at(source * step_ + 1); }
  char* between(const Memory& memory, size_t source) const { return memory.at(source * step_); }

  size_t step_ = 0;
  std::vector<WriteWatch::Handle> handles_;
};

TEST_F(JoinedQuestionTest, IsOneCallAndSeesEachSource) {
  constexpr size_t kSources = 300;  // more gaps than the system reports in one answer
  const Memory memory((kSources * 3 + 1) * kPage);
  watch_sources(memory, 2, kSources);
  const WriteWatch::Question question(handles_);
  EXPECT_EQ(question.calls(), 1u);
  EXPECT_FALSE(question.written());
  for (size_t i = 0; i < kSources; i += 3) *between(memory, i) = 2;
  EXPECT_FALSE(question.written()) << "what lies beside a source";
  for (const size_t source : {size_t{0}, size_t{1}, size_t{150}, kSources - 1})
    for (const size_t byte : {size_t{0}, kPage, 2 * kPage - 1}) {
      inside(memory, source)[byte] = 2;
      EXPECT_TRUE(question.written()) << source << ", byte " << byte;
      for (size_t i = 0; i < kSources; ++i) EXPECT_EQ(written(handles_[i]), i == source) << i;
      ASSERT_TRUE(watch_.arm(handles_[source]));
      EXPECT_FALSE(question.written());
    }
}

TEST_F(JoinedQuestionTest, WhateverBecomesOfASourceIsAWrite) {
  const struct {
    const char* what;
    int (*change)(void*);
  } changes[] = {
      {"dropped", [](void* at) { return madvise(at, kPage, MADV_DONTNEED); }},
      {"unmapped", [](void* at) { return munmap(at, kPage); }},
      {"mapped anew",
       [](void* at) {
         return mmap(at, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at ? 0 : 1;
       }},
      {"written in part", [](void* at) { return std::memset(at, 7, 1) == at ? 0 : 1; }},
  };
  for (const auto& change : changes) {
    const Memory memory(20 * kPage);
    handles_.clear();
    watch_sources(memory, 3, 4);
    const WriteWatch::Question question(handles_);
    ASSERT_EQ(question.calls(), 1u);
    ASSERT_FALSE(question.written());
    ASSERT_EQ(change.change(inside(memory, 2) + kPage), 0) << change.what;
    EXPECT_TRUE(question.written()) << change.what;
  }
}

TEST_F(JoinedQuestionTest, WhateverBecomesOfAGapIsNone) {
  const Memory memory(20 * kPage);
  watch_sources(memory, 3, 4);
  const WriteWatch::Question question(handles_);
  ASSERT_FALSE(question.written());
  munmap(between(memory, 1), kPage);
  mmap(between(memory, 2), kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  EXPECT_FALSE(question.written()) << "sources are asked about one by one";
  inside(memory, 3)[2 * kPage] = 2;
  EXPECT_TRUE(question.written());
}

TEST_F(JoinedQuestionTest, TheEndOfOneLeavesItsNeighbours) {
  const Memory memory(20 * kPage);
  watch_sources(memory, 3, 4);
  const std::vector<WriteWatch::Handle> rest = {handles_[0], handles_[2], handles_[3]};
  handles_.clear();
  const WriteWatch::Question question(rest);
  EXPECT_EQ(question.calls(), 2u);
  EXPECT_FALSE(question.written());
  *inside(memory, 1) = 2;
  EXPECT_FALSE(question.written());
  *inside(memory, 2) = 2;
  EXPECT_TRUE(question.written());
}

TEST_F(JoinedQuestionTest, MemoryIsLeftAsItWas) {
  const Memory memory(20 * kPage);
  memory.fill(1);
  const PageRange all = pages_around(memory.data(), memory.bytes());
  const size_t before = mappings_of(all).size();
  watch_sources(memory, 3, 4);
  handles_.clear();
  EXPECT_EQ(mappings_of(all).size(), before);
  ProtectedPages theirs;
  ASSERT_EQ(theirs.open(), "");
  EXPECT_EQ(theirs.add(all), 0) << "nobody watches it";
}

// Weights as large as those of BERT-base's linear layers, mapped side by side as torch's allocator gets them: each
// begins after the allocator's own words.
TEST_F(JoinedQuestionTest, WhatAQuestionAboutAModelCosts) {
  constexpr size_t kWords = 64;
  std::vector<size_t> sizes;
  for (int layer = 0; layer < 12; ++layer)
    for (const size_t elements : {768 * 768, 768 * 768, 768 * 768, 768 * 768, 768 * 3072, 768 * 3072})
      sizes.push_back(elements * sizeof(float));
  size_t bytes = 0;
  const auto mapped = [](size_t size) { return (size + kWords + kPage - 1) / kPage * kPage; };
  for (const size_t size : sizes) bytes += mapped(size);
  const Memory memory(bytes);
  madvise(memory.data(), bytes, MADV_NOHUGEPAGE);
  memory.fill(1);
  size_t at = 0;
  for (const size_t size : sizes) {
    const auto begin = reinterpret_cast<uintptr_t>(memory.data()) + at + kWords, end = begin + size;
    const uintptr_t first = (begin + kPage - 1) / kPage * kPage, last = end / kPage * kPage;
    handles_.push_back(watch_.watch(reinterpret_cast<void*>(first), last - first, first - begin, end - last).handle);
    ASSERT_TRUE(handles_.back());
    at += mapped(size);
  }
  const WriteWatch::Question question(handles_);
  EXPECT_EQ(question.calls(), 1u);
  double least = 1e9;
  for (int i = 0; i < 50; ++i) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(question.written());
    least =
        std::min(least, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  std::printf("%zu weights, %zu MiB: %zu calls, %.1f us\n", sizes.size(), bytes >> 20, question.calls(), least);
}

}  // namespace
}  // namespace framejit::runtime
