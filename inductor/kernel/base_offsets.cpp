// inductor/kernel/base_offsets.cpp — the smallest constant in the indices of each argument.
#include "inductor/kernel/base_offsets.h"

#include <algorithm>

#include "inductor/kernel/loop_shape.h"

namespace framejit::inductor {
namespace {

int64_t constant_of(const SymExpr& e) {
  if (e.is_constant()) return e.constant();
  return e.node()->op == graph::SymOp::kSum ? e.node()->coefficient : 0;
}

template <class Visit>
void for_each_address(Kernel& kernel, Visit visit) {
  for (KernelNest& n : kernel.nests)
    for (LoopInst& inst : n.nest.body)
      if (is_address(inst) && !kernel.buffers[inst.buffer].is_local) visit(inst);
}

}  // namespace

std::vector<int64_t> take_base_offsets(Kernel& kernel) {
  std::vector<int64_t> offsets(kernel.buffers.size(), INT64_MAX);
  for_each_address(kernel, [&](const LoopInst& inst) {
    offsets[inst.buffer] = std::min(offsets[inst.buffer], constant_of(inst.index[0]));
  });
  for (int64_t& offset : offsets)
    if (offset == INT64_MAX || offset < 0) offset = 0;  // scratch; and, under a mask, accesses that begin before the
                                                        // buffer
  for_each_address(kernel, [&](LoopInst& inst) { inst.index[0] = inst.index[0] - SymExpr(offsets[inst.buffer]); });
  return offsets;
}

}  // namespace framejit::inductor
