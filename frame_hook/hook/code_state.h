// frame_hook/hook/code_state.h — what framejit keeps per code object: its decoded form, and the driver's entries per
// instruction.
//
// A CodeState lives in the code object's co_extra slot and dies with it; so entries must never keep their code alive.
// The driver owns what it derives from EntryBase. reset() drops all sites of all codes; sites and entries that a
// running call may still use are kept until no LiveFrame of their code exists (retired), so reset() during a call is
// safe. The GIL guards everything here.
#pragma once

#include <Python.h>

#include <functional>
#include <memory>
#include <vector>

#include "frame_hook/bytecode/code.h"

namespace framejit::frame_hook {

class EntryBase {
 public:
  virtual ~EntryBase() = default;
};

// What the driver keeps for frames that arrive at one instruction.
struct Site : EntryBase {
  std::vector<std::unique_ptr<EntryBase>> entries;  // in lookup order; the driver may reorder and add
  std::unique_ptr<EntryBase> note;                  // the driver's own counters and decisions for this instruction
};

class CodeState {
 public:
  // The state of a code object, made on first use; null with a Python error set when out of memory.
  static CodeState* of(PyCodeObject* code);
  static CodeState* find(PyCodeObject* code);       // null when there is none; no error

  PyCodeObject* code() const { return code_; }
  CodeState* next() const { return next_; }
  const std::shared_ptr<const Code>& decoded();     // decoded on first use; null with a Python error set
  bool skip = false;                                // the standing hook passes such frames through
  std::unique_ptr<EntryBase> note;                  // the driver's record of the code object as a whole

  Site* find_site(int unit) const;                  // null: nothing known there
  Site& site(int unit);
  void clear();                                     // drops sites and notes
  // Moves the entries for which `which` is true out of all sites. Freeing them may run Python code.
  void take_entries(const std::function<bool(const EntryBase&)>& which, std::vector<std::unique_ptr<EntryBase>>& taken);

  CodeState(const CodeState&) = delete;
  CodeState& operator=(const CodeState&) = delete;
  ~CodeState();

 private:
  explicit CodeState(PyCodeObject* code);
  PyCodeObject* code_;                              // borrowed: the code object owns this state
  std::shared_ptr<const Code> decoded_;
  std::vector<std::unique_ptr<Site>> sites_;        // by code unit, empty until the first site
  CodeState *previous_ = nullptr, *next_ = nullptr; // of all live states
};

void for_each_code_state(const std::function<void(CodeState&)>& visit);  // visit must not free code objects
void reset_code_states();                           // clear() on each
void drop_entries(const std::function<bool(const EntryBase&)>& which);  // of all codes

// A frame of the code is being driven. While one exists, retired entries of the code stay alive, and so do entries
// whose code is not known.
class EntryUse {
 public:
  explicit EntryUse(const PyCodeObject* code) : code_(code), older_(newest_) {
    if (older_) older_->newer_ = this;
    newest_ = this;
  }
  ~EntryUse() {
    (newer_ ? newer_->older_ : newest_) = older_;
    if (older_) older_->newer_ = newer_;
    if (has_retired_) free_retired();
  }
  EntryUse(const EntryUse&) = delete;
  EntryUse& operator=(const EntryUse&) = delete;

 private:
  friend void retire_entry(std::unique_ptr<EntryBase> entry, const PyCodeObject* code);
  static bool is_used(const PyCodeObject* code);  // null: any code
  static void free_retired();

  const PyCodeObject* const code_;
  EntryUse *older_, *newer_ = nullptr;  // of all threads
  static inline EntryUse* newest_ = nullptr;
  static inline bool has_retired_ = false;
};

// Claims the co_extra slot and checks that it reads back what was stored. If it returns false, framejit must not run.
// Called by the hook's initialise().
bool initialise_code_states();

}  // namespace framejit::frame_hook
