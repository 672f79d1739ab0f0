// tests/unit/inductor/fuzz_rounds.h — how many seeds a fuzzer runs: few in the tests, FUZZ_ROUNDS in long runs.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>

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

}  // namespace framejit::inductor::testing
