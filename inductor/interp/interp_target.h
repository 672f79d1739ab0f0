// inductor/interp/interp_target.h — kernels run by the interpreter: every other target is compared with it.
#pragma once

#include "inductor/kernel/target.h"

namespace framejit::inductor {

std::unique_ptr<KernelTarget> make_interp_target();

}  // namespace framejit::inductor
