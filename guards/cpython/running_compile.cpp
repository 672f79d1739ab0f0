// guards/cpython/running_compile.cpp — the state of the one compile that runs, protected by the GIL.
#include "guards/cpython/running_compile.h"

#include <thread>
#include <utility>

#include "guards/cpython/interpreter_end.h"
#include "guards/cpython/interrupts.h"

namespace framejit {
namespace {

// Checking for Ctrl-C takes the GIL, and a busy Python thread may make us wait 5 ms for it.
constexpr std::chrono::milliseconds kBetweenLooks{20};

bool g_collector_waits = false;           // the running compile has disabled the garbage collector
unsigned long g_unlocked_thread = 0;      // the thread that is Unlocked; 0: none
int g_forking = 0;                        // threads between before_fork and after
thread_local Unlocked* t_unlocked = nullptr;

}  // namespace

void WithoutGil::take_back(PyThreadState* thread) {
  stays_if_python_ends([&] { PyEval_RestoreThread(thread); });
}

CollectorWaits::CollectorWaits() { g_collector_waits = PyGC_Disable() != 0; }
void CollectorWaits::end() {
  if (std::exchange(g_collector_waits, false)) PyGC_Enable();
}

Unlocked::Unlocked() {
  if (g_forking > 0) return;
  collector_waited_ = g_collector_waits;
  CollectorWaits::end();
  g_unlocked_thread = PyThread_get_thread_ident();
  t_unlocked = this;
  next_look_ = std::chrono::steady_clock::now() + kBetweenLooks;
  thread_ = PyEval_SaveThread();
}

Unlocked::~Unlocked() {
  if (thread_ == nullptr) return;
  WithoutGil::take_back(thread_);
  t_unlocked = nullptr;
  g_unlocked_thread = 0;
  if (collector_waited_) g_collector_waits = PyGC_Disable() != 0;  // unless the program has disabled it meanwhile
}

// CPython has no other way to look at pending signals without handling them.
bool ctrl_c_is_pending() {
  if (!PyOS_InterruptOccurred()) return false;
  PyErr_SetInterrupt();
  return true;
}

bool compile_interrupted() {
  if (t_unlocked == nullptr) return PyGILState_Check() != 0 && (interrupt_is_kept() || ctrl_c_is_pending());
  if (interrupt_is_kept()) return true;
  const auto now = std::chrono::steady_clock::now();
  if (now < t_unlocked->next_look_) return false;
  WithoutGil::take_back(t_unlocked->thread_);
  const bool pending = ctrl_c_is_pending();
  t_unlocked->thread_ = PyEval_SaveThread();
  t_unlocked->next_look_ = std::chrono::steady_clock::now() + kBetweenLooks;
  return pending;
}

void before_fork() {
  while (g_unlocked_thread != 0 && g_unlocked_thread != PyThread_get_thread_ident()) {
    const WithoutGil waiting;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ++g_forking;
}

void after_fork_in_parent() { --g_forking; }

void after_fork_in_child() {
  g_forking = 0;
  if (g_unlocked_thread != PyThread_get_thread_ident()) g_unlocked_thread = 0;
}

}  // namespace framejit
