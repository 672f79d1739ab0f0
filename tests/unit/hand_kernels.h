// tests/unit/hand_kernels.h — kernels that are functions of the test, for handwritten plans.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/executable.h"

namespace framejit::runtime::testing {

struct HandKernel : KernelCode {
  HandKernel(std::string the_name, FjKernelFn the_function, std::vector<FjScalar> the_scalars = {})
      : function(the_function), scalars(std::move(the_scalars)) {
    target = "hand";
    name = text = std::move(the_name);
    id = content_id(target, text);
  }
  FjKernelFn function;
  std::vector<FjScalar> scalars;
};

// Also records what was loaded for which device: "k0 on cpu, k0 on 1:0".
class HandLoader final : public KernelLoader {
 public:
  Result<LoadedKernel> load(const std::shared_ptr<const KernelCode>& code, DeviceId device) override {
    const auto* kernel = dynamic_cast<const HandKernel*>(code.get());
    if (kernel == nullptr) return Error{Reason::no_target, "no kernel of this test: " + code->name};
    loaded += (loaded.empty() ? "" : ", ") + code->name + " on " + text_of(device);
    return LoadedKernel{kernel->function, kernel->scalars, code};
  }
  std::string loaded;
};

using HandKernels = std::vector<std::shared_ptr<const KernelCode>>;

inline Executable executable_of(CallPlan plan, HandKernels kernels = {}) {
  Executable executable;
  executable.name = plan.name;
  executable.kernels = std::move(kernels);
  executable.forward = std::move(plan);
  return executable;
}

inline Result<std::shared_ptr<const BoundExecutable>> bind_by_hand(CallPlan plan, HandKernels kernels = {}) {
  HandLoader loader;
  return BoundExecutable::bind(executable_of(std::move(plan), std::move(kernels)), loader);
}

}  // namespace framejit::runtime::testing
