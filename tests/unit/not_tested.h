// tests/unit/not_tested.h — what a C++ test leaves out on this machine: one line through tools/not_tested, a failure if
// CI is set.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace framejit::testing {

// Whether the machine may lack it. `what` contains no quotes.
inline bool say_not_tested(const std::string& what) {
  return std::system((FRAMEJIT_SOURCE_DIR "/tools/not_tested '" + what + "'").c_str()) == 0;
}

}  // namespace framejit::testing

// Ends the test.
#define FJ_NOT_TESTED(what)                                                              \
  do {                                                                                   \
    const std::string left_out = (what);                                                 \
    if (!framejit::testing::say_not_tested(left_out)) FAIL() << left_out << " under CI"; \
    GTEST_SKIP() << left_out;                                                            \
  } while (false)

// The same for what no package provides: no failure under CI.
#define FJ_NOT_TESTED_HERE(what)                 \
  do {                                           \
    const std::string left_out = (what);         \
    framejit::testing::say_not_tested(left_out); \
    GTEST_SKIP() << left_out;                    \
  } while (false)
