// runtime/mersenne.cpp — loops over vectors of GCC, compiled for each width of registers.
#include "runtime/mersenne.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "runtime/pause.h"

namespace framejit::runtime {
namespace {

#define FJ_INLINE inline __attribute__((always_inline))

constexpr int64_t kWords = MersenneState::kWords, kAhead = 397, kNear = kWords - kAhead;

// The limit in m < limit, for a number m of 53 bits, as two words.
struct TrialLimit {
  uint32_t high, low;
};

// For a probability p: m / 2^53 < p. p * 2^53 is exact; p is at most one.
TrialLimit limit_of(double probability) {
  const auto limit = static_cast<uint64_t>(std::ceil(std::ldexp(probability, 53)));
  return {static_cast<uint32_t>(limit >> 32), static_cast<uint32_t>(limit)};
}

// A register of W words. split() gives every other word of two registers.
template <int W>
struct Register;
#define FJ_REGISTER(width, even, odd)                                                          \
  template <>                                                                                  \
  struct Register<width> {                                                                     \
    typedef uint32_t Words __attribute__((vector_size(4 * width)));                            \
    static FJ_INLINE void split(const Words& a, const Words& b, Words& first, Words& second) { \
      first = __builtin_shufflevector(a, b, even);                                             \
      second = __builtin_shufflevector(a, b, odd);                                             \
    }                                                                                          \
  };
#define FJ_LIST(...) __VA_ARGS__
FJ_REGISTER(4, FJ_LIST(0, 2, 4, 6), FJ_LIST(1, 3, 5, 7))
FJ_REGISTER(8, FJ_LIST(0, 2, 4, 6, 8, 10, 12, 14), FJ_LIST(1, 3, 5, 7, 9, 11, 13, 15))
FJ_REGISTER(16, FJ_LIST(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
            FJ_LIST(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31))
#undef FJ_LIST
#undef FJ_REGISTER

template <int W>
struct Lanes {
  using V = typename Register<W>::Words;

  static FJ_INLINE void load(V& to, const uint32_t* from) { std::memcpy(&to, from, sizeof(V)); }

  // words[i] = far[i] ^ twist(words[i], words[i + 1]). `far` is more than a register away.
  static FJ_INLINE void twist(uint32_t* words, const uint32_t* far, int64_t count) {
    int64_t i = 0;
    for (; i + W <= count; i += W) {
      V one, next, other;
      load(one, words + i);
      load(next, words + i + 1);
      load(other, far + i);
      const V mixed = (one & 0x80000000U) | (next & 0x7fffffffU);
      const V result = other ^ (mixed >> 1) ^ (-(next & 1U) & 0x9908b0dfU);
      std::memcpy(words + i, &result, sizeof(V));
    }
    for (; i < count; ++i) words[i] = far[i] ^ twisted(words[i], words[i + 1]);
  }
  static FJ_INLINE uint32_t twisted(uint32_t one, uint32_t next) {
    const uint32_t mixed = (one & 0x80000000U) | (next & 0x7fffffffU);
    return (mixed >> 1) ^ (-(next & 1U) & 0x9908b0dfU);
  }

  static FJ_INLINE void advance(uint32_t* words, int64_t times) {
    for (; times > 0; --times) {
      twist(words, words + kAhead, kNear);
      twist(words + kNear, words, kAhead - 1);
      words[kWords - 1] = words[kAhead - 1] ^ twisted(words[kWords - 1], words[0]);
    }
  }

  template <class Word>
  static FJ_INLINE void temper(Word& y) {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    y ^= y >> 18;
  }

  // hits[i]: all bits are set, or none.
  static FJ_INLINE void compare(const uint32_t* words, int64_t pairs, TrialLimit limit, uint32_t* hits) {
    int64_t i = 0;
    for (; i + W <= pairs; i += W) {
      V first, second;
      load(first, words + 2 * i);
      load(second, words + 2 * i + W);
      temper(first);
      temper(second);
      V high, low;
      Register<W>::split(first, second, high, low);
      high &= 0x1fffffU;
      const V hit = (V)(high < limit.high) | ((V)(high == limit.high) & (V)(low < limit.low));
      std::memcpy(hits + i, &hit, sizeof(V));
    }
    for (; i < pairs; ++i) {
      uint32_t high = words[2 * i], low = words[2 * i + 1];
      temper(high);
      temper(low);
      high &= 0x1fffffU;
      hits[i] = -static_cast<uint32_t>(high < limit.high || (high == limit.high && low < limit.low));
    }
  }
};

struct MersenneLoops {
  void (*advance)(uint32_t* words, int64_t times);
  void (*compare)(const uint32_t* words, int64_t pairs, TrialLimit limit, uint32_t* hits);
};

#define FJ_LOOPS(name, width, attribute)                                                                  \
  attribute void advance_##name(uint32_t* words, int64_t times) { Lanes<width>::advance(words, times); }  \
  attribute void compare_##name(const uint32_t* words, int64_t pairs, TrialLimit limit, uint32_t* hits) { \
    Lanes<width>::compare(words, pairs, limit, hits);                                                     \
  }
FJ_LOOPS(any, 4, )
#ifdef __x86_64__
FJ_LOOPS(avx2, 8, __attribute__((target("avx2"))))
FJ_LOOPS(avx512, 16, __attribute__((target("avx512f"))))
#endif
#undef FJ_LOOPS

const MersenneLoops& mersenne_loops() {
  static const MersenneLoops found = [] {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f")) return MersenneLoops{advance_avx512, compare_avx512};
    if (__builtin_cpu_supports("avx2")) return MersenneLoops{advance_avx2, compare_avx2};
#endif
    return MersenneLoops{advance_any, compare_any};
  }();
  return found;
}

template <class T>
void store_trials(const uint32_t* hits, int64_t count, uint64_t one, T* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(hits[i] != 0 ? one : 0);
}

void store_trials(const uint32_t* hits, int64_t count, const Trials& trials, int64_t at) {
  char* const to = static_cast<char*>(trials.results) + at * static_cast<int64_t>(trials.size);
  switch (trials.size) {
    case 1: return store_trials(hits, count, trials.one, reinterpret_cast<uint8_t*>(to));
    case 2: return store_trials(hits, count, trials.one, reinterpret_cast<uint16_t*>(to));
    case 8: return store_trials(hits, count, trials.one, reinterpret_cast<uint64_t*>(to));
    default: return store_trials(hits, count, trials.one, reinterpret_cast<uint32_t*>(to));
  }
}

// A part draws as many words as this many states have.
constexpr int64_t kStatesOfPart = 64, kTrialsOfPart = kStatesOfPart * kWords / 2;

class TrialParts {
 public:
  TrialParts(MersenneState& state, const Trials& trials)
      : trials_(trials),
        limit_(limit_of(trials.probability)),
        starts_(static_cast<size_t>((trials.count + kTrialsOfPart - 1) / kTrialsOfPart)),
        state_(state) {}

