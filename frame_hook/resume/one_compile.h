// frame_hook/resume/one_compile.h — the one compile that runs at a time.
#pragma once

#include <Python.h>

#include "guards/cpython/running_compile.h"

namespace framejit::frame_hook {

inline bool g_compiling = false;  // guarded by the GIL; a forked child starts with it false (forget_running_compile)
// The thread in which the running compile calls shape functions in Python; 0: it may also call a user's backend.
inline unsigned long g_own_code_thread = 0;

// A compile is running.
struct Compiling {
  explicit Compiling(bool users_backend) {
    g_compiling = true;
    g_own_code_thread = users_backend ? 0 : PyThread_get_thread_ident();
  }
  ~Compiling() {
    g_compiling = false;
    g_own_code_thread = 0;
  }
  Compiling(const Compiling&) = delete;
  const CollectorWaits collector_waits;
};

}  // namespace framejit::frame_hook
