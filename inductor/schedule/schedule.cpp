// inductor/schedule/schedule.cpp — greedy grouping in program order.
//
// A nest joins the latest group that it shares data with, if it may move there past the steps between, and if both agree on at
// least the outer dimensions over which their common buffers are accessed point by point: every store and every load of a buffer
// that the group hands over must name the outer dimensions at the same positions of its index.
#include "inductor/schedule/schedule.h"

#include <algorithm>

namespace framejit::inductor {
namespace {

ItemAccess access_of_group(const Group& group) {
  ItemAccess all;
  for (const Nest& nest : group.nests) {
    const ItemAccess one = access_of(nest);
    all.reads.insert(all.reads.end(), one.reads.begin(), one.reads.end());
    all.writes.insert(all.writes.end(), one.writes.begin(), one.writes.end());
  }
  for (auto* list : {&all.reads, &all.writes}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  return all;
}

class Grouper {
 public:
  Grouper(LoopProgram program, const SizeHints& hints) : hints_(hints), symbols_(program.symbol_count) {
    schedule_.program = std::move(program);
  }

  Schedule run() {
    auto items = std::move(schedule_.program.items);
    schedule_.program.items.clear();
    for (auto& item : items) {
      if (auto* call = std::get_if<ExternCall>(&item)) {
        access_.push_back(access_of(item));
        schedule_.steps.emplace_back(std::move(*call));
      } else if (!join(std::get<Nest>(item))) {
        access_.push_back(access_of(item));
        Group group{{std::move(std::get<Nest>(item))}, 0};
        group.outer = group.nests[0].ranges.size();
        schedule_.steps.emplace_back(std::move(group));
      }
    }
    return std::move(schedule_);
  }

 private:
  bool join(Nest& nest) {
    const ItemAccess own = access_of(nest);
    for (size_t s = schedule_.steps.size(); s-- > 0;) {
      if (Group* group = std::get_if<Group>(&schedule_.steps[s]); group != nullptr && shares(own, access_[s])) {
        if (const auto outer = common_outer(*group, nest)) {
          group->outer = *outer;
          group->nests.push_back(std::move(nest));
          access_[s] = access_of_group(*group);
          return true;
        }
      }
      if (conflicts(own, access_[s])) return false;  // may not run before that step
    }
    return false;
  }

  // Something of more than a row's worth that both touch.
  bool shares(const ItemAccess& a, const ItemAccess& b) const {
    for (LoopBufferId x : a.reads) {
      const bool written = std::binary_search(b.writes.begin(), b.writes.end(), x);
      if (written) return true;
    }
    for (LoopBufferId x : a.writes)
      if (std::binary_search(b.writes.begin(), b.writes.end(), x)) return true;
    return false;
  }

  std::optional<size_t> common_outer(const Group& group, const Nest& nest) const {
    const Nest& leader = group.nests[0];
    size_t outer = 0;
    while (outer < group.outer && outer < nest.ranges.size() && leader.ranges[outer] == nest.ranges[outer]) ++outer;
    for (; outer > 0; --outer)
      if (agrees(group, nest, outer)) break;
    if (group.nests.size() >= 12) return std::nullopt;
    SymSizes shared(leader.ranges.begin(), leader.ranges.begin() + static_cast<long>(outer));
    const bool is_small = work(nest) <= 4096 && std::all_of(group.nests.begin(), group.nests.end(), [&](const Nest& n) { return work(n) <= 4096; });
    if (outer == 0 && !is_small) return std::nullopt;
    if (hints_.numel(shared) < 8 && !is_small) return std::nullopt;  // too few points for the threads
    return outer;
  }

  int64_t work(const Nest& nest) const {
    SymSizes all = nest.ranges;
    all.insert(all.end(), nest.reduced.begin(), nest.reduced.end());
    return hints_.numel(all);
  }

  // Accesses of buffers that one nest of the group and this one hand over (one of them writes) name each outer dimension at the
  // same position. A group of no outer dimensions runs in order at one point: always right.
  bool agrees(const Group& group, const Nest& nest, size_t outer) const {
    std::vector<const LoopInst*> theirs, own;
    for (const Nest& n : group.nests)
      for (const LoopInst& i : n.body)
        if (i.op == LoopOp::kStore || i.op == LoopOp::kLoad) theirs.push_back(&i);
    for (const LoopInst& i : nest.body)
      if (i.op == LoopOp::kStore || i.op == LoopOp::kLoad) own.push_back(&i);
    for (const LoopInst* mine : own)
      for (const LoopInst* other : theirs) {
        if (mine->buffer != other->buffer || (mine->op == LoopOp::kLoad && other->op == LoopOp::kLoad)) continue;
        if (!same_points(mine->index, other->index, nest.ranges, outer)) return false;
      }
    return true;
  }

  bool same_points(const std::vector<SymExpr>& a, const std::vector<SymExpr>& b, const SymSizes& ranges, size_t outer) const {
    for (size_t d = 0; d < outer; ++d) {
      bool found = ranges[d] == SymExpr(1);
      for (size_t k = 0; k < a.size() && !found; ++k) found = a[k] == symbols_.dim(d) && b[k] == symbols_.dim(d);
      if (!found) return false;
    }
    return true;
  }

  const SizeHints& hints_;
  NestSymbols symbols_;
  Schedule schedule_;
  std::vector<ItemAccess> access_;
};

}  // namespace

Schedule make_schedule(LoopProgram program, const SizeHints& hints) {
  program = prune(std::move(program));
  program = inline_producers(std::move(program), hints);
  program = merge_nests(std::move(program));
  return Grouper(std::move(program), hints).run();
}

Schedule make_plain_schedule(LoopProgram program) {
  Schedule schedule;
  auto items = std::move(program.items);
  program.items.clear();
  schedule.program = std::move(program);
  for (auto& item : items) {
    if (auto* call = std::get_if<ExternCall>(&item)) {
      schedule.steps.emplace_back(std::move(*call));
      continue;
    }
    Group group{{std::move(std::get<Nest>(item))}, 0};
    group.outer = group.nests[0].ranges.size();
    schedule.steps.emplace_back(std::move(group));
  }
  return schedule;
}

std::string print(const Schedule& schedule) {
  LoopProgram frame = schedule.program;
  std::string out = "schedule @" + frame.name + " {\n";
  size_t kernel = 0;
  for (const auto& step : schedule.steps) {
    if (const auto* call = std::get_if<ExternCall>(&step)) {
      out += "extern " + std::to_string(call->node) + " " + call->op + "\n";
      continue;
    }
    const Group& group = std::get<Group>(step);
    out += "kernel k" + std::to_string(kernel++) + " outer " + std::to_string(group.outer) + "\n";
    for (const Nest& nest : group.nests) out += print(frame, nest);
  }
  return out + "}\n";
}

}  // namespace framejit::inductor
