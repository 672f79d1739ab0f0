// inductor/kernel/in_place.h — whether a kernel may write its result over one of its operands.
//
// Both begin at the same address. That is right when no element is written before everybody who reads it has done so,
// in whatever order points, lanes and threads run: a nest reads just the element that it then writes at this point; or
// nests that only read stand before the one that writes, and what an outer point touches is touched by no other. Nobody
// may need the operand behind the kernel, and the result must not be needed before it.
#pragma once

#include <optional>

#include "inductor/kernel/kernel_ir.h"

namespace framejit::inductor {

enum class KeptApart : uint8_t {
#define KEPT_APART(name, text) name,
#include "inductor/kernel/in_place.def"
#undef KEPT_APART
};
const char* name_of(KeptApart reason);

// `read` and `written` number buffers of the kernel, both in memory. Nothing: the second may take the memory of the
// first.
std::optional<KeptApart> kept_apart(const Kernel& kernel, LoopBufferId read, LoopBufferId written);

}  // namespace framejit::inductor
