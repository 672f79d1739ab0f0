// runtime/protected_pages.cpp — the interfaces of the Linux kernel, declared here because a build's headers may be too
// old, and the gaps in their answers.
//
// PAGEMAP_SCAN does not report addresses where nothing is mapped. msync(MS_ASYNC), which writes nothing, does. Some
// kernels do not report places without a page table as written. One trial finds that out. On these kernels, a second
// call asks for such places, which takes longer than the first.
// In private mappings of files, a page that is dropped (MADV_DONTNEED, a truncated file) leaves its protection behind,
// and the page of the file that replaces it looks protected. So there, each page is checked for being a page of a file.
#include "runtime/protected_pages.h"

#ifdef __linux__

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace framejit::runtime {
namespace {

// linux/userfaultfd.h
#ifdef SYS_userfaultfd
constexpr long kUserfault = SYS_userfaultfd;
#elif defined(__x86_64__)
constexpr long kUserfault = 323;
#else
constexpr long kUserfault = 282;
#endif
constexpr int kUserModeOnly = 1;
struct Api {
  uint64_t version, features, calls;
};
struct Stretch {
  uint64_t begin, bytes;
};
struct Registration {
  Stretch pages;
  uint64_t mode, calls;
};
struct Protection {
  Stretch pages;
  uint64_t mode;
};
constexpr uint64_t kVersion = 0xAA, kRegisterToProtect = 1 << 1, kProtect = 1 << 0;
constexpr uint64_t kUnpopulated = uint64_t{1} << 13, kAsynchronous = uint64_t{1} << 15;
constexpr unsigned long kNewUserfault = _IO(0xAA, 0x00), kApi = _IOWR(0xAA, 0x3F, Api),
                        kRegister = _IOWR(0xAA, 0x00, Registration), kUnregister = _IOR(0xAA, 0x01, Stretch),
                        kWriteProtect = _IOWR(0xAA, 0x06, Protection);
// asm-generic/mman-common.h
constexpr int kWipeOnFork = 18, kPopulateWrite = 23;
// linux/fs.h
enum Category : uint64_t { kWritten = 1 << 1, kOfFile = 1 << 2, kPresent = 1 << 3, kSwapped = 1 << 4 };
enum ScanFlag : uint64_t { kProtectMatching = 1 << 0, kOnlyWatched = 1 << 1 };
struct FoundRange {
  uint64_t begin, end, categories;
};
struct Scan {
  uint64_t size, flags, begin, end, walk_end, regions, region_count, most_pages;
  uint64_t inverted, all_of, any_of, returned;  // categories
};
constexpr unsigned long kScan = _IOWR('f', 16, Scan);
struct MapQuery {
  uint64_t size, flags, address;
  uint64_t begin, end, vma_flags, page_size, offset, inode;
  uint32_t major, minor, name_bytes, build_id_bytes;
  uint64_t name, build_id;
};
constexpr unsigned long kMapQuery = _IOWR('f', 17, MapQuery);
constexpr uint64_t kWritableMap = 0x02, kSharedMap = 0x08, kCoveringOrNext = 0x10;
static_assert(sizeof(Scan) == 96 && sizeof(MapQuery) == 104);

uint64_t page_size() {
  static const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}
void* pointer(uintptr_t address) { return reinterpret_cast<void*>(address); }

Stretch stretch_of(const PageRange& range) { return {range.begin, range.end - range.begin}; }

void close_and_forget(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

// If the system call is refused, /dev/userfaultfd may be allowed.
int open_userfault() {
  const int fd = static_cast<int>(syscall(kUserfault, O_CLOEXEC | O_NONBLOCK | kUserModeOnly));
  if (fd >= 0) return fd;
  const int error = errno;
  const int device = ::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  const int made = device < 0 ? -1 : ioctl(device, kNewUserfault, O_CLOEXEC | O_NONBLOCK | kUserModeOnly);
  if (device >= 0) close(device);
  errno = error;
  return made;
}

Scan scan_of(const PageRange& range) {
  Scan scan{};
  scan.size = sizeof scan;
  scan.begin = range.begin;
  scan.end = range.end;
  return scan;
}

// Whether no page has these categories. Stops at the first one.
bool has_none(int pagemap, const PageRange& range, uint64_t inverted, uint64_t all_of, uint64_t any_of) {
  FoundRange region;
  Scan scan = scan_of(range);
  scan.flags = kOnlyWatched;
  scan.regions = reinterpret_cast<uint64_t>(&region);
  scan.region_count = 1;
  scan.most_pages = 1;
  scan.inverted = inverted;
  scan.all_of = all_of;
  scan.any_of = any_of;
  scan.returned = kWritten;
  return ioctl(pagemap, kScan, &scan) == 0;
}

}  // namespace

PageRange pages_around(const void* begin, uint64_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t mask = page_size() - 1;
  return {address & ~mask, (address + bytes + mask) & ~mask};
}

std::vector<Mapping> mappings_by_query(const PageRange& range) {
  std::vector<Mapping> mappings;
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return mappings;
  for (uintptr_t at = range.begin; at < range.end; at = mappings.back().end) {
    MapQuery query{};
    query.size = sizeof query;
    query.flags = kCoveringOrNext;
    query.address = at;
    if (ioctl(maps, kMapQuery, &query) != 0 || query.begin >= range.end) break;
    mappings.push_back({std::max<uintptr_t>(query.begin, range.begin), std::min<uintptr_t>(query.end, range.end),
                        (query.vma_flags & kSharedMap) != 0, query.inode != 0, (query.vma_flags & kWritableMap) != 0,
                        query.page_size > page_size()});
  }
  close(maps);
  return mappings;
}

std::vector<Mapping> mappings_by_text(const PageRange& range) {
  std::vector<Mapping> mappings;
  FILE* const maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return mappings;
  char* line = nullptr;
  size_t bytes = 0;
  while (getline(&line, &bytes, maps) > 0) {
    uint64_t begin = 0, end = 0, inode = 0;
    char can[5] = "";
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %*s %*s %" SCNu64, &begin, &end, can, &inode) != 4) break;
    if (end <= range.begin || begin >= range.end) continue;
    mappings.push_back({std::max<uintptr_t>(begin, range.begin), std::min<uintptr_t>(end, range.end), can[3] == 's',
                        inode != 0, can[1] == 'w', false});
  }
  std::free(line);
  std::fclose(maps);
  return mappings;
}

std::vector<Mapping> mappings_of(const PageRange& range) {
  std::vector<Mapping> mappings = mappings_by_query(range);
  return mappings.empty() ? mappings_by_text(range) : mappings;
}

std::string ProtectedPages::open() {
  close_and_forget(userfault_);
  close_and_forget(pagemap_);
  const std::string cannot = "writes to memory cannot be watched: ";
  if (opened_ == nullptr) {
    void* const page = mmap(nullptr, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return cannot + "there is no memory";
    if (madvise(page, page_size(), kWipeOnFork) != 0) {
      munmap(page, page_size());
      return cannot + "forks go unseen; use Linux 6.7 or later";
    }
    opened_ = static_cast<unsigned char*>(page);
  }
  *opened_ = 1;
  struct utsname system{};
  uname(&system);
  const std::string too_old =
      cannot + "Linux " + system.release + " has no asynchronous write protection of memory; use Linux 6.7 or later";
  userfault_ = open_userfault();
  if (userfault_ < 0)
    return cannot + "the system call userfaultfd is refused (" + std::strerror(errno) +
           "); allow it in the container's seccomp profile";
  Api api{kVersion, kUnpopulated | kAsynchronous, 0};
  if (ioctl(userfault_, kApi, &api) != 0) return too_old;
  pagemap_ = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (pagemap_ < 0)
    return cannot + "/proc/self/pagemap cannot be opened (" + std::strerror(errno) + "); allow this process to read it";
  const PageRange own = pages_around(opened_, 1);
  Scan scan = scan_of(own);
  FoundRange region;
  scan.regions = reinterpret_cast<uint64_t>(&region);
  scan.region_count = 1;
  scan.all_of = scan.returned = kPresent;
  if (ioctl(pagemap_, kScan, &scan) != 1) return too_old;
  // A place without a page table: the fresh mapping is untouched, and larger than the reach of two tables.
  const uint64_t hole = 4 * page_size() * (page_size() / sizeof(uint64_t));
  void* const untouched =
      mmap(nullptr, hole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (untouched == MAP_FAILED) return {};
  const PageRange middle = pages_around(static_cast<char*>(untouched) + hole / 2, hole / 4);
  tells_of_holes_ = add(middle) == 0 && !has_none(pagemap_, middle, 0, kWritten, 0);
  munmap(untouched, hole);
  return {};
}

bool ProtectedPages::is_open_here() const {
  return opened_ != nullptr && *const_cast<volatile unsigned char*>(opened_) == 1;
}

int ProtectedPages::add(const PageRange& range) {
  Registration request{stretch_of(range), kRegisterToProtect, 0};
  return ioctl(userfault_, kRegister, &request) == 0 ? 0 : errno;
}

void ProtectedPages::remove(const PageRange& range) {
  Stretch pages = stretch_of(range);
  ioctl(userfault_, kUnregister, &pages);
}

int ProtectedPages::protect(const PageRange& range) {
  Protection request{stretch_of(range), kProtect};
  return ioctl(userfault_, kWriteProtect, &request) == 0 ? 0 : errno;
}

// Every page matches, even holes: the system reads and protects each under one lock.
int ProtectedPages::protect_and_tell(const PageRange& range, const std::function<void(const PageRange&)>& found) {
  const uint64_t there = range.is_of_file ? kPresent : kPresent | kSwapped;
  FoundRange regions[32];
  for (uintptr_t done = range.begin; done < range.end;) {
    Scan scan = scan_of({done, range.end});
    scan.flags = kProtectMatching | kOnlyWatched;
    scan.regions = reinterpret_cast<uint64_t>(regions);
    scan.region_count = std::size(regions);
    scan.returned = kWritten | kOfFile | kPresent | kSwapped;
    const int count = ioctl(pagemap_, kScan, &scan);
    if (count < 0) return errno;
    if (count == 0) return ENXIO;
    for (int i = 0; i < count; ++i) {
      const FoundRange& region = regions[i];
      if (region.begin != done) return ENXIO;
      if ((region.categories & (kWritten | kOfFile)) != 0 || (region.categories & there) == 0)
        found({region.begin, region.end});
      done = region.end;
    }
  }
  return 0;
}

bool ProtectedPages::are_protected(const PageRange& range) const {
  if (msync(pointer(range.begin), range.end - range.begin, MS_ASYNC) != 0) return false;
  if (range.is_of_file) return has_none(pagemap_, range, kPresent, 0, kWritten | kOfFile | kPresent);
  constexpr uint64_t kThere = kPresent | kSwapped;
  return (tells_of_holes_ || has_none(pagemap_, range, kThere, kThere, 0)) && has_none(pagemap_, range, 0, kWritten, 0);
}

// Written pieces are reported in order of address, and adjacent ones as one piece: each must lie in a gap.
bool ProtectedPages::are_protected_but_for(const std::vector<PageRange>& gaps, const PageRange& range) const {
  if (!tells_of_holes_ || msync(pointer(range.begin), range.end - range.begin, MS_ASYNC) != 0) return false;
  FoundRange regions[128];
  auto gap = gaps.begin();
  for (uintptr_t done = range.begin; done < range.end;) {
    Scan scan = scan_of({done, range.end});
    scan.flags = kOnlyWatched;
    scan.regions = reinterpret_cast<uint64_t>(regions);
    scan.region_count = std::size(regions);
    scan.all_of = scan.returned = kWritten;
    const int count = ioctl(pagemap_, kScan, &scan);
    if (count < 0 || scan.walk_end <= done) return false;
    for (int i = 0; i < count; ++i) {
      while (gap != gaps.end() && gap->end <= regions[i].begin) ++gap;
      if (gap == gaps.end() || regions[i].begin < gap->begin || regions[i].end > gap->end) return false;
    }
    done = scan.walk_end;
  }
  return true;
}

bool ProtectedPages::has_pages_of_files(const PageRange& range) const {
  return !has_none(pagemap_, range, 0, kOfFile, 0);
}

int64_t ProtectedPages::private_bytes(const PageRange& range) const {
  FoundRange regions[32];
  int64_t bytes = 0;
  for (uintptr_t done = range.begin; done < range.end;) {
    Scan scan = scan_of({done, range.end});
    scan.regions = reinterpret_cast<uint64_t>(regions);
    scan.region_count = std::size(regions);
    scan.inverted = kOfFile;
    scan.all_of = kPresent | kOfFile;
    scan.returned = kPresent;
    const int count = ioctl(pagemap_, kScan, &scan);
    if (count < 0 || scan.walk_end <= done) return bytes;
    for (int i = 0; i < count; ++i) bytes += static_cast<int64_t>(regions[i].end - regions[i].begin);
    done = scan.walk_end;
  }
  return bytes;
}

int make_anonymous(const PageRange& range) {
  for (;;) {
    if (madvise(pointer(range.begin), range.end - range.begin, kPopulateWrite) == 0) return 0;
    if (errno != EINTR) return errno;
  }
}

}  // namespace framejit::runtime

#else

namespace framejit::runtime {

PageRange pages_around(const void*, uint64_t) { return {}; }
std::vector<Mapping> mappings_by_query(const PageRange&) { return {}; }
std::vector<Mapping> mappings_by_text(const PageRange&) { return {}; }
std::vector<Mapping> mappings_of(const PageRange&) { return {}; }
std::string ProtectedPages::open() { return "writes to memory cannot be watched: that needs Linux 6.7 or later"; }
bool ProtectedPages::is_open_here() const { return true; }
int ProtectedPages::add(const PageRange&) { return -1; }
void ProtectedPages::remove(const PageRange&) {}
int ProtectedPages::protect(const PageRange&) { return -1; }
int ProtectedPages::protect_and_tell(const PageRange&, const std::function<void(const PageRange&)>&) { return -1; }
bool ProtectedPages::has_pages_of_files(const PageRange&) const { return true; }
bool ProtectedPages::are_protected(const PageRange&) const { return false; }
bool ProtectedPages::are_protected_but_for(const std::vector<PageRange>&, const PageRange&) const { return false; }
int64_t ProtectedPages::private_bytes(const PageRange&) const { return 0; }
int make_anonymous(const PageRange&) { return -1; }

}  // namespace framejit::runtime

#endif
