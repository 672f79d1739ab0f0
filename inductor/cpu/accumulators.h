// inductor/cpu/accumulators.h — values that loops carry for reductions and scans.
#pragma once

#include <vector>

#include "inductor/cpu/function_state.h"

namespace framejit::inductor {

struct Accumulator {  // of one reduction or scan
  llvm::Value* value = nullptr;
  llvm::Value* position = nullptr;  // argmax and argmin
  llvm::Value* lost = nullptr;      // of a compensated sum: what rounding lost from `value`
};
using Accumulators = std::vector<Accumulator>;  // in the order of InstPlan::place
using Sets = std::vector<Accumulators*>;
using LoopBody = llvm::function_ref<void(llvm::Value* index)>;

// `body` gets the index and updates the accumulators of `sets`, which the loop carries.
void emit_carrying(FunctionState& s, llvm::Value* from, llvm::Value* to, llvm::Value* step, const Sets& sets,
                   LoopBody body);

}  // namespace framejit::inductor
