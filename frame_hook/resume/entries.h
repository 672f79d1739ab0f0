// frame_hook/resume/entries.h — what the driver keeps: entries, and an account of what compiles cost and gave.
//
// An account belongs to one instruction and one set of options. As many compiles as there is room for are free. Once
// the room is full, or many entries in a row died before they had been used much, a compile must be earned by hits. So
// a working set that outgrew the room moves on slowly, and a program that makes its objects anew in each call is left
// alone. A number that becomes a symbol earns one too: older entries that have it as a constant are hardly asked for
// any more. Counts decide, never the clock: equal programs get equal decisions. The GIL guards everything here.
//
// Every live nn.Module has the whole room for its own methods, although all use the entries of all: layers that differ
// in a number are as many programs. All together have kMostRooms rooms. What is left of modules that are gone takes
// everybody's room, and gives way once framejit.compile() has been called anew.
#pragma once

#include <memory>
#include <optional>
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
  uint64_t number =
      0;  // of the code object, from its first compile on, and how often it was compiled: the id of log events
  uint64_t compiles = 0;
  bool was_called = false;                // under a stance that compiles in the second call
  bool is_candidate = false;              // FRAMEJIT=1: by its name
  int64_t calls = 0;                      // FRAMEJIT=1: that could have been compiled
  int calls_without_tensors = 0;          // FRAMEJIT=1: in a row
  int vain_tries =
      0;  // FRAMEJIT=1, of a function: compiles in a row that did not reach its return, or found no tensor work
  bool functions_left_alone = false;
};

constexpr uint64_t kHitsThatPay = 8;      // of an entry with tensor work, to be no loss
constexpr uint64_t kHitsToEarn = 16;      // at one instruction, since the last compile that had to be earned
constexpr int kMostLosses = 32;           // in a row; an entry without tensor work loses more
constexpr int kPlainLoss = 4;
constexpr size_t kMostRooms = 16;  // at one instruction, of all modules together: every call looks at all entries

enum class Refusal : uint8_t {
  none,
  no_room,       // as many entries as there may be, and too few hits for one of them to go
  no_room_of_modules,  // the same of all modules: kMostRooms * FRAMEJIT_ENTRIES
  does_not_pay,
};

struct Account {
  std::weak_ptr<const CompileOptions> options;
  uint64_t hits_of_gone = 0;              // with tensor work, of entries that are no longer there
  uint64_t hits_spent = 0;                // all hits when a compile was last earned
  uint64_t request = 0;                   // requests() when the losses began
  int losses = 0;                         // in a row
  int outgrown = 0;                       // compiles that made more numbers symbols
  bool limit_is_said = false, loss_is_said = false;
  bool failed = false;                    // a compile met a defect of ours
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
// "model.py:31 Net.forward": the line of the frame's next instruction. What nn.Module itself runs when a module is
// called is named by the forward of the module's class.
std::string place(const LiveFrame& frame);

// Entries of other settings, or of other live modules, take nobody's room. self: the module whose method runs, or null.
size_t entries_with(const Site& site, const Options& options, PyObject* self);

// Takes out the entries that never fit again. The caller frees them, which may run Python code. Those of other options
// are not booked. why: of one with these options, else null.
std::vector<std::unique_ptr<EntryBase>> take_dead_entries(Site& site, const Options& options, const char*& why);

// Whether a compile may be made here. `none` spends what it takes; where there was no room, the entry that was not used
// for longest is moved to `evicted`.
Refusal ask_account(Site& site, const Options& options, PyObject* self,
                    std::vector<std::unique_ptr<EntryBase>>& evicted);

// framejit.compile() was called: whoever asks anew is given new tries, whatever objects died before.
void count_request();
uint64_t requests();

}  // namespace framejit::frame_hook
