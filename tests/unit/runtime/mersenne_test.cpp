#include "runtime/mersenne.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>
#include <vector>

namespace framejit::runtime {
namespace {

// As std::mt19937 begins.
MersenneState seeded(uint32_t seed) {
  MersenneState state;
  uint32_t word = seed;
  for (uint32_t j = 0; j < MersenneState::kWords; ++j) {
    if (j > 0) word = 1812433253U * (word ^ (word >> 30)) + j;
    state.words[j] = word;
  }
  return state;
}

void skip(MersenneState& state, int64_t words) {
  for (int64_t i = 0; i < words; ++i) {
    if (state.next == MersenneState::kWords) state.advance(), state.next = 0;
    ++state.next;
  }
}

bool trial(std::mt19937& engine, double probability) {
  const uint64_t high = engine(), low = engine();
  return std::ldexp(static_cast<double>((high << 32 | low) & ((uint64_t{1} << 53) - 1)), -53) < probability;
}

// Runs the parts in reverse order, one by one.
void backwards(int64_t count, void (*body)(void*, int64_t, int64_t), void* state) {
  for (int64_t part = count; part-- > 0;) body(state, part, part + 1);
}

// Runs each part on its own thread: parts are drawn while the states of later ones are computed.
void at_once(int64_t count, void (*body)(void*, int64_t, int64_t), void* state) {
  std::vector<std::jthread> threads;
  for (int64_t part = 0; part < count; ++part) threads.emplace_back(body, state, part, part + 1);
}

TEST(Mersenne, TrialsAreThoseOfOneNumberAfterTheOther) {
  for (const int64_t before : {0, 1, 2, 623, 624, 625, 1001})
    for (const int64_t count : {1, 2, 311, 312, 313, 5000, 19967, 19968, 19969, 100000}) {
      std::mt19937 engine(5);
      engine.discard(static_cast<unsigned long long>(before));
      MersenneState state = seeded(5);
      skip(state, before);
      std::vector<uint32_t> drawn(static_cast<size_t>(count));
      run_trials(state, {count, 0.9, drawn.data(), 4, 7}, backwards);
      int64_t differ = 0;
      for (const uint32_t result : drawn) differ += result != (trial(engine, 0.9) ? 7U : 0U);
      EXPECT_EQ(differ, 0) << before << " words before " << count << " trials";
      run_trials(state, {1, 0.5, drawn.data(), 4, 1}, backwards);
      EXPECT_EQ(drawn[0] != 0, trial(engine, 0.5)) << "what comes after " << count << " trials";
    }
}

template <class T>
void expect_size(T one) {
  std::mt19937 engine(9);
  MersenneState state = seeded(9);
  std::vector<T> drawn(1000, 3);
  run_trials(state, {1000, 0.25, drawn.data(), sizeof(T), static_cast<uint64_t>(one)}, backwards);
  for (const T result : drawn) EXPECT_EQ(result, trial(engine, 0.25) ? one : T{0});
}

TEST(Mersenne, ResultsOfEachSize) {
  expect_size<uint8_t>(1);
  expect_size<uint16_t>(0x3f80);
  expect_size<uint32_t>(0x3f800000);
  expect_size<uint64_t>(uint64_t{0x3ff0} << 48);
}

TEST(Mersenne, PartsThatAreDrawnAtOnce) {
  constexpr int64_t kTrials = 400'001;
  for (int round = 0; round < 20; ++round) {
    MersenneState together = seeded(3), alone = seeded(3);
    std::vector<uint8_t> drawn(kTrials, 2), expected(kTrials, 2);
    run_trials(together, {kTrials, 0.6, drawn.data(), 1, 1}, at_once);
    run_trials(alone, {kTrials, 0.6, expected.data(), 1, 1}, backwards);
    ASSERT_EQ(drawn, expected);
    ASSERT_EQ(together.words, alone.words);
    ASSERT_EQ(together.next, alone.next);
  }
}

TEST(Mersenne, CertainAndImpossible) {
  MersenneState state = seeded(1);
  std::vector<uint8_t> drawn(50000, 2);
  run_trials(state, {50000, 1.0, drawn.data(), 1, 1}, backwards);
  EXPECT_EQ(std::vector<uint8_t>(50000, 1), drawn);
  run_trials(state, {50000, 0.0, drawn.data(), 1, 1}, backwards);
  EXPECT_EQ(std::vector<uint8_t>(50000, 0), drawn);
}

}  // namespace
}  // namespace framejit::runtime
