// frame_hook/resume/misses.h — why no entry fits a call: counted, logged, and noted for the next trace.
//
// It exists during one miss, and borrows everything that it refers to.
#pragma once

#include <string>

#include "frame_hook/resume/entries.h"

namespace framejit::frame_hook {

class Misses final {
 public:
  Misses(const LiveFrame& frame, const Options& options, const guards::FrameAccess& access, Site& site)
      : frame_(frame), options_(options), access_(access), site_(site) {}

  // Counts and logs, once, why no entry fits, with the guard of the entry that comes closest. Numbers that differ from
  // those of an entry are symbols from now on. died: why entries were dropped, or null; it is the reason if no other
  // entry is left.
  void explain(const char* died);
  // Says, once, that no more entries are made here, and which guard of the newest entry fails now.
  void log_limit(EntryLimit limit);
  std::string failing_guards() const;
  // fullgraph=True promises that nothing runs plainly: if no entry fits and no more may be made, the error says which
  // guards fail.
  std::string limit_error(EntryLimit limit) const;

 private:
  size_t own_entries() const { return entries_with(site_, options_, self_of(frame_)); }

  const LiveFrame& frame_;
  const Options& options_;
  const guards::FrameAccess& access_;
  Site& site_;
};

}  // namespace framejit::frame_hook
