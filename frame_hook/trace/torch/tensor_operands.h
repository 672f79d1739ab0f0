// frame_hook/trace/torch/tensor_operands.h — the operands of an operator that a tensor is among.
//
// The call itself is recorded like any other.
#pragma once

#include <initializer_list>
#include <vector>

#include "frame_hook/trace/machine/tracer.h"

namespace framejit::frame_hook {

// The operands of a function of module operator. That function looks for special methods in the classes of tensors. So
// the classes are guarded, and a method that the program put there breaks.
Arguments operands(Facts& facts, std::initializer_list<const char*> specials, std::vector<Value*> of);
// An open float as a 0-dim tensor for an op with the tensor `beside`; null: it is a constant there. `promotes`: the
// number takes part in the promotion of dtypes.
Value* float_input(Tracer& t, Value* number, Value* beside, bool promotes = true);

}  // namespace framejit::frame_hook
