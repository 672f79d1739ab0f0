// runtime/protected_pages.h — the system calls under the write watch: userfaultfd, PAGEMAP_SCAN, /proc/self/maps.
//
// Pages are added (the system learns that their protection matters), protected, and queried. A page that is not
// protected counts as written. While a call protects pages or opens this object, no other call may run. Queries may run
// concurrently.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace framejit::runtime {

struct PageRange {
  uintptr_t begin = 0, end = 0;  // whole pages
  bool is_of_file = false;       // some pages lie in private mappings of files

  bool overlaps(const PageRange& other) const { return begin < other.end && other.begin < end; }
};
PageRange pages_around(const void* begin, uint64_t bytes);

// A piece of a range, as it was mapped in this process when it was queried.
struct Mapping {
  uintptr_t begin, end;
  bool is_shared, is_of_file, is_writable, is_huge;  // is_huge: of reserved huge pages (hugetlbfs)

  bool operator==(const Mapping&) const = default;
};
// The mappings in the range, in order of address. By query: one system call each (Linux 6.11; empty if there is no such
// call, or nothing is mapped). By text: reads /proc/self/maps, which does not show is_huge.
std::vector<Mapping> mappings_by_query(const PageRange& range);
std::vector<Mapping> mappings_by_text(const PageRange& range);
std::vector<Mapping> mappings_of(const PageRange& range);

class ProtectedPages {
 public:
  ProtectedPages() = default;
  ProtectedPages(const ProtectedPages&) = delete;

  // Once per process. Returns why pages cannot be protected here and what to do, or nothing. A child closes the files
  // that it inherited.
  std::string open();
  bool is_open_here() const;  // called in this process, with whatever result; false in a forked child

  // Return 0 or an errno.
  int add(const PageRange& range);  // does not change pages that were added before
  int protect(const PageRange& range);
  // The same. Also reports every piece that was not protected at that moment, or is no longer the protected memory.
  int protect_and_tell(const PageRange& range, const std::function<void(const PageRange&)>& found);
  void remove(const PageRange& range);

  // Whether all pages are still the protected ones, and still protected. One call that walks page tables; for files it
  // also looks at each page.
  bool are_protected(const PageRange& range) const;
  // The same for a range with gaps, in order of address: pages that were added, and may be written. Also false if the
  // system cannot tell. Not for files.
  bool are_protected_but_for(const std::vector<PageRange>& gaps, const PageRange& range) const;

  bool has_pages_of_files(const PageRange& range) const;  // or shared ones; true if there is no answer
  int64_t private_bytes(const PageRange& range) const;  // of pages that are present and not of a file

 private:
  int userfault_ = -1, pagemap_ = -1;
  unsigned char* opened_ = nullptr;  // a page that a fork wipes
  bool tells_of_holes_ = false;
};

// Gives this process its own copies of the pages of a private mapping. 0 or an errno.
int make_anonymous(const PageRange& range);

}  // namespace framejit::runtime
