// frame_hook/trace/types/locks.cpp — locks of threads that the program takes and releases.
//
// Compiled code holds such a lock from before its graph until its effects are done, so that everything that the lock
// protects is read and written under it. It takes the lock only if nobody has to wait; otherwise plain Python runs. A
// trace that would end while it holds a lock stops before it took the lock.
#include <algorithm>

#include "frame_hook/trace/protocol/protocol.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook::rows {

namespace {

PyTypeObject* type_in_thread_module(const char* name) {  // the process keeps it alive
  const PyRef module = PyRef::steal(PyImport_ImportModule("_thread"));
  PyObject* type = module ? PyObject_GetAttrString(module.get(), name) : nullptr;
  FJ_ASSERT(type && PyType_Check(type), "module _thread has no class of locks");
  return reinterpret_cast<PyTypeObject*>(type);
}

bool is_reentrant(Value* lock) {
  static PyTypeObject* const type = type_in_thread_module("RLock");
  return lock->type == type;
}

bool is_known_lock(Value* lock) {
  static PyTypeObject* const type = type_in_thread_module("LockType");
  return lock->type == type || is_reentrant(lock);
}

[[noreturn]] void refuse() { graph_break(Reason::outside_effect, "a lock"); }

}  // namespace

Value* lock_enter(Tracer& t, const Arguments& args) {
  if (args.positional.size() != 1 || !args.keywords.empty()) refuse();
  Value* lock = args.positional[0];
  if (!lock->object || lock->source == guards::kNoSource) refuse();
  t.facts.type_of(lock);
  if (!is_known_lock(lock)) refuse();
  TakenLocks& locks = t.protocol().locks;
  const auto is_it = [&](const auto& held) { return held.first == lock; };
  if (!is_reentrant(lock) && std::any_of(locks.held.begin(), locks.held.end(), is_it)) refuse();  // it would wait for
                                                                                                  // itself
  locks.held.emplace_back(lock, t.resumable_step());
  if (std::find(locks.taken.begin(), locks.taken.end(), lock) == locks.taken.end()) locks.taken.push_back(lock);
  return t.heap.boolean(true);
}

Value* lock_exit(Tracer& t, const Arguments& args) {
  auto& held = t.protocol().locks.held;
  for (auto last = held.rbegin(); last != held.rend(); ++last)
    if (!args.positional.empty() && last->first == args.positional[0]) {
      held.erase(std::next(last).base());
      return t.heap.none();
    }
  refuse();  // it was taken before the trace began
}

}  // namespace framejit::frame_hook::rows
