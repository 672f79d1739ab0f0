// frame_hook/trace/types/locks.cpp — locks of threads that the program takes and releases.
//
// Compiled code holds such a lock from before its graph until its effects are done, so that everything that the lock
// protects is read and written under it. It takes the lock only if nobody has to wait; otherwise plain Python runs. A
// trace that would end while it holds a lock stops before it took the lock.
#include <algorithm>

#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/values/originals.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook::rows {

namespace {

bool is_reentrant(Value* lock) { return lock->type == original_type("_thread", "RLock"); }

bool is_known_lock(Value* lock) { return lock->type == original_type("_thread", "LockType") || is_reentrant(lock); }

[[noreturn]] void refuse() { graph_break(Reason::outside_effect, "a lock"); }

}  // namespace

Value* lock_enter(RealCalls& calls, const Arguments& args) {
  if (args.positional.size() != 1 || !args.keywords.empty()) refuse();
  Value* lock = args.positional[0];
  if (!lock->object || lock->source == guards::kNoSource) refuse();
  Shadows& shadows = calls.dicts.shadows;
  shadows.facts.type_of(lock);
  if (!is_known_lock(lock)) refuse();
  const auto& held_locks = calls.attempts.held_locks();
  const auto is_it = [&](const auto& held) { return held.first == lock; };
  const bool waits_for_itself = !is_reentrant(lock) && std::any_of(held_locks.begin(), held_locks.end(), is_it);
  if (waits_for_itself) refuse();
  calls.attempts.hold(lock);
  std::vector<Value*>& taken = shadows.tables().taken_locks;
  if (std::find(taken.begin(), taken.end(), lock) == taken.end()) taken.push_back(lock);
  return shadows.heap.boolean(true);
}

Value* lock_exit(RealCalls& calls, const Arguments& args) {
  const bool is_held = !args.positional.empty() && calls.attempts.release(args.positional[0]);
  if (!is_held) refuse();  // it was taken before the trace began
  return calls.dicts.heap.none();
}

}  // namespace framejit::frame_hook::rows
