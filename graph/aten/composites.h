// graph/aten/composites.h — composite functions of torch whose C++ code needs sizes as numbers, composed here over
// symbolic sizes; layers that are recorded as one call; and attention without masks that exclude nothing.
#pragma once

#include <c10/core/DispatchKey.h>

#include <span>

#include "graph/aten/op_info.h"

namespace framejit::graph {

// A key that traced tensors carry, above autograd: everything except these composites falls through it.
inline constexpr c10::DispatchKey kCompositesKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

// A recurrent layer, unrolled, would make a graph as long as its sequence. On a CPU without grad mode, if it draws no
// numbers and casts nothing, it is recorded as one call.
bool stays_whole(const OpInfo& info, std::span<const c10::IValue> args);

void register_composites();  // once, with the recorder

}  // namespace framejit::graph
