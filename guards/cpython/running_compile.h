// guards/cpython/running_compile.h — what a compile needs from the interpreter: the collector waits, other threads run,
// Ctrl-C ends it.
//
// A compile holds the GIL except during its passes and code generation, which touch no Python object (Unlocked). It
// runs on one thread, and there is one compile at a time.
#pragma once

#include <Python.h>

#include <chrono>

namespace framejit {

// Releases the GIL, if asked to, and takes it back. If the interpreter ends meanwhile, the thread stays in the
// destructor for good, as daemon threads do: it touches nothing of Python any more.
class WithoutGil {
 public:
  explicit WithoutGil(bool wanted = true) : thread_(wanted ? PyEval_SaveThread() : nullptr) {}
  ~WithoutGil() {
    if (thread_ != nullptr) take_back(thread_);
  }
  WithoutGil(const WithoutGil&) = delete;

  static void take_back(PyThreadState* thread);

 private:
  PyThreadState* thread_;
};

// Around a compile: a trace makes many objects, but no garbage.
class CollectorWaits {
 public:
  CollectorWaits();
  ~CollectorWaits() { end(); }
  CollectorWaits(const CollectorWaits&) = delete;
  static void end();                      // also in a forked child, for the compile that it does not have
};

// For the part of a compile that does not need Python: other threads run, and so does the collector. Stays locked while
// another thread forks: a child must not inherit a lock whose owner does not exist there.
class Unlocked {
 public:
  Unlocked();
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;

 private:
  friend bool compile_interrupted();
  PyThreadState* thread_ = nullptr;       // null: the GIL was kept
  bool collector_waited_ = false;
  std::chrono::steady_clock::time_point next_look_;
};

bool ctrl_c_is_pending();                 // with the GIL
bool compile_interrupted();  // the reader of runtime/base/interrupt.h, with the GIL or Unlocked; false on helper
                             // threads

// Around os.fork(): the first waits for another thread's Unlocked, and no other may begin until the second.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();               // also if nobody called before_fork

}  // namespace framejit
