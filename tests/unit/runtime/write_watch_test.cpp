// The write watch: every kind of write is seen, memory that others can write is never trusted, and anything else that
// happens to watched memory counts as a write.
#include <sys/syscall.h>
#include <sys/uio.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "runtime/huge_pages.h"
#include "tests/unit/runtime/watched_memory.h"

namespace framejit::runtime {
namespace {

using testing::File;
using testing::kPage;
using testing::Memory;
using testing::WriteWatchTest;
using NotWatched = WriteWatch::NotWatched;

TEST_F(WriteWatchTest, EveryKindOfWriteIsSeen) {
  const Memory memory(64 * kPage);
  memory.fill(1);
  const File zeros(kPage, '\0');
  char* const target = memory.at(33) + 5;
  const struct {
    const char* what;
    std::function<void()> write;
  } kinds[] = {
      {"a store", [&] { *target = 2; }},
      {"the same value again", [&] { *const_cast<volatile char*>(target) = *target; }},
      {"read(2)", [&] { EXPECT_EQ(read(zeros.fd(), target, 3), 3); }},
      {"pread(2)", [&] { EXPECT_EQ(pread(zeros.fd(), target, 3, 0), 3); }},
      {"another thread", [&] { std::thread([&] { *target = 3; }).join(); }},
      {"process_vm_writev",
       [&] {
         char value = 4;
         const iovec from{&value, 1}, to{target, 1};
         EXPECT_EQ(process_vm_writev(getpid(), &from, 1, &to, 1, 0), 1);
       }},
      {"/proc/self/mem",
       [&] {
         const int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
         EXPECT_EQ(pwrite(mem, "5", 1, static_cast<off_t>(reinterpret_cast<uintptr_t>(target))), 1);
         close(mem);
       }},
      {"the first page", [&] { *memory.at(0) = 6; }},
      {"the last byte", [&] { memory.data()[memory.bytes() - 1] = 7; }},
  };
  const auto handle = watch(memory);
  const WriteWatch::Question question({handle});
  for (const auto& kind : kinds) {
    EXPECT_FALSE(written(handle)) << "before " << kind.what;
    EXPECT_FALSE(question.written()) << "before " << kind.what;
    kind.write();
    EXPECT_TRUE(written(handle)) << kind.what;
    EXPECT_TRUE(question.written()) << kind.what << ", asked again";
    ASSERT_TRUE(watch_.arm(handle));
  }
  lseek(zeros.fd(), 0, SEEK_SET);
  EXPECT_EQ(write(zeros.fd(), memory.data(), memory.bytes()), static_cast<ssize_t>(memory.bytes()));
  EXPECT_EQ(mprotect(memory.data(), memory.bytes(), PROT_READ), 0);
  EXPECT_EQ(mprotect(memory.data(), memory.bytes(), PROT_READ | PROT_WRITE), 0);
  EXPECT_FALSE(written(handle)) << "it was read, and could not be written for a while";
  *target = 8;
  EXPECT_TRUE(written(handle));
}

TEST_F(WriteWatchTest, RangesAreWholePages) {
  const Memory memory(8 * kPage);
  memory.fill(1);
  const auto handle = watch(memory.at(2) + 100, 2 * kPage);  // pages 2 to 4
  *memory.at(1) = *memory.at(5) = 2;
  EXPECT_FALSE(written(handle));
  *memory.at(4) = 2;
  EXPECT_TRUE(written(handle)) << "a neighbour in its page";
}

TEST_F(WriteWatchTest, QuestionsAboutNothing) {
  const Memory memory(kPage);
  EXPECT_FALSE(WriteWatch::Question().written());
  EXPECT_FALSE(watch_.written({}));
  EXPECT_TRUE(watch_.written({nullptr})) << "what was refused";
  EXPECT_FALSE(watch_.arm(nullptr));
  EXPECT_EQ(not_watched(memory.data(), 0), NotWatched::kFailed);
  EXPECT_EQ(not_watched(nullptr, 8), NotWatched::kFailed);
  EXPECT_EQ(not_watched(memory.data(), ~size_t{0}), NotWatched::kFailed);
  const Memory gap(4 * kPage);
  munmap(gap.at(2), kPage);
  const WriteWatch::Answer answer = watch_.watch(gap.data(), gap.bytes());
  EXPECT_EQ(answer.reason, NotWatched::kFailed);
  EXPECT_NE(answer.why.find("it is not mapped"), std::string::npos) << answer.why;
}

TEST_F(WriteWatchTest, PagesThatNobodyHasTouched) {
  const Memory memory(size_t{8} << 20);
  const auto handle = watch(memory);
  EXPECT_FALSE(written(handle));
  char sum = 0;
  for (size_t i = 0; i < memory.bytes(); i += kPage) sum = static_cast<char>(sum + memory.data()[i]);
  EXPECT_EQ(sum, 0);
  EXPECT_FALSE(written(handle)) << "they were read";
  memory.data()[size_t{5} << 20] = 1;
  EXPECT_TRUE(written(handle));
}

TEST_F(WriteWatchTest, SharedMemoryIsRefused) {
  const int memfd = memfd_create("framejit_watch", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(memfd, static_cast<off_t>(4 * kPage)), 0);
  const File file(4 * kPage);
  const Memory anonymous(4 * kPage, MAP_SHARED | MAP_ANONYMOUS), of_memfd(4 * kPage, MAP_SHARED, memfd),
      of_file(4 * kPage, MAP_SHARED, file.fd()), of_file_read(4 * kPage, MAP_SHARED, file.fd(), PROT_READ);
  anonymous.fill(1);
  of_memfd.fill(1);
  of_file.fill(1);
  for (const Memory* memory : {&anonymous, &of_memfd, &of_file, &of_file_read})
    EXPECT_EQ(not_watched(memory->data(), memory->bytes()), NotWatched::kShared);
  const Memory mixed(4 * kPage);
  ASSERT_NE(mmap(mixed.at(3), kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  EXPECT_EQ(not_watched(mixed.data(), mixed.bytes()), NotWatched::kShared);
  EXPECT_EQ(not_watched(mixed.data(), 3 * kPage), NotWatched::kNone);
  EXPECT_EQ(not_watched(mixed.data() - kPage, 5 * kPage), NotWatched::kShared);
  const Memory copy(4 * kPage, MAP_PRIVATE, memfd);
  const auto handle = watch(copy);
  EXPECT_FALSE(written(handle)) << "a private mapping of shared memory";
  of_memfd.fill(2);
  EXPECT_FALSE(written(handle));
  EXPECT_EQ(*copy.data(), 1) << "its pages are copies";
  close(memfd);
}

TEST_F(WriteWatchTest, OthersWatchItAlready) {
  const Memory memory(4 * kPage);
  ProtectedPages theirs;
  ASSERT_EQ(theirs.open(), "");
  ASSERT_EQ(theirs.add(pages_around(memory.at(1), kPage)), 0);
  const WriteWatch::Answer answer = watch_.watch(memory.data(), memory.bytes());
  EXPECT_EQ(answer.reason, NotWatched::kFailed);
  EXPECT_NE(answer.why.find("something else in this process watches it"), std::string::npos) << answer.why;
}

TEST_F(WriteWatchTest, PagesOfHugetlbfsAreRefused) {
  constexpr auto kHuge = static_cast<size_t>(kHugePage);
  void* const data =
      mmap(nullptr, kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) FJ_NOT_TESTED_HERE("pages of hugetlbfs: the system has none");
  const std::vector<Mapping> mappings = mappings_by_query(pages_around(data, kHuge));
  if (!mappings.empty()) { EXPECT_TRUE(mappings[0].is_huge); }
  EXPECT_NE(not_watched(data, kHuge), NotWatched::kNone);
  munmap(data, kHuge);
}

TEST_F(WriteWatchTest, FilesBecomeCopies) {
  const File file(16 * kPage);
  const Memory memory(16 * kPage, MAP_PRIVATE, file.fd());
  *memory.at(3) = 'm';  // a copy already
  const uint64_t before = watch_.bytes_made_anonymous();
  const auto handle = watch(memory);
  EXPECT_EQ(watch_.bytes_made_anonymous() - before, 15 * kPage);
  EXPECT_FALSE(written(handle));
  const auto again = watch(memory.at(2), 3 * kPage);
  EXPECT_EQ(watch_.bytes_made_anonymous() - before, 15 * kPage) << "once";
  file.fill(16 * kPage, 'g');
  EXPECT_FALSE(written(handle));
  EXPECT_EQ(*memory.at(0), 'f');
  EXPECT_EQ(*memory.at(3), 'm');
  *memory.at(9) = 'm';
  EXPECT_TRUE(written(handle));
  EXPECT_FALSE(written(again));
  ASSERT_TRUE(watch_.arm(handle));
  EXPECT_FALSE(written(handle));
}

TEST_F(WriteWatchTest, FilesOfWhichNoCopiesCanBeMade) {
  const File file(4 * kPage);
  const Memory read_only(4 * kPage, MAP_PRIVATE, file.fd(), PROT_READ), too_long(8 * kPage, MAP_PRIVATE, file.fd()),
      copied(4 * kPage, MAP_PRIVATE, file.fd());
  const WriteWatch::Answer answer = watch_.watch(read_only.data(), read_only.bytes());
  EXPECT_EQ(answer.reason, NotWatched::kNoMemory);
  EXPECT_NE(answer.why.find("its pages cannot become copies of this process: a file that is mapped to be read only"),
            std::string::npos)
      << answer.why;
  EXPECT_EQ(not_watched(too_long.data(), too_long.bytes()), NotWatched::kNoMemory) << "beyond the end of the file";
  copied.fill('c');
  ASSERT_EQ(mprotect(copied.data(), copied.bytes(), PROT_READ), 0);
  const auto handle = watch(copied);
  EXPECT_FALSE(written(handle)) << "copies already";
}

// A page of the file replaces the copy, and is protected as the copy was.
TEST_F(WriteWatchTest, FilesThatComeBack) {
  const File file(2048 * kPage, 'f');
  const Memory memory(2048 * kPage, MAP_PRIVATE, file.fd());
  memory.fill('m');
  const auto handle = watch(memory), other = watch(memory.at(7), 100);
  for (const size_t pages : {size_t{1}, size_t{1500}}) {
    EXPECT_FALSE(written(handle));
    ASSERT_EQ(madvise(memory.at(7), pages * kPage, MADV_DONTNEED), 0);
    EXPECT_TRUE(written(handle)) << "dropped, and nobody has looked";
    EXPECT_EQ(*memory.at(7), 'f');
    EXPECT_TRUE(written(handle)) << "dropped, and read";
    ASSERT_TRUE(watch_.arm(handle));
    EXPECT_TRUE(written(other)) << "whoever arms it";
    ASSERT_TRUE(watch_.arm(other));
    EXPECT_FALSE(written(handle));
  }
  ASSERT_EQ(ftruncate(file.fd(), 0), 0);
  file.fill(2048 * kPage, 'g');
  EXPECT_TRUE(written(handle)) << "the file was cut and written anew";
  EXPECT_EQ(*memory.at(7), 'g');
  EXPECT_TRUE(written(handle));
}

TEST_F(WriteWatchTest, FilesBesideOtherMemory) {
  const File file(4 * kPage);
  const Memory memory(8 * kPage);
  ASSERT_EQ(mmap(memory.at(4), 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file.fd(), 0), memory.at(4));
  const auto anonymous = watch(memory.data(), 4 * kPage), of_file = watch(memory.at(4), 4 * kPage);
  const WriteWatch::Question question({of_file, anonymous});
  EXPECT_EQ(question.calls(), 2u);
  EXPECT_FALSE(question.written());
  ASSERT_EQ(madvise(memory.at(5), kPage, MADV_DONTNEED), 0);
  EXPECT_EQ(*memory.at(5), 'f');
  EXPECT_TRUE(question.written());
  EXPECT_FALSE(written(anonymous));
  ASSERT_EQ(mmap(memory.at(1), kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file.fd(), 0), memory.at(1));
  EXPECT_FALSE(watch_.arm(anonymous)) << "a file by now";
  EXPECT_TRUE(written(anonymous));
}

TEST_F(WriteWatchTest, WhateverBecomesOfMemoryIsAWrite) {
  constexpr size_t kBytes = size_t{8} << 20;
  const auto middle = [](const Memory& memory) { return memory.data() + (size_t{2} << 20); };
  const auto map_anew = [](char* data, size_t bytes, int flags = MAP_PRIVATE | MAP_ANONYMOUS) {
    ASSERT_EQ(mmap(data, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0), data);
  };
  const Memory spare(kBytes), elsewhere(kBytes);
  const struct {
    const char* what;
    std::function<void(const Memory&)> happens;
  } kinds[] = {
      {"unmapped", [&](const Memory& m) { munmap(m.data(), kBytes); }},
      {"a page unmapped", [&](const Memory& m) { munmap(middle(m), kPage); }},
      {"the first page unmapped", [&](const Memory& m) { munmap(m.data(), kPage); }},
      {"the last page unmapped", [&](const Memory& m) { munmap(m.data() + kBytes - kPage, kPage); }},
      {"mapped anew", [&](const Memory& m) { map_anew(m.data(), kBytes); }},
      {"a page mapped anew", [&](const Memory& m) { map_anew(middle(m), kPage); }},
      {"a page mapped anew and filled as before",
       [&](const Memory& m) { map_anew(middle(m), kPage), memset(middle(m), 1, kPage); }},
      {"a page mapped anew, shared", [&](const Memory& m) { map_anew(middle(m), kPage, MAP_SHARED | MAP_ANONYMOUS); }},
      {"a page dropped", [&](const Memory& m) { madvise(middle(m), kPage, MADV_DONTNEED); }},
      {"4 MiB dropped", [&](const Memory& m) { madvise(middle(m), size_t{4} << 20, MADV_DONTNEED); }},
      {"4 MiB dropped and read",
       [&](const Memory& m) {
         madvise(middle(m), size_t{4} << 20, MADV_DONTNEED);
         for (size_t i = 0; i < size_t{4} << 20; i += kPage) ASSERT_EQ(middle(m)[i], 0);
       }},
      {"all dropped", [&](const Memory& m) { madvise(m.data(), kBytes, MADV_DONTNEED); }},
      {"moved away",
       [&](const Memory& m) { mremap(m.data(), kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, spare.data()); }},
      {"moved away, mapping kept",
       [&](const Memory& m) { mremap(m.data(), kBytes, kBytes, MREMAP_MAYMOVE | 4, nullptr); }},
      {"other memory moved there",
       [&](const Memory& m) {
         elsewhere.fill(1);
         mremap(elsewhere.data(), kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, m.data());
       }},
  };
  for (const auto& kind : kinds) {
    const Memory memory(kBytes);
    memory.fill(1);
    const auto handle = watch(memory);
    const WriteWatch::Question question({handle});
    EXPECT_FALSE(question.written()) << kind.what;
    kind.happens(memory);
    EXPECT_TRUE(question.written()) << kind.what;
    EXPECT_TRUE(question.written()) << kind.what << ", asked again";
  }
}

TEST_F(WriteWatchTest, MemoryThatIsMappedAnewCanBeWatchedAgain) {
  const Memory memory(8 * kPage), other(8 * kPage);
  memory.fill(1);
  const auto old = watch(memory);
  munmap(memory.data(), memory.bytes());
  EXPECT_FALSE(watch_.arm(old)) << "unmapped";
  ASSERT_EQ(mmap(memory.data(), memory.bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            memory.data());
  const auto fresh = watch(memory);
  EXPECT_FALSE(written(fresh));
  EXPECT_TRUE(written(old)) << "other memory at the same address, watched by somebody else";
  EXPECT_TRUE(watch_.arm(old));
  EXPECT_FALSE(written(old));
  EXPECT_FALSE(written(fresh));
  ASSERT_EQ(mmap(memory.data(), kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            memory.data());
  EXPECT_FALSE(watch_.arm(old)) << "shared by now";
  EXPECT_TRUE(written(old));
}

// Remains of a protection must not hide writes when the memory is watched at its new place.
TEST_F(WriteWatchTest, MemoryThatHasMovedIsWatchedAsAnyOther) {
  const Memory memory(8 * kPage), place(8 * kPage);
  memory.fill(1);
  const auto before = watch(memory), stale = watch(place);
  ASSERT_EQ(mremap(memory.data(), memory.bytes(), place.bytes(), MREMAP_MAYMOVE | MREMAP_FIXED, place.data()),
            place.data());
  place.fill(2);
  const auto after = watch(place);
  EXPECT_TRUE(written(before));
  EXPECT_TRUE(written(stale));
  EXPECT_FALSE(written(after));
  place.fill(3);
  EXPECT_TRUE(written(after));
}

// Only pages that the block has alone are watched: the allocator writes next to it whenever it likes.
TEST_F(WriteWatchTest, FreedAndReusedBlocks) {
  const size_t bytes = 20 * kPage;
  std::vector<std::unique_ptr<char[]>> keep;
  for (int i = 0; i < 4; ++i) keep.push_back(std::make_unique<char[]>(bytes));
  char* const address = keep[1].get();
  std::memset(address, 1, bytes);
  const size_t to_page = kPage - reinterpret_cast<uintptr_t>(address) % kPage;
  const auto handle = watch(address + to_page, 18 * kPage);
  EXPECT_FALSE(written(handle));
  keep[1].reset();
  keep[1] = std::make_unique<char[]>(bytes);  // at the old one's place, or not; zeroed
  if (keep[1].get() == address) { EXPECT_TRUE(written(handle)); }
}

TEST_F(WriteWatchTest, RangesThatShareAPage) {
  const Memory memory(8 * kPage);
  memory.fill(1);
  auto left = watch(memory.data(), 4 * kPage + 10);                       // pages 0 to 4
  auto right = watch(memory.at(4) + 10, 2 * kPage);                       // pages 4 to 6
  const auto ask_both = [&] { return std::pair(written(left), written(right)); };
  EXPECT_EQ(ask_both(), std::pair(false, false));
  *memory.at(4) = 2;
  ASSERT_TRUE(watch_.arm(left));
  EXPECT_EQ(ask_both(), std::pair(false, true)) << "armed before the other has asked";
  ASSERT_TRUE(watch_.arm(right));
  EXPECT_EQ(ask_both(), std::pair(false, false));
  *memory.at(6) = 2;
  ASSERT_TRUE(watch_.arm(left));
  EXPECT_EQ(ask_both(), std::pair(false, true)) << "a page that only the other has";
  ASSERT_TRUE(watch_.arm(right));
  *memory.at(1) = 2;
  ASSERT_TRUE(watch_.arm(right));
  EXPECT_EQ(ask_both(), std::pair(true, false));
  left.reset();
  EXPECT_FALSE(written(right)) << "the other's end";
  *memory.at(4) = 3;
  EXPECT_TRUE(written(right)) << "the page that they shared";
}

TEST_F(WriteWatchTest, TheSameMemoryTwice) {
  const Memory memory(8 * kPage);
  memory.fill(1);
  const auto first = watch(memory);
  *memory.at(2) = 2;
  auto second = watch(memory);
  EXPECT_TRUE(written(first)) << "a write before the second one's watch";
  EXPECT_FALSE(written(second));
  ASSERT_TRUE(watch_.arm(first));
  EXPECT_FALSE(written(second));
  const auto inside = watch(memory.at(3), kPage);
  EXPECT_FALSE(written(first));
  second.reset();
  EXPECT_FALSE(written(first));
  *memory.at(3) = 2;
  EXPECT_TRUE(watch_.written({first, inside}));
  EXPECT_TRUE(written(first));
  EXPECT_TRUE(written(inside));
  ASSERT_TRUE(watch_.arm(inside));
  EXPECT_TRUE(written(first));
}

TEST_F(WriteWatchTest, ProtectingTellsWhatWasNot) {
  const Memory memory(8 * kPage);
  memory.fill(1);
  ProtectedPages pages;
  ASSERT_EQ(pages.open(), "");
  const PageRange range = pages_around(memory.data(), memory.bytes());
  const auto told = [&] {
    std::vector<std::pair<size_t, size_t>> found;
    EXPECT_EQ(pages.protect_and_tell(range,
                                     [&](const PageRange& piece) {
                                       found.emplace_back((piece.begin - range.begin) / kPage,
                                                          (piece.end - range.begin) / kPage);
                                     }),
              0);
    return found;
  };
  using Pieces = std::vector<std::pair<size_t, size_t>>;
  ASSERT_EQ(pages.add(range), 0);
  EXPECT_EQ(told(), (Pieces{{0, 8}}));
  EXPECT_EQ(told(), Pieces());
  *memory.at(2) = *memory.at(3) = *memory.at(6) = 2;
  EXPECT_EQ(told(), (Pieces{{2, 4}, {6, 7}}));
  EXPECT_TRUE(pages.are_protected(range));
  ASSERT_EQ(madvise(memory.at(5), kPage, MADV_DONTNEED), 0);
  EXPECT_EQ(told(), (Pieces{{5, 6}}));
  EXPECT_TRUE(pages.are_protected(range));
  munmap(memory.at(4), kPage);
  EXPECT_NE(pages.protect_and_tell(range, [](const PageRange&) {}), 0);
}

TEST_F(WriteWatchTest, EndedWatchesLeaveMemoryAsItWas) {
  const Memory memory(16 * kPage);
  memory.fill(1);
  const size_t before = mappings_of(pages_around(memory.data(), memory.bytes())).size();
  {
    const auto a = watch(memory.at(2), kPage), b = watch(memory.at(5), 3 * kPage);
    EXPECT_GT(mappings_of(pages_around(memory.data(), memory.bytes())).size(), before);
  }
  EXPECT_EQ(mappings_of(pages_around(memory.data(), memory.bytes())).size(), before);
  ProtectedPages theirs;
  ASSERT_EQ(theirs.open(), "");
  EXPECT_EQ(theirs.add(pages_around(memory.data(), memory.bytes())), 0) << "nobody watches it";
}

TEST_F(WriteWatchTest, NeighboursAreOneCallAndOneMapping) {
  constexpr size_t kRanges = 200;
  const Memory memory(2 * kRanges * kPage);
  memory.fill(1);
  std::vector<WriteWatch::Handle> handles;
  for (size_t i = 0; i < kRanges; ++i) handles.push_back(watch(memory.at(2 * ((i * 7) % kRanges)), 2 * kPage - 8));
  const WriteWatch::Question touching(handles);
  EXPECT_EQ(touching.calls(), 1u);
  EXPECT_EQ(mappings_of(pages_around(memory.data(), memory.bytes())).size(), 1u);
  EXPECT_FALSE(touching.written());
  *memory.at(2 * 123) = 2;
  EXPECT_TRUE(touching.written());
  handles.clear();
  EXPECT_TRUE(touching.written());
  for (size_t i = 0; i < 10; ++i) handles.push_back(watch(memory.at(40 + 3 * i), kPage));
  EXPECT_EQ(WriteWatch::Question(handles).calls(), 10u);
  EXPECT_FALSE(WriteWatch::Question(handles).written());
}

TEST_F(WriteWatchTest, MappingsByQueryAndByText) {
  const File file(4 * kPage);
  const Memory memory(8 * kPage);
  ASSERT_EQ(mmap(memory.at(1), kPage, PROT_READ, MAP_SHARED | MAP_FIXED, file.fd(), 0), memory.at(1));
  ASSERT_EQ(mmap(memory.at(2), kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file.fd(), 0), memory.at(2));
  munmap(memory.at(4), 2 * kPage);
  const PageRange range = pages_around(memory.data(), memory.bytes());
  const auto address = [&](size_t page) { return reinterpret_cast<uintptr_t>(memory.at(page)); };
  const std::vector<Mapping> expected = {{address(0), address(1), false, false, true, false},
                                         {address(1), address(2), true, true, false, false},
                                         {address(2), address(3), false, true, true, false},
                                         {address(3), address(4), false, false, true, false},
                                         {address(6), address(8), false, false, true, false}};
  EXPECT_EQ(mappings_by_text(range), expected);
  const std::vector<Mapping> queried = mappings_by_query(range);
  if (!queried.empty()) { EXPECT_EQ(queried, expected); }
}

// Whether all of it lies in huge pages, which the system gives if it has them.
bool fill_in_huge_pages(const Memory& memory) {
  madvise(memory.data(), memory.bytes(), MADV_HUGEPAGE);
  memory.fill(1);
  FILE* const smaps = std::fopen("/proc/self/smaps", "re");
  char line[512];
  bool is_ours = false;
  unsigned long kilobytes = 0, begin = 0, end = 0;
  while (smaps != nullptr && std::fgets(line, sizeof line, smaps) != nullptr) {
    if (std::sscanf(line, "%lx-%lx ", &begin, &end) == 2) is_ours = begin == reinterpret_cast<uintptr_t>(memory.data());
    if (is_ours && std::sscanf(line, "AnonHugePages: %lu kB", &kilobytes) == 1) break;
  }
  if (smaps != nullptr) std::fclose(smaps);
  return kilobytes * 1024 == memory.bytes();
}

TEST_F(WriteWatchTest, HugePages) {
  constexpr auto kHuge = static_cast<size_t>(kHugePage);
  const Memory memory(4 * kHuge, MAP_PRIVATE | MAP_ANONYMOUS, -1, PROT_READ | PROT_WRITE, kHuge);
  if (!fill_in_huge_pages(memory)) std::puts("in small pages, as the system has no huge ones to give");
  const auto handle = watch(memory), part = watch(memory.data() + kHuge / 2, kHuge / 4);
  EXPECT_FALSE(watch_.written({handle, part}));
  memory.data()[kHuge + 77] = 2;
  EXPECT_TRUE(written(handle));
  ASSERT_TRUE(watch_.arm(handle));
  EXPECT_FALSE(watch_.written({handle, part}));
  ASSERT_EQ(mprotect(memory.data(), kHuge / 2, PROT_READ), 0) << "splits a page";
  EXPECT_FALSE(watch_.written({handle, part}));
  memory.data()[kHuge / 2 + 77] = 2;
  EXPECT_TRUE(written(handle));
  EXPECT_TRUE(written(part));
  ASSERT_TRUE(watch_.arm(handle));
  ASSERT_EQ(madvise(memory.data() + 2 * kHuge, kHuge, MADV_DONTNEED), 0);
  EXPECT_TRUE(written(handle)) << "a whole one dropped";
}

// The system may merge small pages into huge ones, or merge equal ones, at any time.
TEST_F(WriteWatchTest, PagesThatTheSystemReplaces) {
  constexpr auto kHuge = static_cast<size_t>(kHugePage);
  const Memory memory(2 * kHuge, MAP_PRIVATE | MAP_ANONYMOUS, -1, PROT_READ | PROT_WRITE, kHuge);
  memory.fill(1);
  const auto handle = watch(memory);
  madvise(memory.data(), memory.bytes(), 25);  // MADV_COLLAPSE
  madvise(memory.data(), memory.bytes(), MADV_MERGEABLE);
  madvise(memory.data(), memory.bytes(), 21);  // MADV_PAGEOUT
  ASSERT_TRUE(watch_.arm(handle));
  EXPECT_EQ(memory.data()[kHuge], 1);
  EXPECT_FALSE(written(handle));
  memory.data()[kHuge] = 2;
  EXPECT_TRUE(written(handle));
}

TEST_F(WriteWatchTest, WhatAQuestionCosts) {
  constexpr size_t kBytes = size_t{440} << 20;
  const auto microseconds = [](const auto& run) {
    const auto start = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  };
  const auto print = [&](const char* what, const Memory& memory) {
    WriteWatch::Handle handle;
    const double to_watch = microseconds([&] { handle = watch(memory); });
    const double to_arm = microseconds([&] { watch_.arm(handle); });
    const WriteWatch::Question question({handle});
    double least = 1e9;
    for (int i = 0; i < 50; ++i) least = std::min(least, microseconds([&] { EXPECT_FALSE(question.written()); }));
    std::printf("440 MiB, %s: watch %.0f us, arm %.0f us, ask %.1f us\n", what, to_watch, to_arm, least);
  };
  {
    const Memory memory(kBytes);
    madvise(memory.data(), kBytes, MADV_NOHUGEPAGE);
    memory.fill(1);
    print("small pages", memory);
  }
  {
    const Memory memory(kBytes, MAP_PRIVATE | MAP_ANONYMOUS, -1, PROT_READ | PROT_WRITE,
                        static_cast<size_t>(kHugePage));
    if (fill_in_huge_pages(memory)) print("huge pages", memory);
  }
}

}  // namespace
}  // namespace framejit::runtime
