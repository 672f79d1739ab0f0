// inductor/kernel/kept_kernels.h — code from the user's kernel cache, or made anew and kept there.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/kernel_code.h"

namespace framejit::inductor {

// Which build of the inductor this is, as part of what a target says of itself: another one may make other code of the
// same text.
const std::string& inductor_build();

// `build` makes object, name and launch shape; the rest is filled in here.
Result<std::shared_ptr<const runtime::KernelCode>> kept_or_built(
    const runtime::KernelId& id, const std::string& target, const std::string& text,
    const std::function<Result<std::shared_ptr<runtime::KernelCode>>()>& build);

}  // namespace framejit::inductor
