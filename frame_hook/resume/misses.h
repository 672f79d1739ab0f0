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

  // Counts and logs, once, why no entry fits: what has changed for the entry that comes closest, and what to do.
  // Numbers that differ from those of an entry are symbols from now on. died: why entries were dropped, or null; it is
  // the reason if no other entry is left.
  void explain(const char* died);
  // Counts a plain run. Says, once, that no more entries are made here, and which guard of the newest entry fails now.
  void count_limit(EntryLimit limit);
  std::string failing_guards() const;
  // fullgraph=True promises that nothing runs plainly: if no entry fits and no more may be made, the error says which
  // guards fail.
  std::string limit_error(EntryLimit limit) const;

 private:
  struct Explanation {
    std::string guard;  // "L['x'].size(0) == 3 but is 4", for programs
    std::string change, hint, at;
  };
  // The failed guard of a segment for the user; at: the line that asked for the guard.
  Explanation explanation_of(const Segment& segment, const guards::GuardFailure& failure,
                             guards::Symbols symbols) const;
  guards::Symbols symbols_after(const Segment& segment, const guards::GuardFailure& failure) const;
  size_t own_entries() const { return entries_with(site_, options_, self_of(frame_)); }

  const LiveFrame& frame_;
  const Options& options_;
  const guards::FrameAccess& access_;
  Site& site_;
};

}  // namespace framejit::frame_hook