  int64_t count() const { return static_cast<int64_t>(starts_.size()); }

  // Call it on any thread, once for each part.
  void draw_next() {
    if (!has_producer_.exchange(true, std::memory_order_relaxed)) make_starts();
    const int64_t part = next_.fetch_add(1, std::memory_order_relaxed);
    for (int spins = 0; ready_.load(std::memory_order_acquire) <= part; ++spins)
      spins < kSpins ? pause_thread() : static_cast<void>(sched_yield());
    draw(starts_[static_cast<size_t>(part)], part * kTrialsOfPart, end_of(part));
  }

 private:
  static constexpr int kSpins = 4096;  // about 100 us: the producer may have lost its core

  int64_t end_of(int64_t part) const { return std::min((part + 1) * kTrialsOfPart, trials_.count); }
  void make_starts();
  void draw(MersenneState state, int64_t begin, int64_t end) const;

  const Trials& trials_;
  const TrialLimit limit_;
  std::vector<MersenneState> starts_;  // the state in which each part begins
  MersenneState& state_;
  std::atomic<bool> has_producer_{false};
  std::atomic<int64_t> next_{0}, ready_{0};  // the next part to draw; how many parts have their start
};

void TrialParts::make_starts() {
  for (int64_t p = 0; p < count(); ++p) {
    starts_[static_cast<size_t>(p)] = state_;
    ready_.store(p + 1, std::memory_order_release);
    const int64_t words = 2 * (end_of(p) - p * kTrialsOfPart), times = (state_.next + words - 1) / kWords;
    mersenne_loops().advance(state_.words.data(), times);
    state_.next += words - times * kWords;
  }
}

// Draws trials. Their first word is the next word of `state`.
void TrialParts::draw(MersenneState state, int64_t begin, int64_t end) const {
  const MersenneLoops& loop = mersenne_loops();
  alignas(64)
      uint32_t words[kWords + 1];  // begins with the last word of the previous state, if that word is only half a trial
  alignas(64) uint32_t hits[kWords / 2];
  int64_t left = 0;
  while (begin < end) {
    if (state.next == kWords) loop.advance(state.words.data(), 1), state.next = 0;
    std::memcpy(words + left, state.words.data() + state.next, static_cast<size_t>(kWords - state.next) * 4);
    const int64_t count = left + kWords - state.next, trials = std::min(count / 2, end - begin);
    state.next = kWords;
    loop.compare(words, trials, limit_, hits);
    store_trials(hits, trials, trials_, begin);
    begin += trials;
    left = count % 2;
    words[0] = words[count - 1];
  }
}

void draw_parts(void* parts, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; ++n) static_cast<TrialParts*>(parts)->draw_next();
}

}  // namespace

void MersenneState::advance() { mersenne_loops().advance(words.data(), 1); }

void run_trials(MersenneState& state, const Trials& trials, ShareParts share) {
  if (trials.count <= 0) return;
  TrialParts parts(state, trials);
  share(parts.count(), draw_parts, &parts);
}

}  // namespace framejit::runtime
