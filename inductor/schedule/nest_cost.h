// inductor/schedule/nest_cost.h — what the body of a nest costs, as far as fusion asks.
#pragma once

#include "inductor/loop/loop_program.h"

namespace framejit::inductor {

constexpr size_t kMaxBody = 96;  // instructions of a nest that fusion makes
// The most work (op_costs.def) that fusion puts into a nest, and into all nests of a kernel: code generation takes longer than in
// proportion to it. One nest of n steps `x = sin(x) * 1.01 + 0.1` (50 each) takes 2.9 ms a step for n = 8, 4.6 for 16, 8.3 for 30 and 34 for
// 100 (AVX-512, Zen 5; FRAMEJIT_LOGS=timing over chains of n steps, with this bound raised). A nest of so much work loses little by a
// store and a load: elements of 4 bytes take 0.8 ns from memory on one thread, ten sines 4 ns.
constexpr int kMaxWork = 512;

struct NestCost {
  size_t instructions = 0, loads = 0;
  int work = 0;        // of one point, as in op_costs.def
  bool heavy = false;  // not to be computed twice
};
NestCost cost_of(const Nest& nest);
// Whether both together are more work than a kernel should be. What calls no function may join whatever there is.
bool is_too_much_work(int one, int other);
// Whether one nest of both would be larger than fusion makes them.
bool are_too_large(const Nest& first, const Nest& second);
// Whether the body may be computed on zeros in place of what it would have loaded: it checks nothing and divides no integers.
bool takes_zeros(const Nest& nest);

}  // namespace framejit::inductor
