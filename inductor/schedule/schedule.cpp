// inductor/schedule/schedule.cpp — greedy grouping in program order.
//
// A nest joins the latest group that it shares data with, if it may move there past the steps between, and if both agree on at
// least the outer dimensions over which their common buffers are accessed point by point: every store and every load of a buffer
// that the group hands over must name the outer dimensions at the same positions of its index.
#include "inductor/schedule/schedule.h"

#include <algorithm>
#include <map>

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
  Grouper(LoopProgram program, const SizeHints& hints, RefusalNotes* notes) : hints_(hints), symbols_(program.symbol_count), notes_(notes) {
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
    bool may_rise = true;
    for (size_t s = schedule_.steps.size(); s-- > 0 && (may_rise || notes_ != nullptr);) {
      Group* group = std::get_if<Group>(&schedule_.steps[s]);
      if (group != nullptr && shares(own, access_[s])) {
        if (!may_rise) {
          note(notes_, group->nests.back().name, nest.name, Refusal::order);
        } else if (const auto outer = common_outer(*group, nest)) {
          group->outer = *outer;
          group->nests.push_back(std::move(nest));
          access_[s] = access_of_group(*group);
          return true;
        }
      }
      may_rise = may_rise && !conflicts(own, access_[s]);  // it may not run before that step
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
    const auto refuse = [&](Refusal reason) {
      note(notes_, group.nests.back().name, nest.name, reason);
      return std::nullopt;
    };
    if (group.nests.size() >= 12) return refuse(Refusal::group_full);
    SymSizes shared(leader.ranges.begin(), leader.ranges.begin() + static_cast<long>(outer));
    const bool is_small = work(nest) <= 4096 && std::all_of(group.nests.begin(), group.nests.end(), [&](const Nest& n) { return work(n) <= 4096; });
    if (outer == 0 && !is_small) return refuse(Refusal::no_common_outer);
    if (hints_.numel(shared) < 8 && !is_small) return refuse(Refusal::few_points);
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
  RefusalNotes* notes_;
};

// A pair whose nests found together after all, or of which one is gone into another, is no refusal.
RefusalNotes apart(const Schedule& schedule, const RefusalNotes& notes) {
  std::map<std::string, size_t> step_of;
  for (size_t s = 0; s < schedule.steps.size(); ++s)
    if (const auto* group = std::get_if<Group>(&schedule.steps[s]))
      for (const Nest& nest : group->nests) step_of[nest.name] = s;
  RefusalNotes kept;
  for (const RefusedPair& pair : notes) {
    const auto first = step_of.find(pair.first), second = step_of.find(pair.second);
    if (first != step_of.end() && second != step_of.end() && first->second != second->second) kept.push_back(pair);
  }
  return kept;
}

}  // namespace

Schedule make_schedule(LoopProgram program, const SizeHints& hints, bool with_refusals) {
  RefusalNotes notes;
  RefusalNotes* const wanted = with_refusals ? &notes : nullptr;
  program = prune(std::move(program));
  program = inline_producers(std::move(program), hints, wanted);
  program = merge_nests(std::move(program), wanted);
  program = prune(split_reductions(std::move(program), hints));
  Schedule schedule = Grouper(std::move(program), hints, wanted).run();
  schedule.refused = apart(schedule, notes);
  return schedule;
}

std::vector<bool> private_buffers(const Schedule& schedule) {
  const size_t count = schedule.program.buffers.size();
  std::vector<size_t> users(count, 0);
  for (const auto& step : schedule.steps) {
    std::vector<bool> touched(count, false);
    if (const auto* call = std::get_if<ExternCall>(&step)) {
      for (LoopBufferId b : call->reads) touched[b] = true;
      for (LoopBufferId b : call->writes) touched[b] = true;
    } else {
      for (const Nest& nest : std::get<Group>(step).nests)
        for (const LoopInst& inst : nest.body)
          if (inst.op == LoopOp::kLoad || inst.op == LoopOp::kStore) touched[inst.buffer] = true;
    }
    for (size_t b = 0; b < count; ++b) users[b] += touched[b];
  }
  std::vector<bool> is_private(count);
  for (size_t b = 0; b < count; ++b) {
    const LoopBuffer& buffer = schedule.program.buffers[b];
    is_private[b] = buffer.role == BufferRole::kTemp && !buffer.is_output && users[b] == 1;
  }
  return is_private;
}

std::string print_refused(const Schedule& schedule) {
  std::string out;
  for (const RefusedPair& pair : schedule.refused)
    out += pair.first + ", " + pair.second + ": " + name_of(pair.reason) + ": " + text_of(pair.reason) + "\n";
  return out;
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
