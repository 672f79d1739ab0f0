// runtime/write_watch.cpp — who owns which pages, also after a fork.
//
// Ranges may share pages. A page has a single protection flag, so arming one range would make a shared page look
// unwritten to the others. Therefore the call that protects shared pages also reports which of them were written, and
// other ranges with such a page are marked as written. The end of a range only unprotects pages that no other range
// has.
#include "runtime/write_watch.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

namespace framejit::runtime {

struct WriteWatch::Watched {
  const PageRange pages;
  PageRange reach;          // what the system watches: the pages, and other pages of the caller next to them
  bool is_added = false;    // in this process, not in the one that it was forked from
  bool was_written = true;  // since it was armed. The mutex guards these three.
};

namespace {

std::string text_of(const PageRange& pages) {
  char text[64];
  std::snprintf(text, sizeof text, "memory at 0x%llx, %llu bytes: ", static_cast<unsigned long long>(pages.begin),
                static_cast<unsigned long long>(pages.end - pages.begin));
  return text;
}

struct Part {
  PageRange pages;
  bool is_shared;
};
// The range, cut at the borders of other ranges.
std::vector<Part> parts_of(const PageRange& range, std::vector<PageRange> others) {
  std::sort(others.begin(), others.end(), [](const PageRange& a, const PageRange& b) { return a.begin < b.begin; });
  std::vector<Part> parts;
  PageRange rest = range;
  const auto take = [&](uintptr_t end, bool is_shared) {
    end = std::min(end, range.end);
    if (end <= rest.begin) return;
    parts.push_back({rest, is_shared});
    parts.back().pages.end = end;
    rest.begin = end;
  };
  for (const PageRange& other : others) {
    take(other.begin, false);
    take(other.end, true);
  }
  take(range.end, false);
  return parts;
}

}  // namespace

WriteWatch& WriteWatch::instance() {
  static WriteWatch& watch = *new WriteWatch;  // outlives every handle
  return watch;
}

// A fork waits until nobody changes anything. The child gets a new mutex: the old one is locked by a thread that does
// not exist there. The old one is not freed.
WriteWatch::WriteWatch() : mutex_(new std::shared_mutex) {
  pthread_atfork([] { instance().mutex_->lock(); }, [] { instance().mutex_->unlock(); },
                 [] { instance().mutex_ = new std::shared_mutex; });
}

// The mutex must be held. Ranges that a parent process armed are no longer armed.
void WriteWatch::open_locked() {
  if (pages_.is_open_here()) return;
  for (Watched* watched : watched_) {
    watched->is_added = false;
    watched->was_written = true;
  }
  unavailable_ = pages_.open();
}

const std::string& WriteWatch::unavailable() {
  {
    const std::shared_lock lock(*mutex_);
    if (pages_.is_open_here()) return unavailable_;
  }
  const std::lock_guard lock(*mutex_);
  open_locked();
  return unavailable_;
}

// Whether the pages may be watched; sets whether they are of a file. Takes no lock.
WriteWatch::Refused WriteWatch::kind_of(PageRange& pages) {
  pages.is_of_file = false;
  uintptr_t mapped = pages.begin;
  for (const Mapping& mapping : mappings_of(pages)) {
    if (mapping.is_shared)
      return {NotWatched::kShared, text_of(pages) + "it is shared, other processes write it unseen"};
    if (mapping.is_huge) return {NotWatched::kFailed, text_of(pages) + "huge pages of hugetlbfs are not watched"};
    if (mapping.begin != mapped) break;
    mapped = mapping.end;
    pages.is_of_file = pages.is_of_file || mapping.is_of_file;
  }
  if (mapped != pages.end || mapped == pages.begin) return {NotWatched::kFailed, text_of(pages) + "it is not mapped"};
  return {};
}

// Makes pages of files anonymous. A read-only mapping is fine if it has no file pages.
WriteWatch::Refused WriteWatch::prepare(PageRange& pages) {
  if (Refused refused = kind_of(pages); refused || !pages.is_of_file) return refused;
  int64_t missing = static_cast<int64_t>(pages.end - pages.begin);
  {
    const std::shared_lock lock(*mutex_);
    missing -= pages_.private_bytes(pages);
  }
  if (missing == 0) return {};
  if (const int error = make_anonymous(pages)) {
    const char* const why = error == EINVAL ? "a file that is mapped to be read only" : std::strerror(error);
    return {NotWatched::kNoMemory, text_of(pages) + "its pages cannot become copies of this process: " + why};
  }
  bytes_made_anonymous_ += static_cast<uint64_t>(missing);
  return {};
}

// The mutex must be held. Only other ranges that are still unwritten count: they still own the pages that they
// protected. Stale protection (mremap keeps it on some systems) is set again.
WriteWatch::Refused WriteWatch::protect(Watched& watched) {
  const PageRange& pages = watched.pages;
  watched.was_written = true;
  std::vector<Watched*> others;
  std::vector<PageRange> shared;
  for (Watched* other : watched_) {
    if (other == &watched || other->was_written || !other->pages.overlaps(pages)) continue;
    other->was_written = !pages_.are_protected(other->pages);
    if (other->was_written) continue;
    others.push_back(other);
    shared.push_back(other->pages);
  }
  int error = pages_.add(watched.reach);
  if (error != 0) watched.reach = pages, error = pages_.add(pages);
  if (error == 0) watched.is_added = true;
  for (const Part& part : parts_of(pages, std::move(shared))) {
    if (error != 0) break;
    if (!part.is_shared) {
      error = pages_.protect(part.pages);
      continue;
    }
    error = pages_.protect_and_tell(part.pages, [&](const PageRange& piece) {
      for (Watched* other : others)
        if (other->pages.overlaps(piece)) other->was_written = true;
    });
  }
  if (error != 0) {
    for (Watched* other : others) other->was_written = true;
    std::string why = std::strerror(error);
    if (error == EBUSY) why = "something else in this process watches it (userfaultfd)";
    if (error == ENOMEM) why += "; if the process has many mappings, raise vm.max_map_count";
    return {NotWatched::kFailed, text_of(pages) + why};
  }
  if (pages_.has_pages_of_files(pages))
    return {pages.is_of_file ? NotWatched::kNoMemory : NotWatched::kShared, text_of(pages) + "it has pages of a file"};
  watched.was_written = false;
  return {};
}

// Checks the mapping again after arming: the range may have been remapped before it was added.
WriteWatch::Refused WriteWatch::arm(Watched& watched) {
  if (const std::string& why = unavailable(); !why.empty()) return {NotWatched::kUnavailable, why};
  PageRange pages = watched.pages;
  Refused refused = prepare(pages);
  const std::lock_guard lock(*mutex_);
  if (!refused) refused = protect(watched);
  if (!refused) refused = kind_of(pages);
  if (!refused && pages.is_of_file && !watched.pages.is_of_file)
    refused = {NotWatched::kFailed, text_of(pages) + "a file was mapped there since it was first watched"};
  if (refused) watched.was_written = true;
  return refused;
}

WriteWatch::Answer WriteWatch::watch(const void* begin, size_t bytes, size_t before, size_t after) {
  const auto answer = [](Refused refused) { return Answer{nullptr, refused.reason, std::move(refused.why)}; };
  if (const std::string& why = unavailable(); !why.empty()) return answer({NotWatched::kUnavailable, why});
  PageRange pages = pages_around(begin, bytes);
  if (Refused refused = kind_of(pages)) return answer(std::move(refused));
  PageRange reach = pages_around(static_cast<const char*>(begin) - before, before + bytes + after);
  if (pages.is_of_file || kind_of(reach) || reach.is_of_file) reach = pages;
  Handle handle(new Watched{pages, reach}, [this](Watched* watched) { end(watched); });
  {
    const std::lock_guard lock(*mutex_);
    watched_.push_back(handle.get());
  }
  if (Refused refused = arm(*handle)) return answer(std::move(refused));
  return {std::move(handle), NotWatched::kNone, {}};
}

bool WriteWatch::arm(const Handle& handle) { return handle && !arm(*handle); }

bool WriteWatch::written(const std::vector<Handle>& handles) { return Question(handles).written(); }

void WriteWatch::end(Watched* watched) {
  const std::unique_ptr<Watched> owned(watched);
  const std::lock_guard lock(*mutex_);
  std::erase(watched_, watched);
  if (!watched->is_added || !pages_.is_open_here()) return;
  std::vector<PageRange> others;
  for (const Watched* other : watched_)
    if (other->is_added && other->reach.overlaps(watched->reach)) others.push_back(other->reach);
  for (const Part& part : parts_of(watched->reach, std::move(others)))
    if (!part.is_shared) pages_.remove(part.pages);
}

// Queries about ranges of files work differently, so these are not joined with others.
WriteWatch::Question::Question(std::vector<Handle> handles) : handles_(std::move(handles)) {
  std::vector<std::pair<PageRange, PageRange>> sorted;
  {
    const std::shared_lock lock(*instance().mutex_);
    for (const Handle& handle : handles_)
      if (handle) sorted.emplace_back(handle->pages, handle->reach);
  }
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.is_of_file, a.first.begin) < std::pair(b.first.is_of_file, b.first.begin);
  });
  for (const auto& [pages, reach] : sorted) join(pages, reach);
}

