// The write watch with threads and processes: forks in both directions, several owners at once, a system that refuses.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include "tests/unit/runtime/watched_memory.h"

namespace framejit::runtime {
namespace {

using testing::File;
using testing::kPage;
using testing::Memory;
using testing::WriteWatchTest;
using NotWatched = WriteWatch::NotWatched;

// Runs it in a child; it returns the first thing that was wrong, or null.
void in_child(const std::function<const char*()>& body, const std::function<pid_t()>& fork_it = fork) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork_it();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const char* const wrong = body();
    if (wrong != nullptr && write(ends[1], wrong, std::strlen(wrong)) < 0) _exit(2);
    _exit(wrong != nullptr ? 1 : 0);
  }
  close(ends[1]);
  std::string wrong;
  char letter;
  while (read(ends[0], &letter, 1) == 1) wrong += letter;
  close(ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "in the child: " << wrong;
}

TEST_F(WriteWatchTest, AChildBeginsAnew) {
  const File file(8 * kPage);
  const Memory anonymous(8 * kPage), of_file(8 * kPage, MAP_PRIVATE, file.fd()), alone(kPage);
  anonymous.fill(1);
  for (const Memory* memory : {&anonymous, &of_file}) {
    auto handle = watch(*memory), ended = watch(alone);
    const auto again = watch(memory->at(3), kPage);
    const WriteWatch::Question question({handle});
    in_child([&]() -> const char* {
      if (!written(handle) || !question.written()) return "not armed here, and not written";
      ended.reset();
      *memory->at(3) = 9;
      if (!question.written()) return "not armed here, written and not seen";
      if (!watch_.arm(handle)) return "it cannot be armed";
      if (question.written()) return "armed here, and written";
      if (!written(again)) return "another owner armed, and this one is not told of the write";
      *memory->at(2) = 9;
      if (!question.written()) return "armed here, written and not seen";
      const WriteWatch::Answer answer = watch_.watch(memory->data(), kPage);
      if (!answer.handle || written(answer.handle)) return "it cannot be watched here";
      handle.reset();
      return nullptr;
    });
    EXPECT_FALSE(question.written()) << "the child's writes are its own, and so are its watches";
    EXPECT_FALSE(written(ended));
    *memory->at(5) = 9;
    EXPECT_TRUE(question.written()) << "the parent's first write after the fork";
    ASSERT_TRUE(watch_.arm(handle));
    EXPECT_FALSE(question.written());
    *memory->at(5) = 9;
    EXPECT_TRUE(question.written());
  }
}

TEST_F(WriteWatchTest, TheParentsWritesAreNotTheChilds) {
  const Memory memory(8 * kPage);
  memory.fill(1);
  const auto handle = watch(memory);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  in_child(
      [&]() -> const char* {
        if (!watch_.arm(handle)) return "it cannot be armed";
        char letter;
        if (read(ends[0], &letter, 1) != 1) return "no word from the parent";
        return written(handle) ? "the parent's write" : nullptr;
      },
      [&] {
        const pid_t child = fork();
        if (child > 0) {
          *memory.at(4) = 2;
          EXPECT_EQ(write(ends[1], "w", 1), 1);
        }
        return child;
      });
  EXPECT_TRUE(written(handle));
  close(ends[0]);
  close(ends[1]);
}

TEST_F(WriteWatchTest, ForksThatNobodyIsToldOf) {
  const Memory memory(8 * kPage);
  memory.fill(1);
  const auto handle = watch(memory);
  in_child([&]() -> const char* { return written(handle) ? nullptr : "trusted what the parent has armed"; },
           [] { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr)); });
  EXPECT_FALSE(written(handle));
}

TEST_F(WriteWatchTest, ChildrenOfChildren) {
  const Memory memory(8 * kPage);
  memory.fill(1);
  const auto handle = watch(memory);
  in_child([&]() -> const char* {
    if (!watch_.arm(handle)) return "it cannot be armed";
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(written(handle) && watch_.arm(handle) && !written(handle) ? 0 : 1);
    int status = 0;
    waitpid(grandchild, &status, 0);
    if (status != 0) return "the grandchild";
    return written(handle) ? "written by nobody" : nullptr;
  });
}

