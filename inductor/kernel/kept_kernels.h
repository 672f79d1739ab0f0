// inductor/kernel/kept_kernels.h — code from the user's kernel cache, or newly compiled and stored there.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/kernel_code.h"

namespace framejit::inductor {

// Identifies this build of the inductor, as part of a target's description: another build may make other code from the
// same text.
const std::string& inductor_build();

// `build` makes the object, the name and the launch shape; the rest is filled in here.
Result<std::shared_ptr<const runtime::KernelCode>> kept_or_built(
    const runtime::KernelId& id, const std::string& target, const std::string& text,
    const std::function<Result<std::shared_ptr<runtime::KernelCode>>()>& build);

}  // namespace framejit::inductor
