// guards/cpython/interpreter_end.h — a thread that asks for the GIL while the interpreter ends.
//
// CPython up to 3.13 ends such a thread, a daemon, by unwinding its stack. C++ frames on that stack hold references and
// helper threads, but their destructors would run without the GIL, and nothing may unwind out of a destructor. So the
// thread stays where it is for good, as it would in later versions.
#pragma once

#include <cxxabi.h>
#include <unistd.h>

#include <utility>

namespace framejit {

// Use it around a call that may take the GIL or run Python code.
template <class Call> decltype(auto) stays_if_python_ends(Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const abi::__forced_unwind&) {
    for (;;) pause();
  }
}

}  // namespace framejit