// Each owner sees its own writes and no others, whatever the other owners watch, arm and end meanwhile.
TEST_F(WriteWatchTest, ManyOwnersAtOnce) {
  constexpr size_t kOwners = 4, kPages = 16, kRounds = 150;
  const Memory memory(kOwners * kPages * kPage);
  memory.fill(1);
  std::atomic<int> wrong = 0;
  std::atomic<bool> is_over = false;
  std::thread forks([&] {
    while (!is_over) {
      const pid_t child = fork();
      if (child == 0) {
        const WriteWatch::Answer answer = watch_.watch(memory.data(), kPage);
        _exit(answer.handle && !written(answer.handle) ? 0 : 1);
      }
      int status = 0;
      waitpid(child, &status, 0);
      wrong += status != 0;
    }
  });
  std::vector<std::thread> owners;
  for (size_t i = 0; i < kOwners; ++i) {
    owners.emplace_back([&, i] {
      auto mine = watch_.watch(memory.at(i * kPages), kPages * kPage).handle;
      for (size_t round = 0; round < kRounds; ++round) {
        const auto all = watch_.watch(memory.data(), memory.bytes()).handle;
        if (round % 10 == 9) mine = watch_.watch(memory.at(i * kPages), kPages * kPage).handle;
        wrong += !watch_.arm(mine);
        wrong += written(mine);
        *memory.at(i * kPages + round % kPages) = static_cast<char>(round);
        watch_.arm(all);
        wrong += !written(mine);
      }
    });
  }
  for (std::thread& owner : owners) owner.join();
  is_over = true;
  forks.join();
  EXPECT_EQ(wrong, 0);
}

// Writes while another owner arms the same pages.
TEST_F(WriteWatchTest, WritesWhileOthersArm) {
  const Memory memory(size_t{16} << 20);
  memory.fill(1);
  const auto mine = watch(memory), theirs = watch(memory);
  std::atomic<bool> is_over = false;
  std::thread other([&] {
    while (!is_over) watch_.arm(theirs);
  });
  int missed = 0;
  const size_t pages = memory.bytes() / kPage;
  for (size_t round = 0; round < 200; ++round) {
    EXPECT_TRUE(watch_.arm(mine));
    *memory.at(pages - 1 - round % 64) = 2;
    missed += !written(mine);
  }
  is_over = true;
  other.join();
  EXPECT_EQ(missed, 0);
}

// The system call and the corresponding device, refused as a container refuses them.
const char* refuse(bool the_device_too) {
  constexpr unsigned kNewUserfault = 0xAA00;
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, the_device_too ? SYS_ioctl : ~0u, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kNewUserfault, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    return "no filter can be set";
  return nullptr;
}

TEST_F(WriteWatchTest, ASystemThatRefuses) {
  const Memory memory(kPage);
  const auto handle = watch(memory);
  in_child([&]() -> const char* {
    if (const char* const wrong = refuse(true)) return wrong;
    if (watch_.unavailable() !=
        "writes to memory cannot be watched: the system call userfaultfd is refused (Operation not permitted); allow "
        "it in the container's seccomp profile")
      return watch_.unavailable().c_str();
    const WriteWatch::Answer answer = watch_.watch(memory.data(), kPage);
    if (answer.handle || answer.reason != NotWatched::kUnavailable || answer.why != watch_.unavailable())
      return "watched all the same";
    if (watch_.arm(handle)) return "armed all the same";
    return written(handle) ? nullptr : "a parent's handle that cannot be armed is not written";
  });
  EXPECT_EQ(watch_.unavailable(), "");
  EXPECT_FALSE(written(handle));
}

TEST_F(WriteWatchTest, ASystemThatRefusesTheCallButHasTheDevice) {
  if (access("/dev/userfaultfd", R_OK | W_OK) != 0)
    FJ_NOT_TESTED_HERE("the write watch by its device: this process may not open it");
  const Memory memory(kPage);
  const auto handle = watch(memory);
  in_child([&]() -> const char* {
    if (const char* const wrong = refuse(false)) return wrong;
    if (!watch_.arm(handle)) return "it cannot be armed";
    if (written(handle)) return "armed, and written";
    *memory.data() = 2;
    return written(handle) ? nullptr : "not seen";
  });
}

}  // namespace
}  // namespace framejit::runtime
