// tests/unit/inductor/accesses.h — nests and calls that only say what they read and write, and when two must keep their
// order.
#pragma once

#include <algorithm>

#include "inductor/loop/loop_program.h"

namespace framejit::inductor::testing {

inline ExternCall call_of(uint32_t node, std::vector<LoopBufferId> reads, std::vector<LoopBufferId> writes) {
  return {node, "op", std::move(reads), std::move(writes)};
}

inline Nest nest_of(const std::vector<LoopBufferId>& reads, const std::vector<LoopBufferId>& writes) {
  Nest nest;
  nest.name = "n";
  for (const auto& [op, list] : {std::pair{LoopOp::kLoad, &reads}, {LoopOp::kStore, &writes}})
    for (LoopBufferId b : *list) {
      LoopInst inst;
      inst.op = op;
      inst.buffer = b;
      nest.body.push_back(inst);
    }
  return nest;
}

inline bool meet(const std::vector<LoopBufferId>& a, const std::vector<LoopBufferId>& b) {
  return std::any_of(a.begin(), a.end(), [&](LoopBufferId x) { return std::find(b.begin(), b.end(), x) != b.end(); });
}

template <class Touched>  // has lists `reads` and `writes`
bool conflict(const Touched& a, const Touched& b) {
  return meet(a.writes, b.writes) || meet(a.writes, b.reads) || meet(a.reads, b.writes);
}

}  // namespace framejit::inductor::testing
