// tests/unit/inductor/random_loops.h — random loop programs whose results are known to a bound.
//
// Every value carries what is known about it: its largest magnitude, how many bits come after the binary point as long
// as it is exact, and how far two correct evaluations may differ. Discrete operations (comparisons, roundings, casts to
// integers, positions of extrema) take only exact values, so that a difference beyond the bound is a defect.
#pragma once

#include <optional>
#include <random>

#include "inductor/loop/nest_builder.h"

namespace framejit::inductor::testing {

struct Fact {
  double top = 0;      // |value| <= top
  int bits = 0;        // an exact float is a multiple of 2^-bits
  bool exact = true;
  double error = 0;    // of two evaluations in any order
};

struct RandomProgram {
  LoopProgram program;      // inputs first; symbol 0 is a size
  std::vector<Fact> facts;  // per buffer
};

RandomProgram random_program(uint32_t seed);

}  // namespace framejit::inductor::testing
