// frame_hook/trace/values/float_tensors.h — the 0-dim tensors of a recording that hold open floats.
//
// There is one for each source, that is, for each way in which guards compute a float. Different values of the trace
// may have the same source.
#pragma once

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <vector>

#include "frame_hook/trace/values/value.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

struct FloatTensor {
  guards::SourceId source;
  Value* tensor;
  Value* number = nullptr;      // the float that an op was first given as a number
  std::optional<uint32_t> id{};  // of that number: NumberRead names it
};

class FloatTensors {
 public:
  struct Use {  // the tensor of a float was asked for
    const Value* number;
    guards::SourceId source;
  };

  // Null: there is none yet.
  FloatTensor* find(const Value* number, guards::SourceId source) {
    const auto at = of_source_.find(source);
    if (at == of_source_.end()) return nullptr;
    uses_.push_back({number, source});
    return &at->second;
  }
  FloatTensor* add(const Value* number, guards::SourceId source, Value* tensor) {
    of_source_.emplace(source, FloatTensor{source, tensor});
    return find(number, source);
  }
  const FloatTensor& with_id(uint32_t id) const {
    const auto at = std::ranges::find_if(of_source_, [&](const auto& row) { return row.second.id == id; });
    FJ_ASSERT(at != of_source_.end(), "a number was read that no op was given");
    return at->second;
  }
  const std::unordered_map<guards::SourceId, FloatTensor>& all() const { return of_source_; }
  const std::vector<Use>& uses() const { return uses_; }

 private:
  std::unordered_map<guards::SourceId, FloatTensor> of_source_;
  std::vector<Use> uses_;
};

}  // namespace framejit::frame_hook
