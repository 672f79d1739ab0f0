// runtime/base/interrupt.cpp — the reader of interrupts.
#include "runtime/base/interrupt.h"

#include <atomic>

namespace framejit {
namespace {

std::atomic<InterruptedFn> g_reader{nullptr};

}  // namespace

void set_interrupt_reader(InterruptedFn reader) { g_reader = reader; }

bool interrupted() {
  const InterruptedFn reader = g_reader;
  return reader != nullptr && reader();
}

Result<void> stop_if_interrupted() {
  if (interrupted()) return Error{Reason::interrupted, "a signal"};
  return {};
}

}  // namespace framejit
