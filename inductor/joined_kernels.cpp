// inductor/joined_kernels.cpp — takes the steps in order, and joins each kernel to those just before it if neither
// needs the other.
//
// A kernel that may fail stays apart from kernels that write inputs: they could have written before it fails. What two
// kernels touch is compared as memory: views as their bases, values in the arena as ranges of bytes, inputs as a whole.
// No input overlaps one that is written: the plan would not run then.
#include "inductor/joined_kernels.h"

#include <algorithm>
#include <set>
#include <utility>

namespace framejit::inductor {
namespace {

using runtime::AllocateStep;
using runtime::Buffer;
using runtime::BufferId;
using runtime::CallPlan;
using runtime::KernelStep;
using runtime::Step;
using runtime::Storage;
using runtime::ViewStep;

class Joiner {
 public:
  Joiner(CallPlan& plan, const std::vector<KernelTraits>& traits) : plan_(plan), traits_(traits) {
    base_.resize(plan.buffers.size());
    for (BufferId b = 0; b < base_.size(); ++b) base_[b] = b;
    for (const Step& step : plan.steps)
      if (const auto* view = std::get_if<ViewStep>(&step)) base_[view->result] = base_[view->base];
  }

  void run() {
    std::vector<Step> steps = std::move(plan_.steps);
    plan_.steps.clear();
    size_t kernel = 0;
    for (Step& step : steps) {
      if (auto* one = std::get_if<KernelStep>(&step)) {
        const KernelTraits& traits = traits_[kernel++];
        if (!may_join(*one, traits)) flush();
        note(*one, traits);
        joined_.push_back(std::move(step));
      } else if (std::holds_alternative<AllocateStep>(step)) {
        plan_.steps.push_back(std::move(step));
      } else {
        flush();
        plan_.steps.push_back(std::move(step));
      }
    }
    flush();
  }

 private:
  using Memory = std::pair<Storage, uint32_t>;  // a buffer's storage, and which input, value or tensor it is

  bool writes_input(const KernelStep& step, const KernelTraits& traits) const {
    for (size_t k = 0; k < step.buffers.size(); ++k)
      if (traits.is_written[k] && plan_.buffers[base_[step.buffers[k]]].storage == Storage::kInput) return true;
    return false;
  }

  Memory memory_of(BufferId b) const {
    const Buffer& buffer = plan_.buffers[base_[b]];
    return {buffer.storage, buffer.storage == Storage::kTensor ? base_[b] : buffer.index};
  }

  struct Range {
    uint32_t block;
    int64_t begin, end;
    bool is_written;
  };
  // If the bounds are unknown, the range is the whole block.
  Range range_of(BufferId b, bool is_written) const {
    const Buffer& buffer = plan_.buffers[b];
    int64_t span = 1;
    bool is_known = buffer.offset.slot < 0;
    for (size_t d = 0; d < buffer.sizes.size(); ++d) {
      is_known = is_known && buffer.sizes[d].slot < 0 && buffer.strides[d].slot < 0;
      span += (buffer.sizes[d].constant - 1) * buffer.strides[d].constant;
    }
    if (!is_known) return {buffer.index, 0, INT64_MAX, is_written};
    const int64_t begin = buffer.offset.constant;
    return {buffer.index, begin, begin + span * row_of(buffer.dtype).bytes, is_written};
  }

  bool may_join(const KernelStep& step, const KernelTraits& traits) const {
    if ((may_fail_ || traits.may_fail) && (writes_input_ || writes_input(step, traits))) return false;
    for (size_t k = 0; k < step.buffers.size(); ++k) {
      const BufferId b = step.buffers[k];
      if (plan_.buffers[base_[b]].storage == Storage::kArena) {
        const Range own = range_of(b, traits.is_written[k]);
        if (std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& other) {
              return other.block == own.block && other.begin < own.end && own.begin < other.end &&
                     (other.is_written || own.is_written);
            }))
          return false;
        continue;
      }
      const Memory memory = memory_of(b);
      if (written_.contains(memory) || (traits.is_written[k] && read_.contains(memory))) return false;
    }
    return true;
  }

  void note(const KernelStep& step, const KernelTraits& traits) {
    may_fail_ = may_fail_ || traits.may_fail;
    writes_input_ = writes_input_ || writes_input(step, traits);
    for (size_t k = 0; k < step.buffers.size(); ++k) {
      const BufferId b = step.buffers[k];
      if (plan_.buffers[base_[b]].storage == Storage::kArena) ranges_.push_back(range_of(b, traits.is_written[k]));
      else (traits.is_written[k] ? written_ : read_).insert(memory_of(b));
    }
  }

  void flush() {
    if (!joined_.empty()) std::get<KernelStep>(joined_[0]).together = static_cast<uint32_t>(joined_.size());
    std::move(joined_.begin(), joined_.end(), std::back_inserter(plan_.steps));
    joined_.clear();
    ranges_.clear();
    read_.clear();
    written_.clear();
    may_fail_ = writes_input_ = false;
  }

  CallPlan& plan_;
  const std::vector<KernelTraits>& traits_;
  std::vector<BufferId> base_;  // per buffer: what it is a view of, or itself
  std::vector<Step> joined_;  // kernels that run together, so far
  std::vector<Range> ranges_;  // of the arena, that they touch
  std::set<Memory> read_, written_;
  bool may_fail_ = false, writes_input_ = false;  // whether one of them does
};

}  // namespace

void join_kernels(CallPlan& plan, const std::vector<KernelTraits>& traits) { Joiner(plan, traits).run(); }

}  // namespace framejit::inductor
