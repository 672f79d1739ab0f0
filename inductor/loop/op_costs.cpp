// inductor/loop/op_costs.cpp — one case for each operation; an operation without a row does not compile.
#include "inductor/loop/op_costs.h"

namespace framejit::inductor {

int cost_of(const LoopInst& inst) {
  if (inst.op != LoopOp::kScalar) return 1;
  switch (inst.scalar) {
#define OP_COST(name, cost) \
  case ScalarOp::k_##name: return cost;
#include "inductor/loop/op_costs.def"
#undef OP_COST
  }
  return 1;
}

}  // namespace framejit::inductor
