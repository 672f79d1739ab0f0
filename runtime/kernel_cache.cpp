// runtime/kernel_cache.cpp — records, files, and who may write when.
//
// A file is a head and records; a record is a fixed head (magic, lengths, id, checksum) and its bytes, padded to eight.
// Appending takes an exclusive lock on the folder's file `lock`, so that two processes never write at once and nobody
// sees half of a rotation. Reading takes no lock: a record that is half written fails its checksum.
#include "runtime/kernel_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <unordered_map>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/base/own_file.h"
#include "runtime/base/sha256.h"

namespace framejit::runtime {
namespace {

constexpr char kFileHead[8] = {'f', 'j', 'k', 'e', 'r', 'n', '0', '1'};
constexpr uint64_t kRecordMagic = 0x3164726f6365726b;  // "krecord1"
constexpr uint64_t kMostPart = uint64_t{1} << 30;

struct RecordHead {
  uint64_t magic;
  uint64_t high, low;             // id
  uint64_t target_bytes, name_bytes, object_bytes;
  int64_t per_block;
  uint32_t threads, buffers, sizes, unused;
  uint8_t checksum[32];           // of everything before it and of the bytes
};
static_assert(sizeof(RecordHead) == 104);

uint64_t padded(uint64_t bytes) { return (bytes + 7) & ~uint64_t{7}; }
uint64_t bytes_of(const RecordHead& head) { return padded(head.target_bytes + head.name_bytes + head.object_bytes); }
bool has_possible_lengths(const RecordHead& head) {
  return head.magic == kRecordMagic && head.target_bytes < kMostPart && head.name_bytes < kMostPart &&
         head.object_bytes < kMostPart;
}

Sha256::Digest checksum_of(const RecordHead& head, std::string_view bytes) {
  const std::string_view fixed(reinterpret_cast<const char*>(&head), offsetof(RecordHead, checksum));
  return Sha256().add(fixed).add(bytes).digest();
}

std::string reason(const char* what, const std::string& path) {
  return std::string(what) + " " + path + ": " + error_text(errno);
}

// Code that others may have written is not run.
bool others_can_write(const struct stat& file) { return (file.st_mode & (S_IWGRP | S_IWOTH)) != 0; }
bool is_own_file(const struct stat& file) { return S_ISREG(file.st_mode) && file.st_uid == geteuid(); }

// A descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

Descriptor open_file(const std::string& path, int flags) { return Descriptor(open_at_once(path, flags, 0600)); }

std::string record_of(const KernelCode& code) {
  RecordHead head{};
  head.magic = kRecordMagic;
  head.high = code.id.high;
  head.low = code.id.low;
  head.target_bytes = code.target.size();
  head.name_bytes = code.name.size();
  head.object_bytes = code.object.size();
  head.per_block = code.per_block;
  head.threads = code.threads;
  head.buffers = code.buffers;
  head.sizes = code.sizes;
  std::string bytes = code.target + code.name + code.object;
  bytes.resize(padded(bytes.size()));
  const Sha256::Digest checksum = checksum_of(head, bytes);
  std::memcpy(head.checksum, checksum.data(), sizeof head.checksum);
  return std::string(reinterpret_cast<const char*>(&head), sizeof head) + bytes;
}

// Held while a file is written or replaced. Nobody waits long: if a process was stopped while it held the lock, others
// skip a store.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder) : lock_(open_file(folder + "/lock", O_RDWR | O_CREAT)) {
    constexpr int kTries = 50;
    for (int i = 0; lock_ && flock(lock_.get(), LOCK_EX | LOCK_NB) != 0; ++i) {
      if (i == kTries || (errno != EWOULDBLOCK && errno != EINTR)) {
        is_held_ = i == kTries;
        lock_ = Descriptor();
      } else std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  explicit operator bool() const { return static_cast<bool>(lock_); }
  bool is_held() const { return is_held_; }  // by another process, during all tries

 private:
  Descriptor lock_;
  bool is_held_ = false;
};

}  // namespace

// One of the files, as far as this process has read it.
class KernelCache::File {
 public:
  explicit File(std::string path) : path_(std::move(path)) {}
  ~File() { unmap(); }

