// inductor/schedule/schedule_verify.cpp — the invariants of every schedule. The error names the first broken rule and
// its step.
#include <algorithm>
#include <set>
#include <string_view>

#include "inductor/schedule/schedule.h"

namespace framejit::inductor {
namespace {

class Verifier {
 public:
  Verifier(const Schedule& schedule, std::span<const int64_t> hints)
      : schedule_(schedule), hints_(hints), is_made_(schedule.program.buffers.size(), false) {}

  Result<void> run() {
    const auto& buffers = schedule_.program.buffers;
    for (size_t b = 0; b < buffers.size(); ++b) is_made_[b] = buffers[b].role != BufferRole::kTemp;
    for (step_ = 0; step_ < schedule_.steps.size(); ++step_) {
      if (const auto* group = std::get_if<Group>(&schedule_.steps[step_])) FJ_TRY_VOID(verify_group(*group));
      else
        FJ_TRY_VOID(verify_access(std::get<ExternCall>(schedule_.steps[step_]).reads,
                                  std::get<ExternCall>(schedule_.steps[step_]).writes));
    }
    if (schedule_.commit != SIZE_MAX && schedule_.commit > schedule_.steps.size())
      return Error{Reason::not_verified, "the commit point is not a step"};
    for (const NewValue& value : schedule_.new_values)
      if (value.value >= buffers.size() || value.input >= buffers.size())
        return Error{Reason::not_verified, "a new value is not a buffer"};
    for (size_t b = 0; b < buffers.size(); ++b)
      if (buffers[b].is_output && !is_made_[b])
        return Error{Reason::not_verified, "output " + buffers[b].name + " is never made"};
    return {};
  }

 private:
  Error fail(const std::string& what) const {
    return {Reason::not_verified, "step " + std::to_string(step_) + ": " + what};
  }

  Result<void> verify_group(const Group& group) {
    if (group.nests.empty()) return fail("a kernel without nests");
    if (group.is_product && group.nests.size() != 1) return fail("a product together with other nests");
    const Nest& first = group.nests[0];
    for (const Nest& nest : group.nests) {
      if (!group.is_product && !names_.insert(nest.name).second) return fail("two nests are named " + nest.name);
      FJ_TRY_VOID(verify(schedule_.program, nest, hints_));
      if (nest.ranges.size() < group.outer ||
          !std::equal(nest.ranges.begin(), nest.ranges.begin() + static_cast<long>(group.outer), first.ranges.begin()))
        return fail("nest " + nest.name + " does not share the outer dimensions");
      for (const LoopInst& inst : nest.body) {
        if (inst.op == LoopOp::kLoad) FJ_TRY_VOID(verify_access({inst.buffer}, {}));
        if (inst.op == LoopOp::kStore) FJ_TRY_VOID(verify_access({}, {inst.buffer}));
      }
    }
    return {};
  }

  Result<void> verify_access(const std::vector<LoopBufferId>& reads, const std::vector<LoopBufferId>& writes) {
    for (const auto& list : {reads, writes})
      for (LoopBufferId b : list)
        if (b >= is_made_.size()) return fail("no such buffer");
    for (LoopBufferId b : reads)
      if (!is_made_[b] && std::find(writes.begin(), writes.end(), b) == writes.end())
        return fail(schedule_.program.buffers[b].name + " is read before it is made");
    for (LoopBufferId b : writes) is_made_[b] = true;
    return {};
  }

  const Schedule& schedule_;
  const std::span<const int64_t> hints_;
  std::vector<bool> is_made_;
  std::set<std::string_view> names_;
  size_t step_ = 0;
};

}  // namespace

Result<void> verify(const Schedule& schedule, std::span<const int64_t> hints) {
  return Verifier(schedule, hints).run();
}

}  // namespace framejit::inductor
