// guards/running_compile.h — what a compile asks of the interpreter: the collector waits, other threads run, Ctrl-C
// ends it.
//
// A compile holds the GIL but for its passes and the code generation, which touch no Python object (Unlocked). All of
// it is on one thread, and there is one compile at a time.
#pragma once

#include <Python.h>

#include <chrono>

namespace framejit {

// Lets the GIL go, where that is wanted, and takes it back. Where the interpreter ends meanwhile the thread stays in
// the destructor for good, as daemon threads do: nothing of Python is touched any more.
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

// Around a compile: a trace makes many objects and no garbage.
class CollectorWaits {
 public:
  CollectorWaits();
  ~CollectorWaits() { end(); }
  CollectorWaits(const CollectorWaits&) = delete;
  static void end();                      // also in a forked child, for the compile that it has not
};

// Inside of a compile, for what needs no Python: other threads run, and the collector with them. Stays locked while
// another thread forks: a child has no use for a lock that a thread held which it does not have.
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
bool compile_interrupted();  // the reader of runtime/base/interrupt.h, with the GIL or Unlocked; false on threads that
                             // help

// Around os.fork(): the first waits for another thread's Unlocked, and no other begins until the second.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();               // also where nobody called before_fork

}  // namespace framejit
