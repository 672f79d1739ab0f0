// graph/aten/composites.h — composite functions of torch whose C++ asks for sizes as numbers, composed again over symbolic sizes.
#pragma once

#include <c10/core/DispatchKey.h>

namespace framejit::graph {

// A key that traced tensors carry, above autograd: everything but these composites falls through it.
inline constexpr c10::DispatchKey kCompositesKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

void register_composites();  // once, with the recorder

}  // namespace framejit::graph