  // Notices what other processes have done: another file of that name, or more records.
  void refresh() {
    struct stat now {};
    if (lstat(path_.c_str(), &now) != 0 || !S_ISREG(now.st_mode) || others_can_write(now)) return forget();
    if (now.st_dev == device_ && now.st_ino == inode_ && static_cast<uint64_t>(now.st_size) == mapped_) return;
    if (now.st_dev != device_ || now.st_ino != inode_ || static_cast<uint64_t>(now.st_size) < mapped_) forget();
    map();
  }

  // Null: not there, or damaged.
  std::shared_ptr<KernelCode> read(const KernelId& id) const {
    const auto at = offsets_.find(id);
    if (at == offsets_.end() || !is_whole()) return nullptr;
    RecordHead head;
    std::memcpy(&head, data_ + at->second, sizeof head);
    const char* const bytes = data_ + at->second + sizeof head;
    const Sha256::Digest checksum = checksum_of(head, {bytes, bytes_of(head)});
    if (std::memcmp(checksum.data(), head.checksum, sizeof head.checksum) != 0) return nullptr;
    auto code = std::make_shared<KernelCode>();
    code->id = id;
    code->target.assign(bytes, head.target_bytes);
    code->name.assign(bytes + head.target_bytes, head.name_bytes);
    code->object.assign(bytes + head.target_bytes + head.name_bytes, head.object_bytes);
    code->per_block = head.per_block;
    code->threads = head.threads;
    code->buffers = head.buffers;
    code->sizes = head.sizes;
    return code;
  }

  // Whether the file ends with a whole record, so that more may be appended.
  bool ends_whole() const { return scanned_ == mapped_; }
  uint64_t bytes() const { return mapped_; }
  const std::string& path() const { return path_; }

 private:
  void unmap() {
    if (data_ != nullptr) munmap(const_cast<char*>(data_), mapped_);
    data_ = nullptr;
    mapped_ = 0;
  }
  void forget() {
    unmap();
    offsets_.clear();
    scanned_ = device_ = inode_ = 0;
    file_ = Descriptor();
  }

  // If somebody has truncated the file since it was mapped, memory after its end must not be touched.
  bool is_whole() const {
    struct stat now {};
    return fstat(file_.get(), &now) == 0 && static_cast<uint64_t>(now.st_size) >= mapped_;
  }

  void map() {
    unmap();
    if (!file_) file_ = open_file(path_, O_RDONLY);
    struct stat now {};
    if (!file_ || fstat(file_.get(), &now) != 0 || !is_own_file(now) || others_can_write(now)) return forget();
    device_ = now.st_dev;
    inode_ = now.st_ino;
    const auto bytes = static_cast<uint64_t>(now.st_size);
    if (bytes < sizeof kFileHead) return;
    void* const data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file_.get(), 0);
    if (data == MAP_FAILED) return forget();
    data_ = static_cast<const char*>(data);
    mapped_ = bytes;
    scan();
  }

  // Finds the records, from where the last scan ended. Stops at the first bytes that are not a record.
  void scan() {
    if (scanned_ == 0) {
      if (std::memcmp(data_, kFileHead, sizeof kFileHead) != 0) return;
      scanned_ = sizeof kFileHead;
    }
    while (mapped_ - scanned_ >= sizeof(RecordHead)) {
      RecordHead head;
      std::memcpy(&head, data_ + scanned_, sizeof head);
      if (!has_possible_lengths(head) || bytes_of(head) > mapped_ - scanned_ - sizeof head) return;
      offsets_[{head.high, head.low}] = scanned_;
      scanned_ += sizeof head + bytes_of(head);
    }
  }

  const std::string path_;
  Descriptor file_;
  const char* data_ = nullptr;
  uint64_t mapped_ = 0, scanned_ = 0;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::unordered_map<KernelId, uint64_t> offsets_;
};

KernelCache::KernelCache(std::string folder, int64_t most_bytes)
    : folder_(std::move(folder)),
      most_bytes_(most_bytes),
      young_(std::make_unique<File>(folder_ + "/kernels.new")),
      old_(std::make_unique<File>(folder_ + "/kernels.old")) {}
KernelCache::~KernelCache() = default;

