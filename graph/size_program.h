// graph/size_program.h — size expressions as a straight-line program over int64, which plans and guards run.
//
// It computes as value_of() does: if that was proven to be an int64, every instruction has a result.
#pragma once

#include <vector>

#include "graph/sym_expr.h"
#include "runtime/size_op.h"

namespace framejit::graph {

class SizeProgram {
 public:
  explicit SizeProgram(std::vector<runtime::SizeOp>& ops) : ops_(ops) {}
  // The instruction that computes e. Adds missing instructions.
  int32_t slot(const SymExpr& e);

 private:
  int32_t push(const runtime::SizeOp& op);
  std::vector<runtime::SizeOp>& ops_;
};

}  // namespace framejit::graph
