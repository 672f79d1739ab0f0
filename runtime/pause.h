// runtime/pause.h — for loops that wait for another thread.
#pragma once

namespace framejit::runtime {

// Tells the core that the thread spins.
inline void pause_thread() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace framejit::runtime
