// graph/aten/accepted_kinds.h — whether eager accepts arguments of these dtypes.
//
// Kernels refuse dtypes that shape rules know nothing about (bool minus bool, quotients written to an int). An op whose
// shape follows from broadcasting alone (kPointwise) is run on tensors of one element, once per process for each kind
// of arguments. Other ops are run once on the shapes of the call (MetaCall::execute) when such a kind is first met.
#pragma once

#include <span>

#include "graph/aten/op_info.h"

namespace framejit::graph {

// Kinds: of a tensor, its dtype and whether it has dimensions; of a number, its type and sign; of a list, its type; of
// a dtype or a text, its value.
bool refuses_kinds(const OpInfo& info, std::span<const c10::IValue> args);
// Whether no call with these kinds was noted in this process, and they are not all of one floating dtype.
bool is_new_mix(const OpInfo& info, std::span<const c10::IValue> args);
void note_mix(const OpInfo& info, std::span<const c10::IValue> args);  // eager accepts them

}  // namespace framejit::graph
