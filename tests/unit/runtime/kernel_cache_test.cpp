// The kernel cache: stored kernels are found, by this and by other processes; damaged ones are not; folders of other
// users are refused.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "runtime/base/build_id.h"
#include "runtime/base/log.h"
#include "runtime/kernel_cache.h"

namespace framejit::runtime {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMegabytes = int64_t{256} << 20;  // more than these tests write

class KernelCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "framejit-cache-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::unique_ptr<KernelCache> open(int64_t most_bytes = kMegabytes) {
    auto cache = KernelCache::open(folder_, most_bytes);
    EXPECT_TRUE(cache.ok()) << cache.error().message;
    return cache.take();
  }
  std::string read(const std::string& file) {
    std::ifstream in(folder_ + "/" + file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& file, const std::string& bytes) {
    std::ofstream(folder_ + "/" + file, std::ios::binary | std::ios::trunc) << bytes;
  }

  std::string folder_;
};

KernelCode code_of(int number, size_t bytes = 1000) {
  KernelCode code;
  code.target = "cpu test";
  code.text = "kernel " + std::to_string(number);
  code.id = content_id(code.target, code.text);
  code.name = "relu";
  std::mt19937_64 random(static_cast<uint64_t>(number));
  for (size_t i = 0; i < bytes; ++i) code.object += static_cast<char>(random());
  code.per_block = number;
  code.threads = 7;
  code.buffers = 3;
  code.sizes = 2;
  return code;
}

// Whether the cache has the kernel; if so, it must be right.
bool finds(KernelCache& cache, const KernelCode& code) {
  const auto found = cache.find(code.id, code.target, code.text);
  if (!found) return false;
  EXPECT_EQ(found->object, code.object);
  EXPECT_EQ(found->text, code.text);
  EXPECT_EQ(found->name, code.name);
  EXPECT_EQ(found->per_block, code.per_block);
  EXPECT_EQ(found->threads, code.threads);
  EXPECT_EQ(found->buffers, code.buffers);
  EXPECT_EQ(found->sizes, code.sizes);
  return true;
}

TEST_F(KernelCacheTest, KeepsKernelsForOthers) {
  const auto mine = open(), theirs = open();
  EXPECT_FALSE(finds(*mine, code_of(1)));
  mine->store(code_of(1));
  mine->store(code_of(1));
  EXPECT_TRUE(finds(*mine, code_of(1)));
  EXPECT_TRUE(finds(*theirs, code_of(1))) << "another process that has read the file before";
  theirs->store(code_of(2, 0));
  EXPECT_TRUE(finds(*mine, code_of(2, 0)));
  EXPECT_TRUE(finds(*open(), code_of(1)));
  EXPECT_EQ(mine->find(code_of(1).id, "another target", "kernel 1"), nullptr);
  EXPECT_EQ(mine->statistics().stored, 1u);
  EXPECT_EQ(mine->statistics().hits, 2u);
  EXPECT_EQ(mine->statistics().misses, 2u);
}

TEST_F(KernelCacheTest, WhatNobodyUsesGoes) {
  const int64_t most = 64 * 1024;
  const auto cache = open(most);
  for (int i = 0; i < 400; ++i) {
    cache->store(code_of(i));
    ASSERT_TRUE(finds(*cache, code_of(0))) << "used all the time, kernel " << i;
    uintmax_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(folder_)) bytes += entry.file_size();
    ASSERT_LE(bytes, static_cast<uintmax_t>(most));
  }
  EXPECT_TRUE(finds(*cache, code_of(399)));
  EXPECT_FALSE(finds(*cache, code_of(1)));
  cache->store(code_of(1000, 40 * 1024));
  EXPECT_FALSE(finds(*cache, code_of(1000, 40 * 1024))) << "larger than half of the cache";
}

