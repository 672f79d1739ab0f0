// tests/unit/inductor/fuzz_rounds.h — how many seeds a fuzzer runs: few in the tests, FUZZ_ROUNDS in long runs; and how
// many it needs to find a planted defect.
#pragma once

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>

#include "tests/unit/inductor/guarded_memory.h"

namespace framejit::inductor::testing {

// Calls round(seed) for FUZZ_SEED (1), and `rounds` (FUZZ_ROUNDS) seeds from there; stops at the first that fails.
template <class Round>
void for_each_seed(int rounds, Round round) {
  if (const char* asked = std::getenv("FUZZ_ROUNDS")) rounds = std::atoi(asked);
  const char* first = std::getenv("FUZZ_SEED");
  const auto begin = static_cast<uint32_t>(first == nullptr ? 1 : std::atoi(first));
  for (uint32_t seed = begin; seed < begin + static_cast<uint32_t>(rounds) && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("FUZZ_SEED=" + std::to_string(seed));
    round(seed);
  }
}

// The message if one number of threads gives other results than another.
inline constexpr const char* kOtherBits = "threads give other bits";

// The first seed from 1 to `rounds` whose round fails, 0 if none does. The first failure must be the fuzzer's own
// finding: `finding` is part of its message, or kOtherBits. These failures do not fail the running test.
template <class Round>
int seeds_until_found(int rounds, const std::string& finding, Round round) {
  const Unguarded unguarded;
  for (int seed = 1; seed <= rounds; ++seed) {
    ::testing::TestPartResultArray failures;
    {
      const ::testing::ScopedFakeTestPartResultReporter taken(
          ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
      round(static_cast<uint32_t>(seed));
    }
    if (failures.size() == 0) continue;
    const std::string message = failures.GetTestPartResult(0).message();
    const bool is_found = message.find(finding) != std::string::npos || message.find(kOtherBits) != std::string::npos;
    EXPECT_TRUE(is_found) << "another failure than the planted one: " << message;
    return seed;
  }
  return 0;
}

}  // namespace framejit::inductor::testing
