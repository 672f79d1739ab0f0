// runtime/mersenne.h — the Mersenne twister of torch's generator on CPUs, many numbers at a time.
//
// torch draws one number after the other, on one thread: the masks of a training step take as long as a third of its
// matrix products on sixteen cores. The numbers depend on each other only through the state of 624 words, which can be
// advanced without them. So one thread advances the state and keeps a copy at the beginning of each part. Meanwhile,
// the other threads compute the numbers of parts from these copies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace framejit::runtime {

struct MersenneState {
  static constexpr int64_t kWords = 624;
  std::array<uint32_t, kWords> words{};
  int64_t next = kWords;  // the first word that has not been drawn

  void advance();  // to the next 624 words; `next` stays
};

// Trials that succeed with one probability, each of which draws two words: the 53 lower bits of the 64 are compared.
struct Trials {
  int64_t count = 0;
  double probability = 0;
  void* results = nullptr;   // of `size` bytes each: `one` where a trial succeeded, otherwise 0
  size_t size = 4;           // 1, 2, 4 or 8
  uint64_t one = 0;
};

// How parts are shared between threads: calls body(state, begin, end) for parts of [0, count).
using ShareParts = void (*)(int64_t count, void (*body)(void*, int64_t, int64_t), void* state);

// Afterwards, `state` is as if the words had been drawn one by one.
void run_trials(MersenneState& state, const Trials& trials, ShareParts share);

}  // namespace framejit::runtime