TEST_F(KernelCacheTest, DamageCostsACompile) {
  constexpr int kKernels = 20;
  {
    const auto cache = open();
    for (int i = 0; i < kKernels; ++i) cache->store(code_of(i, 100 + static_cast<size_t>(i) * 7));
  }
  const std::string whole = read("kernels.new");
  std::mt19937_64 random(1);
  for (int round = 0; round < 600; ++round) {
    std::string bytes = whole;
    const size_t at = random() % bytes.size();
    switch (random() % 5) {
      case 0: bytes.resize(at); break;
      case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8)); break;
      case 2: bytes.erase(at, 1 + random() % 200); break;
      case 3: bytes.insert(at, whole.substr(random() % whole.size(), 1 + random() % 300)); break;
      default: std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end(), '\0');
    }
    fs::remove(folder_ + "/kernels.old");
    fs::remove(folder_ + "/kernels.new");
    write("kernels.new", bytes);
    chmod((folder_ + "/kernels.new").c_str(), 0600);
    const auto cache = open();
    for (int i = 0; i < kKernels; ++i)
      (void)finds(*cache, code_of(i, 100 + static_cast<size_t>(i) * 7));  // right, or not there
    cache->store(code_of(500));
    ASSERT_TRUE(finds(*cache, code_of(500))) << "round " << round << ": it goes on beside what is damaged";
  }
}

TEST_F(KernelCacheTest, AFileThatIsCutWhileItIsMapped) {
  const auto cache = open();
  for (int i = 0; i < 50; ++i) cache->store(code_of(i));
  ASSERT_TRUE(finds(*cache, code_of(49)));
  fs::resize_file(folder_ + "/kernels.new", 5000);
  EXPECT_FALSE(finds(*cache, code_of(49)));
  EXPECT_TRUE(finds(*cache, code_of(0)));
  fs::resize_file(folder_ + "/kernels.new", 0);
  EXPECT_FALSE(finds(*cache, code_of(0)));
  cache->store(code_of(0));
  EXPECT_TRUE(finds(*cache, code_of(0)));
  fs::remove_all(folder_);
  EXPECT_FALSE(finds(*cache, code_of(0))) << "the folder is gone";
  cache->store(code_of(0));
}

TEST_F(KernelCacheTest, ForeignFilesAreLeftAlone) {
  write("precious", "text");
  fs::create_symlink(folder_ + "/precious", folder_ + "/kernels.new");
  const auto cache = open();
  cache->store(code_of(1));
  EXPECT_FALSE(finds(*cache, code_of(1)));
  EXPECT_EQ(read("precious"), "text");
}

// Opening a pipe for writing waits for a reader.
TEST_F(KernelCacheTest, NothingWaitsForAPipeAndTheLogSaysWhatIsInTheWay) {
  const auto make_pipe = [](const std::string& path) { return mkfifo(path.c_str(), 0600); };
  const auto make_link = [](const std::string& path) { return symlink("elsewhere", path.c_str()); };
  const auto refused = [&](const char* file, const auto& make) {
    std::vector<std::string> said;
    const uint64_t listener = log::add_listener([&](const log::Event& event) { said.push_back(log::to_text(event)); });
    const std::string path = folder_ + "/" + file;
    fs::remove(path);
    EXPECT_EQ(make(path), 0);
    const auto cache = open();
    cache->store(code_of(1)), cache->store(code_of(2));
    EXPECT_FALSE(finds(*cache, code_of(1)));
    log::remove_listener(listener);
    fs::remove(path);
    return said.size() == 1 ? said[0] : std::to_string(said.size()) + " lines";
  };
  alarm(60);
  for (const std::string& said : {refused("kernels.new", make_pipe), refused("kernels.new", make_link)}) {
    EXPECT_NE(said.find("; the program goes on without this file; what to do: "), std::string::npos) << said;
    EXPECT_NE(said.find("FRAMEJIT_CACHE_DIR"), std::string::npos) << said;
  }
  EXPECT_NE(refused("kernels.new", make_pipe).find("kernels.new: it is a pipe"), std::string::npos);
  EXPECT_NE(refused("kernels.new", make_link).find("kernels.new: it is a link"), std::string::npos);
  EXPECT_NE(refused("lock", make_link).find("the file lock next to it: it is a link"), std::string::npos);
  const auto make_open_pipe = [&](const std::string& path) {
    return make_pipe(path) == 0 && ::open(path.c_str(), O_RDWR | O_CLOEXEC) >= 0 ? 0 : -1;
  };
  EXPECT_NE(refused("kernels.new", make_open_pipe).find("it is not a regular file"), std::string::npos);
  alarm(0);
}

