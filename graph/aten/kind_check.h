// graph/aten/kind_check.h — whether eager takes arguments of these dtypes.
//
// Kernels refuse dtypes that shape rules know nothing of (bool minus bool, an int written with quotients). An op whose
// shape follows from broadcasting alone (kPointwise) is asked itself, once a process for each kind of arguments, on
// tensors of one element; others are run once on the shapes at hand (MetaCall::execute) when a kind of theirs is first
// met.
#pragma once

#include <span>

#include "graph/aten/op_facts.h"

namespace framejit::graph {

// Kinds: of a tensor its dtype and whether it has dimensions, of a number its type and sign, of a list its type, of a
// dtype or a text which it is.
bool refuses_kinds(const OpFacts& facts, std::span<const c10::IValue> args);
// No call with these kinds was noted in this process, and they are other than one floating dtype.
bool is_new_mix(const OpFacts& facts, std::span<const c10::IValue> args);
void note_mix(const OpFacts& facts, std::span<const c10::IValue> args);  // eager takes them

}  // namespace framejit::graph
