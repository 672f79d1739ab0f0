// inductor/no_llvm.cpp — a build without LLVM: the backend returns an Error, and segments run plainly.
#if !FRAMEJIT_WITH_LLVM

#include "inductor/cpu/jit.h"

namespace framejit::inductor {

bool is_available(VectorLevel) { return false; }

Result<std::unique_ptr<CpuJit>> CpuJit::create(VectorLevel) {
  return Error{Reason::no_target, "this build has no CPU emitter; configure with -DFRAMEJIT_WITH_LLVM=ON"};
}

}  // namespace framejit::inductor

#endif
