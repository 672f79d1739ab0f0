// frame_hook/resume/entries.h — what the driver keeps: entries, and an account of what compiles cost and gained.
//
// An account belongs to one instruction and one set of options. The first compiles are free, up to the limit of
// entries. At the limit, or when many entries in a row died before they had been used much, hits must pay for a
// compile. So a working set that outgrew the limit is replaced slowly, and a program that makes new objects in each
// call is left alone. A number that becomes a symbol also pays for a compile: older entries that have it as a constant
// are hardly used any more. Counts decide, never the clock, so equal programs get equal decisions. The GIL guards
// everything here.
//
// Every live nn.Module has a limit of its own for its methods, because layers that differ in a number are separate
// programs. But any module can use the entries of another. All modules together have kMostLimits times as many. Entries
// of modules that are gone count for everybody. They are replaced first after framejit.compile() is called again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "frame_hook/hook/code_state.h"
#include "frame_hook/hook/live_frame.h"
#include "frame_hook/resume/segment.h"

namespace framejit::frame_hook {

using Options = std::shared_ptr<const CompileOptions>;

struct SegmentEntry final : EntryBase {
  explicit SegmentEntry(std::unique_ptr<Segment> s) : segment(std::move(s)) {}
  std::shared_ptr<Segment> segment;       // a running call keeps it through a reset
};

inline Segment& segment_of(const std::unique_ptr<EntryBase>& entry) {
  return *static_cast<SegmentEntry&>(*entry).segment;
}

struct CodeNote final : EntryBase {
  TraceHints hints;
  // The id of log events: a number that the code object gets at its first compile, and how often it was compiled.
  uint64_t number = 0;
  uint64_t compiles = 0;
  bool was_called = false;                // under a stance that compiles in the second call
  bool is_candidate = false;              // FRAMEJIT=1: its name qualifies
  int64_t calls = 0;                      // FRAMEJIT=1: calls that could have been compiled
  int calls_without_tensors = 0;          // FRAMEJIT=1: in a row
  // FRAMEJIT=1, of a function: compiles in a row that did not reach its return, or found no tensor work.
  int vain_tries = 0;
  bool functions_left_alone = false;
};

constexpr uint64_t kHitsThatPay = 8;  // an entry with tensor work and this many hits is no loss
constexpr uint64_t kHitsToEarn = 16;      // at one instruction, since the last compile that had to be earned
constexpr int kMostLosses = 32;  // in a row; an entry without tensor work counts as kPlainLoss
constexpr int kPlainLoss = 4;
constexpr size_t kMostLimits = 16;  // at one instruction, for all modules together: every call looks at all entries

enum class EntryLimit : uint8_t {
  none,
  entry_limit,  // the limit is reached, and there are too few hits to evict an entry
  limit_of_modules,  // the same for all modules together: kMostLimits * FRAMEJIT_ENTRIES
  does_not_pay,
};

struct Account {
  std::weak_ptr<const CompileOptions> options;
  uint64_t hits_of_gone = 0;              // with tensor work, of entries that no longer exist
  uint64_t hits_spent = 0;                // all hits at the time when hits last paid for a compile
  uint64_t request = 0;                   // requests() when the losses began
  int losses = 0;                         // in a row
  int outgrown = 0;                       // compiles that made more numbers symbols
  bool limit_is_said = false, loss_is_said = false;
  bool failed = false;                    // a compile ran into a defect of ours
};

struct SiteNote final : EntryBase {
  std::vector<Account> accounts;
};

CodeNote& note_of(CodeState& state);
std::string next_id(CodeNote& note);
Account& account_of(Site& site, const Options& options);  // valid until the next call
bool has_failed(const Site& site, const Options& options);

// The module whose method the frame runs, or null; borrowed.
PyObject* self_of(const LiveFrame& frame);
// "model.py:31 Net.forward": the line of the frame's next instruction. Code that nn.Module itself runs when a module is
// called is named after the forward of the module's class.
std::string place_itself(const LiveFrame& frame);
// The same. If it is in library code, the line of the program that led there stands before it.
std::string place(const LiveFrame& frame);

// Entries of other settings, or of other live modules, do not count. self: the module whose method runs, or null.
size_t entries_with(const Site& site, const Options& options, PyObject* self);

// Takes out the entries that can never fit again. The caller frees them, which may run Python code. Those of other
// options do not count as losses. why: the reason for one with these options, or null.
std::vector<std::unique_ptr<EntryBase>> take_dead_entries(Site& site, const Options& options, const char*& why);

// Whether a compile is allowed here. `none`: it is, and has been paid for. If the limit was reached, the least recently
// used entry is moved to `evicted`.
EntryLimit ask_account(Site& site, const Options& options, PyObject* self,
                       std::vector<std::unique_ptr<EntryBase>>& evicted);

// framejit.compile() was called: the code gets new tries, whatever objects died before.
void count_request();
uint64_t requests();

}  // namespace framejit::frame_hook