TEST_F(KernelCacheTest, FilesThatOthersCanWriteAreRefused) {
  const std::string file = folder_ + "/kernels.new";
  for (const mode_t mode : {0620, 0602, 0666}) {
    std::vector<std::string> said;
    const uint64_t listener = log::add_listener([&](const log::Event& event) { said.push_back(log::to_text(event)); });
    const auto cache = open();
    cache->store(code_of(1));
    ASSERT_TRUE(finds(*cache, code_of(1)));
    EXPECT_TRUE(said.empty());
    const std::string before = read("kernels.new");
    chmod(file.c_str(), mode);
    EXPECT_FALSE(finds(*cache, code_of(1))) << "which others may have written";
    EXPECT_FALSE(finds(*open(), code_of(1)));
    cache->store(code_of(2)), cache->store(code_of(3));
    EXPECT_EQ(read("kernels.new"), before) << "it is left alone";
    log::remove_listener(listener);
    ASSERT_EQ(said.size(), 1u);
    EXPECT_NE(said[0].find("kernels.new: others can write it"), std::string::npos) << said[0];
    chmod(file.c_str(), 0644);
    EXPECT_TRUE(finds(*cache, code_of(1))) << "others may read it";
    fs::rename(file, folder_ + "/kernels.old");
    chmod((folder_ + "/kernels.old").c_str(), mode);
    EXPECT_FALSE(finds(*open(), code_of(1)));
    fs::remove(folder_ + "/kernels.old");
  }
}

TEST_F(KernelCacheTest, ManyProcessesAtOnce) {
  constexpr int kProcesses = 4, kEach = 60;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child != 0) continue;
    bool right = true;
    const auto cache = KernelCache::open(folder_, 200 * 1024).take();
    for (int i = 0; i < kEach; ++i) {
      const KernelCode code = code_of(i % 2 == 0 ? i : p * 1000 + i);
      cache->store(code);
      const auto found = cache->find(code.id, code.target, code.text);
      right = right && (!found || found->object == code.object);
    }
    _exit(right ? 0 : 1);
  }
  for (int p = 0; p < kProcesses; ++p) {
    int status = 0;
    wait(&status);
    EXPECT_EQ(status, 0);
  }
  const auto cache = open(200 * 1024);
  int found = 0;
  for (int i = 0; i < kEach; i += 2) found += finds(*cache, code_of(i));
  EXPECT_GT(found, 0);
}

TEST_F(KernelCacheTest, FoldersOfOthersAreRefused) {
  const auto message = [](const std::string& folder, int64_t most_bytes = kMegabytes) {
    const auto cache = KernelCache::open(folder, most_bytes);
    return cache.ok() ? std::string() : cache.error().message;
  };
  chmod(folder_.c_str(), 0770);
  EXPECT_EQ(message(folder_), "the kernel cache " + folder_ +
                                  " is not used: others can write it; name a folder that is yours alone (chmod 700)");
  chmod(folder_.c_str(), 0707);
  EXPECT_NE(message(folder_).find("others can write it"), std::string::npos);
  chmod(folder_.c_str(), 0755);
  EXPECT_EQ(message(folder_), "") << "others may read it";
  fs::create_directory_symlink(folder_, folder_ + "/link");
  EXPECT_NE(message(folder_ + "/link").find("it is a link"), std::string::npos);
  write("file", "");
  EXPECT_NE(message(folder_ + "/file").find("it is not a directory"), std::string::npos);
  EXPECT_EQ(message("relative"), "the kernel cache relative is not used: its path is not absolute; begin it with /");
  for (const int64_t bytes : {int64_t{0}, int64_t{-1} << 20})
    EXPECT_EQ(message(folder_, bytes), "the kernel cache " + folder_ +
                                           " is not used: it may hold no bytes; allow it a megabyte or more "
                                           "(FRAMEJIT_CACHE_MB, or max_mb= of framejit.cache())");
  EXPECT_EQ(message(folder_ + "/no/such"),
            "the kernel cache " + folder_ + "/no/such is not used: it cannot be made: its folder " + folder_ +
                "/no does not exist; name a folder that exists, or one in a folder in which you may write "
                "(FRAMEJIT_CACHE_DIR, or framejit.cache())");
  if (geteuid() == 0) {
    ASSERT_EQ(chown(folder_.c_str(), 12345, 12345), 0);
    EXPECT_NE(message(folder_).find("it belongs to user 12345, not to 0"), std::string::npos);
  }
}

TEST(BuildId, IsOfTheObjectThatHoldsAnAddress) {
  const std::string core = build_id_of(reinterpret_cast<const void*>(&content_id));
  EXPECT_EQ(core.size(), 40u) << core;
  EXPECT_EQ(core.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(build_id_of(nullptr), "");
}

}  // namespace
}  // namespace framejit::runtime
