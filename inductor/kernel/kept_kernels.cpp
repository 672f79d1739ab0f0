#include "inductor/kernel/kept_kernels.h"

#include "runtime/base/build_id.h"
#include "runtime/kernel_cache.h"

namespace framejit::inductor {

const std::string& inductor_build() {
  static const std::string id = build_id_of(reinterpret_cast<const void*>(&inductor_build));
  return id;
}

Result<std::shared_ptr<const runtime::KernelCode>> kept_or_built(
    const runtime::KernelId& id, const std::string& target, const std::string& text,
    const std::function<Result<std::shared_ptr<runtime::KernelCode>>()>& build) {
  const std::shared_ptr<runtime::KernelCache> cache = inductor_build().empty() ? nullptr : runtime::kernel_cache();
  if (cache)
    if (auto kept = cache->find(id, target, text)) return kept;
  FJ_TRY(std::shared_ptr<runtime::KernelCode> built, build());
  built->id = id;
  built->target = target;
  built->text = text;
  if (cache) cache->store(*built);
  return std::shared_ptr<const runtime::KernelCode>(std::move(built));
}

}  // namespace framejit::inductor
