// inductor/schedule/memory_order.cpp — steps that allocate more than they free run late, steps that free more than they
// allocate run early.
//
// Library calls, and steps whose results nobody in the program reads, are taken in program order. Before each of them
// run the steps that it needs and that have not run yet, in program order too. So the copy of a weight comes directly
// before the product that uses it, wherever the program made it. A step that frees at least as much as it writes runs
// as soon as it can. This is greedy: the order is simulated, and the program's own order is kept if it is no worse.
#include "inductor/schedule/memory_order.h"

#include <algorithm>

namespace framejit::inductor {
namespace {

using Steps = std::vector<std::variant<Group, ExternCall>>;

class MemoryOrder {
 public:
  MemoryOrder(const Schedule& schedule, const SizeHints& hints)
      : program_(schedule.program), needs_(schedule.steps.size()), needed_by_(schedule.steps.size()) {
    const size_t buffers = program_.buffers.size();
    writers_.resize(buffers);
    touching_.resize(buffers);
    for (const LoopBuffer& b : program_.buffers)
      bytes_.push_back(b.role == BufferRole::kTemp ? hints.numel(b.sizes) * row_of(b.dtype).bytes : 0);
    std::optional<size_t> last_call;
    for (size_t s = 0; s < schedule.steps.size(); ++s) {
      access_.push_back(access_of_step(schedule.steps[s]));
      is_call_.push_back(std::holds_alternative<ExternCall>(schedule.steps[s]));
      if (is_call_[s]) {
        if (last_call) needs_[s].push_back(*last_call);
        last_call = s;
      }
      for (LoopBufferId b : access_[s].reads)
        needs_[s].insert(needs_[s].end(), writers_[b].begin(), writers_[b].end());
      for (LoopBufferId b : access_[s].writes)
        needs_[s].insert(needs_[s].end(), touching_[b].begin(), touching_[b].end());
      std::sort(needs_[s].begin(), needs_[s].end());
      needs_[s].erase(std::unique(needs_[s].begin(), needs_[s].end()), needs_[s].end());
      for (size_t earlier : needs_[s]) needed_by_[earlier].push_back(s);
      for (LoopBufferId b : access_[s].writes) writers_[b].push_back(s);
      for (const auto* list : {&access_[s].reads, &access_[s].writes})
        for (LoopBufferId b : *list)
          if (touching_[b].empty() || touching_[b].back() != s) touching_[b].push_back(s);
    }
  }

  std::vector<size_t> find() {
    for (const std::vector<size_t>& steps : touching_) left_.push_back(steps.size());
    for (const std::vector<size_t>& needs : needs_) missing_.push_back(needs.size());
    is_run_.assign(needs_.size(), false);
    for (size_t s = 0; s < needs_.size(); ++s)
      if (is_call_[s] || needed_by_[s].empty()) run_with_needs(s);
    return std::move(order_);
  }

  void leave_out(const std::vector<LoopBufferId>& buffers) {
    for (LoopBufferId b : buffers) bytes_[b] = 0;
  }

  int64_t peak(const std::vector<size_t>& order) const {
    std::vector<size_t> left;
    for (const std::vector<size_t>& steps : touching_) left.push_back(steps.size());
    std::vector<bool> is_alive(bytes_.size(), false);
    int64_t live = 0, most = 0;
    for (size_t s : order) {
      for (LoopBufferId b : access_[s].writes)
        if (!is_alive[b]) {
          is_alive[b] = true;
          live += bytes_[b];
        }
      most = std::max(most, live);
      for_each_touched(s, [&](LoopBufferId b) {
        if (--left[b] == 0 && is_alive[b] && !program_.buffers[b].is_output) live -= bytes_[b];
      });
    }
    return most;
  }

 private:
  template <class Visit>
  void for_each_touched(size_t s, Visit visit) const {
    for (LoopBufferId b : access_[s].reads) visit(b);
    for (LoopBufferId b : access_[s].writes)
      if (!std::binary_search(access_[s].reads.begin(), access_[s].reads.end(), b)) visit(b);
  }

  // Depth first, without recursion: chains are as long as programs.
  void run_with_needs(size_t wanted) {
    std::vector<size_t> open{wanted};
    while (!open.empty()) {
      const size_t s = open.back();
      if (is_run_[s]) {
        open.pop_back();
        continue;
      }
      const size_t before = open.size();
      for (size_t earlier : needs_[s])
        if (!is_run_[earlier]) open.push_back(earlier);
      if (open.size() != before) {
        std::sort(open.begin() + static_cast<long>(before), open.end(), std::greater<>());
        continue;
      }
      open.pop_back();
      run(s);
    }
  }

  void run(size_t step) {
    std::vector<size_t> ready{step};
    for (size_t k = 0; k < ready.size(); ++k) {
      const size_t s = ready[k];
      is_run_[s] = true;
      order_.push_back(s);
      for_each_touched(s, [&](LoopBufferId b) { --left_[b]; });
      for (size_t later : needed_by_[s])
        if (--missing_[later] == 0 && !is_call_[later] && !is_run_[later] && gain(later) >= 0) {
          is_run_[later] = true;
          ready.push_back(later);
        }
    }
  }

  // Bytes that it frees, minus those that it writes first.
  int64_t gain(size_t s) const {
    int64_t bytes = 0;
    for_each_touched(s, [&](LoopBufferId b) {
      if (left_[b] == 1 && !program_.buffers[b].is_output) bytes += bytes_[b];
    });
    for (LoopBufferId b : access_[s].writes)
      if (left_[b] == touching_[b].size()) bytes -= bytes_[b];
    return bytes;
  }

  const LoopProgram& program_;
  std::vector<ItemAccess> access_;
  std::vector<bool> is_call_, is_run_;
  std::vector<std::vector<size_t>> needs_, needed_by_;  // per step: direct conflicts with earlier and with later ones
  std::vector<std::vector<size_t>> writers_, touching_;     // per buffer: steps, in program order
  std::vector<int64_t> bytes_;                              // per buffer
  std::vector<size_t> left_, missing_;  // while ordering: steps that still touch a buffer; what a step still waits for
  std::vector<size_t> order_;
};

std::vector<size_t> as_it_stands(size_t count) {
  std::vector<size_t> order;
  for (size_t s = 0; s < count; ++s) order.push_back(s);
  return order;
}

}  // namespace

void order_by_memory(Schedule& schedule, const SizeHints& hints) {
  MemoryOrder order(schedule, hints);
  const std::vector<size_t> found = order.find();
  FJ_ASSERT(found.size() == schedule.steps.size(), "steps were lost during ordering");
  if (order.peak(found) >= order.peak(as_it_stands(found.size()))) return;
  Steps steps;
  for (size_t s : found) steps.push_back(std::move(schedule.steps[s]));
  schedule.steps = std::move(steps);
}

int64_t peak_bytes(const Schedule& schedule, const SizeHints& hints) {
  return peak_bytes(schedule, hints, as_it_stands(schedule.steps.size()), {});
}

int64_t peak_bytes(const Schedule& schedule, const SizeHints& hints, const std::vector<size_t>& order,
                   const std::vector<LoopBufferId>& elsewhere) {
  MemoryOrder memory(schedule, hints);
  memory.leave_out(elsewhere);
  return memory.peak(order);
}

}  // namespace framejit::inductor
