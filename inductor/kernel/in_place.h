// inductor/kernel/in_place.h — whether a kernel may write its result over one of its operands.
//
// Both begin at the same address. That is right if every read of an element comes before its write, in whatever order
// points, lanes and threads run. Either a nest reads only the element that it then writes at the same point. Or nests
// that only read come before the one that writes, and no outer point touches what another one touches. Nothing may need
// the operand after the kernel, and nothing may need the result before it.
#pragma once

#include <optional>

#include "inductor/kernel/kernel_ir.h"

namespace framejit::inductor {

enum class KeptApart : uint8_t {
#define KEPT_APART(name, text) name,
#include "inductor/kernel/in_place.def"
#undef KEPT_APART
};
const char* name_of(KeptApart reason);  // for tests

// `read` and `written` are buffers of the kernel, both in memory. Nothing: the second may take the memory of the first.
std::optional<KeptApart> kept_apart(const Kernel& kernel, LoopBufferId read, LoopBufferId written);

}  // namespace framejit::inductor
