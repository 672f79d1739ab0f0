#include "frame_hook/aten/autocast_region.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "runtime/base/log.h"
#include "runtime/base/warn_once.h"

namespace framejit::frame_hook {
namespace {

bool is_kept(const at::Tensor& tensor) {
  return tensor.defined() && tensor.scalar_type() == at::kFloat && tensor.requires_grad() && tensor.is_leaf() &&
         !tensor.is_view() && at::autocast::is_autocast_enabled(tensor.device().type());
}

// PyTorch drops its casts when the outermost region ends, and notifies nobody. So we keep a weight of our own and ask
// for its cast. If the cast is another tensor than last time, a new region has begun.
at::Tensor current_region() {
  static const auto* const probe = new at::Tensor(at::zeros({1}).set_requires_grad(true));
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(at::kCPU), *probe, at::kCPU);
}

}  // namespace

std::optional<WeightsInRegion> WeightsInRegion::of(const std::vector<at::Tensor>& inputs) {
  if (!at::autocast::is_autocast_cache_enabled()) return std::nullopt;
  WeightsInRegion found;
  for (uint32_t i = 0; i < inputs.size(); ++i)
    if (is_kept(inputs[i])) found.weights_.push_back(i);
  return found.weights_.empty() ? std::nullopt : std::optional(std::move(found));
}

void WeightsInRegion::look(const at::Tensor* const* inputs) {
  if (!log::enabled(log::Kind::Unheeded)) return;
  uint64_t writes = 0;
  for (const uint32_t i : weights_) writes += inputs[i]->_version();
  at::Tensor region = current_region();
  if (!region.is_same(region_)) writes_.clear();
  region_ = std::move(region);
  const auto [known, is_new] = writes_.try_emplace(inputs[weights_[0]]->unsafeGetTensorImpl(), writes);
  if (std::exchange(known->second, writes) == writes || !log::is_first_time("written in an autocast region")) return;
  log::emit(log::Kind::Unheeded, "",
            {{"asked", "weights are written inside the autocast region in which they were used"},
             {"instead",
              "PyTorch keeps using the casts that it made there; compiled code casts the new values. End "
              "the region before the optimizer's step"}});
}

}  // namespace framejit::frame_hook
