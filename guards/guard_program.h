// guards/guard_program.h — what a compiled frame checks before it may run, and fetches while it checks.
//
// In: a GuardSet and the sources whose objects the segment wants (graph inputs, recipe operands). Out: a flat program
// that fetches each path once into a register, cheapest check first. Hot path: run() allocates nothing, runs no Python
// code, leaves no exception set, and writes only registers. The GIL must be held. Objects that guards name are held
// weakly if their type allows it; when one dies, the program is dead() and never matches again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "guards/cpython/frame_access.h"
#include "guards/guard.h"
#include "runtime/base/result.h"

namespace framejit::guards {

inline constexpr const char* kObjectIsGone = "an object that the guards name is gone";

struct GuardFailure {
  std::string text;         // "L['x'].size(0) == 4 but is 5"
  std::string because;
  const Guard* guard = nullptr;  // valid while the program lives
  int mode = -1;            // index of the failed ModeFacts
  int size_fact = -1;       // index of the failed SizeFact
  // "L['n']", "L['x'].size(0)": every int, float and size that differs, as far as guards can be checked.
  std::vector<std::string> changed;
  std::string source;       // "L['x']": of the guard that failed
  size_t held = 0;         // steps that held before the failure: how close the entry comes
  PyObject* object = nullptr;  // borrowed: the current object of that source, null if it is gone
  SourceId source_id = kNoSource;
  std::vector<int64_t> symbols;  // values in this call, if a size fact failed
};

// What the next compile does about a number or size that changed: it becomes a symbol, something fixes it, or
// dynamic=False forbids symbols.
enum class Symbols : uint8_t { possible, refused, forbidden };

std::string hint_of(ChangeKind kind);  // of a row whose hint has no fields

class GuardProgram {
 public:
  static Result<std::unique_ptr<GuardProgram>> compile(GuardSet guards, const std::vector<SourceId>& wanted,
                                                       PyCodeObject* code);
  ~GuardProgram();

  // True if everything holds. registers: register_count() borrowed objects, those of wanted sources valid on success;
  // symbols: values bound by tensor and int_range guards.
  bool run(const FrameAccess& frame, PyObject** registers, int64_t* symbols) const;
  size_t register_count() const;
  size_t register_of(SourceId wanted) const;
  size_t symbol_count() const;
  bool dead() const;

  // Runs again, slowly, and says what fails; nothing if all holds.
  std::optional<GuardFailure> explain(const FrameAccess& frame) const;
  // The same for users. The objects of `failure` must still live: ask before other code runs.
  Change change(const GuardFailure& failure, const UserNames& names, Symbols symbols) const;
  std::vector<std::string> texts() const;  // every guard with its user's line, for the log
  // For each of them, whether it is about how Python and torch find things, and not about what the program uses.
  std::vector<bool> are_plumbing() const;
  const GuardSet& guards() const;          // objects that are held weakly appear as weak references

  struct Body;  // guards/guard_body.h

 private:
  std::unique_ptr<Body> body_;
  explicit GuardProgram(std::unique_ptr<Body> body);
};

}  // namespace framejit::guards