Result<std::unique_ptr<KernelCache>> KernelCache::open(const std::string& folder, int64_t most_bytes) {
  const auto refused = [&](const std::string& why,
                           const char* advice = "name a folder that is yours alone (chmod 700)") {
    return Error{Reason::bad_setting, "the kernel cache " + folder + " is not used: " + why + "; " + advice};
  };
  if (folder.empty() || folder[0] != '/') return refused("its path is not absolute", "begin it with /");
  if (most_bytes < 1)
    return refused("it may hold no bytes",
                   "allow it a megabyte or more (FRAMEJIT_CACHE_MB, or max_mb= of framejit.cache())");
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return refused("it cannot be made: " + open_error_text(errno, folder),
                   "name a folder that exists, or one in a folder in which you may write (FRAMEJIT_CACHE_DIR, or "
                   "framejit.cache())");
  struct stat is {};
  if (lstat(folder.c_str(), &is) != 0)
    return refused(reason("cannot read", folder), "name a folder that you may read and write");
  if (!S_ISDIR(is.st_mode))
    return refused(S_ISLNK(is.st_mode) ? "it is a link" : "it is not a directory", "give the path of a directory");
  if (is.st_uid != geteuid())
    return refused("it belongs to user " + std::to_string(is.st_uid) + ", not to " + std::to_string(geteuid()));
  if (others_can_write(is)) return refused("others can write it");
  return std::unique_ptr<KernelCache>(new KernelCache(folder, most_bytes));
}

std::shared_ptr<const KernelCode> KernelCache::find(const KernelId& id, const std::string& target,
                                                    const std::string& text) {
  std::string failure;
  std::unique_lock lock(mutex_);
  young_->refresh();
  std::shared_ptr<KernelCode> code = young_->read(id);
  bool is_old = false;
  if (!code) {
    old_->refresh();
    code = old_->read(id);
    is_old = code != nullptr;
  }
  if (!code || code->target != target) return ++misses_, nullptr;
  ++hits_;
  if (is_old) append(*code, failure);
  lock.unlock();
  say(failure);
  code->text = text;
  return code;
}

void KernelCache::store(const KernelCode& code) {
  std::string failure;
  {
    const std::lock_guard lock(mutex_);
    if (append(code, failure)) ++stored_;
  }
  say(failure);
}

// Logs the first failure. Call it without the mutex: listeners may wait for the GIL.
void KernelCache::say(const std::string& failure) {
  if (!failure.empty() && !has_said_.exchange(true))
    log::emit(log::Kind::NotWritten, "",
              {{"path", young_->path()}, {"reason", failure}, {"setting", "FRAMEJIT_CACHE_DIR"}});
}

// Call it with the mutex held. Kernels that another process has written meanwhile are not written again. `failure` says
// what the system refuses; a lock that another process holds, and a kernel that is too large, are not failures.
bool KernelCache::append(const KernelCode& code, std::string& failure) {
  const auto refused = [&] { return failure = error_text(errno), false; };
  const std::string record = record_of(code);
  const auto half = static_cast<uint64_t>(most_bytes_) / 2;
  if (sizeof kFileHead + record.size() > half) return false;
  const FolderLock folder(folder_);
  if (!folder && !folder.is_held()) failure = "the file lock next to it: " + error_text(errno);
  if (!folder) return false;
  young_->refresh();
  if (young_->read(code.id)) return false;
  const bool is_full = young_->bytes() + record.size() > half;
  if (young_->bytes() > 0 && (is_full || !young_->ends_whole())) {
    if (rename(young_->path().c_str(), old_->path().c_str()) != 0) return refused();
    young_->refresh();
  }
  const Descriptor file = open_file(young_->path(), O_WRONLY | O_APPEND | O_CREAT);
  struct stat is {};
  if (!file || fstat(file.get(), &is) != 0) return refused();
  if (!is_own_file(is)) return failure = "it is not a regular file of this user", false;
  if (others_can_write(is)) return failure = "others can write it (chmod 600 forbids it)", false;
  const std::string head = is.st_size == 0 ? std::string(kFileHead, sizeof kFileHead) : "";
  return write_whole(file.get(), head + record) || refused();
}

namespace {

std::mutex g_mutex;
std::shared_ptr<KernelCache> g_cache;

}  // namespace

std::shared_ptr<KernelCache> kernel_cache() {
  const std::lock_guard lock(g_mutex);
  return g_cache;
}

void set_kernel_cache(std::shared_ptr<KernelCache> cache) {
  const std::lock_guard lock(g_mutex);
  g_cache = std::move(cache);
}

}  // namespace framejit::runtime