void WriteWatch::Question::join(const PageRange& pages, const PageRange& reach) {
  ranges_.push_back(pages);
  Joined* const last = joined_.empty() ? nullptr : &joined_.back();
  const bool joins = last != nullptr && last->pages.is_of_file == pages.is_of_file && reach.begin <= last->reach.end;
  if (!joins) return joined_.push_back({pages, reach, ranges_.size() - 1, 1, {}});
  if (pages.begin > last->pages.end) last->gaps.push_back({last->pages.end, pages.begin});
  last->pages.end = std::max(last->pages.end, pages.end);
  last->reach.end = std::max(last->reach.end, reach.end);
  last->count += 1;
}

bool WriteWatch::Question::written() const {
  if (handles_.empty()) return false;
  WriteWatch& watch = instance();
  const std::shared_lock lock(*watch.mutex_);
  if (!watch.pages_.is_open_here()) return true;
  for (const Handle& handle : handles_)
    if (!handle || handle->was_written) return true;
  for (const Joined& one : joined_) {
    if (one.gaps.empty() ? watch.pages_.are_protected(one.pages)
                         : watch.pages_.are_protected_but_for(one.gaps, one.pages))
      continue;
    if (one.gaps.empty()) return true;
    for (size_t i = one.first; i < one.first + one.count; ++i)  // perhaps only a gap has changed
      if (!watch.pages_.are_protected(ranges_[i])) return true;
  }
  return false;
}

}  // namespace framejit::runtime
