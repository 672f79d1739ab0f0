// inductor/schedule/schedule.cpp — greedy grouping in program order.
//
// A nest joins the latest group that it shares data with, on two conditions. No step between may need one and be needed
// by the other. And both must agree on at least the outer dimensions over which their common buffers are accessed point
// by point: every store and every load of a buffer that the group passes on must have the outer dimensions at the same
// positions of its index.
#include "inductor/schedule/schedule.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "inductor/schedule/attention_nests.h"
#include "inductor/schedule/item_order.h"
#include "inductor/schedule/memory_order.h"
#include "inductor/schedule/nest_cost.h"

namespace framejit::inductor {
namespace {

class Grouper {
 public:
  Grouper(LoopProgram program, const SizeHints& hints, const TargetInfo& target, KeptNestPairs* notes)
      : hints_(hints),
        costs_(target.costs),
        blocks_meet_(target.traits.blocks_meet),
        symbols_(program.symbol_count),
        order_(program.items),
        attention_(find_attention(program)),
        writing_(program.buffers.size()),
        steps_(program.items.size()),
        notes_(notes) {
    schedule_.program = std::move(program);
  }

  Schedule run() {
    auto items = std::move(schedule_.program.items);
    schedule_.program.items.clear();
    for (size_t i = 0; i < items.size(); ++i) {
      Nest* const nest = std::get_if<Nest>(&items[i]);
      const bool is_first = attention_[i] != 0 && !attention_steps_.contains(attention_[i]);
      if (nest != nullptr && !is_first && (attention_[i] != 0 ? join_attention(i, *nest) : join(i, *nest))) continue;
      if (nest != nullptr) {
        Group group{{std::move(*nest)}, 0};
        group.outer = group.nests[0].ranges.size() - (is_first ? 1 : 0);
        group.is_attention = is_first;
        steps_[i] = std::move(group);
        if (is_first) {
          attention_steps_[attention_[i]] = take_nests_before(i, items);
          continue;
        }
      } else {
        steps_[i] = std::move(std::get<ExternCall>(items[i]));
      }
      for (LoopBufferId b : order_.access(i).writes) writing_[b].push_back(i);
    }
    for (size_t i : order_.order()) schedule_.steps.push_back(std::move(steps_[i]));
    return std::move(schedule_);
  }

 private:
  // Groups so far that write a buffer that the nest touches, the latest first.
  std::vector<size_t> candidates(size_t item) const {
    std::vector<size_t> found;
    for (const auto* list : {&order_.access(item).reads, &order_.access(item).writes})
      for (LoopBufferId b : *list)
        for (size_t step : writing_[b])
          if (const auto* group = std::get_if<Group>(&steps_[order_.found(step)]); group && !group->is_attention)
            found.push_back(order_.found(step));
    std::sort(found.begin(), found.end(), [&](size_t a, size_t b) { return order_.position(a) > order_.position(b); });
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

  bool join(size_t item, Nest& nest) {
    order_.look_back(item);
    for (size_t step : candidates(item)) {
      Group& group = std::get<Group>(steps_[step]);
      if (order_.is_parted(step)) {
        note(notes_, group.nests.back().name, nest.name, KeptNests::order);
      } else if (const auto outer = common_outer(group, nest, order_.access(item))) {
        group.outer = *outer;
        group.nests.push_back(std::move(nest));
        order_.join(step);
        note_writes(step);
        return true;
      }
    }
    return false;
  }

  // The nest joins the others of its attention.
  bool join_attention(size_t item, Nest& nest) {
    const size_t step = attention_steps_.at(attention_[item]);
    order_.look_back(item);
    if (order_.is_parted(step)) return false;
    std::get<Group>(steps_[step]).nests.push_back(std::move(nest));
    order_.join(step);
    note_writes(step);
    return true;
  }

  // The attention that begins with an item takes the groups that make its query, or write rows of its cache. Returns
  // its step.
  size_t take_nests_before(size_t item, const std::vector<std::variant<Nest, ExternCall>>& items) {
    const auto last = std::find(attention_.rbegin(), attention_.rend(), attention_[item]);
    const size_t end = static_cast<size_t>(attention_.rend() - last) - 1;
    std::vector<size_t> found = candidates(item);
    for (size_t step : candidates(end)) found.push_back(step);
    std::sort(found.begin(), found.end(), [&](size_t a, size_t b) { return order_.position(a) > order_.position(b); });
    found.erase(std::unique(found.begin(), found.end()), found.end());
    size_t own = item;
    for (size_t step : found) {
      order_.look_back(own);
      if (order_.is_parted(step)) continue;
      Group& group = std::get<Group>(steps_[step]);
      Group& attention = std::get<Group>(steps_[own]);
      auto before = heads_first(group.nests, attention.nests, std::get<Nest>(items[end]), attention.outer,
                                schedule_.program.symbol_count);
      if (!before || before->size() + attention.nests.size() + 3 > static_cast<size_t>(costs_.most_nests)) continue;
      if (std::any_of(before->begin(), before->end(), [&](const Nest& n) {
            return work(n) > costs_.small_points * hints_.numel({n.ranges.begin(), n.ranges.begin() + attention.outer});
          }))
        continue;
      before->insert(before->end(), std::make_move_iterator(attention.nests.begin()),
                     std::make_move_iterator(attention.nests.end()));
      steps_[step] = Group{std::move(*before), attention.outer, false, true};
      order_.join(step);
      own = step;
    }
    note_writes(own);
    return own;
  }

  void note_writes(size_t step) {
    for (LoopBufferId b : order_.access(step).writes)
      if (writing_[b].empty() || order_.found(writing_[b].back()) != step) writing_[b].push_back(step);
  }

  std::optional<size_t> common_outer(const Group& group, const Nest& nest, const ItemAccess& own) const {
    const Nest& leader = group.nests[0];
    const std::vector<HandedOver> handed = handed_over(group, nest, own);
    size_t outer = 0;
    while (outer < group.outer && outer < nest.ranges.size() && leader.ranges[outer] == nest.ranges[outer]) ++outer;
    for (; outer > 0; --outer)
      if (agrees(handed, nest, outer)) break;
    const auto refuse = [&](KeptNests reason) {
      note(notes_, group.nests.back().name, nest.name, reason);
      return std::nullopt;
    };
    if (group.nests.size() >= static_cast<size_t>(costs_.most_nests)) return refuse(KeptNests::group_full);
    int work_of_group = 0;
    for (const Nest& n : group.nests) work_of_group += cost_of(n).work;
    if (is_too_much_work(costs_, work_of_group, cost_of(nest).work)) return refuse(KeptNests::too_much_work);
    const auto points = [&](size_t count) {
      return hints_.numel({leader.ranges.begin(), leader.ranges.begin() + static_cast<long>(count)});
    };
    int64_t most = work(nest);
    for (const Nest& n : group.nests) most = std::max(most, work(n));
    while (outer > 1 && most < costs_.points_inside * points(outer) && points(outer - 1) >= costs_.enough_points)
      --outer;
    const bool is_small = most <= costs_.small_points;
    // If each outer point had only one inner point, the inner loops would be scalars, without lanes.
    if (outer > 0 && most <= points(outer) && !is_small) return refuse(KeptNests::nothing_inside);
    if (most <= points(outer)) outer = 0;
    if (outer == 0 && !is_small) return refuse(KeptNests::no_common_outer);
    const bool may_be_few =
        is_small || (blocks_meet_ && most <= costs_.row_of_blocks * points(outer) && is_even(group, nest, outer));
    if (points(outer) < costs_.few_points && !may_be_few) return refuse(KeptNests::few_points);
    const bool is_limited = costs_.points_of_an_outer != 0 && !is_small;
    if (is_limited && most > costs_.points_of_an_outer * points(outer)) return refuse(KeptNests::too_much_inside);
    const bool may_be_uneven = costs_.uneven_points == 0 || is_small || most <= costs_.uneven_points * points(outer);
    if (!may_be_uneven && !is_even(group, nest, outer)) return refuse(KeptNests::uneven);
    return outer;
  }

  // Whether all nests have equal inner ranges, all kept or all reduced. One point fits any.
  static bool is_even(const Group& group, const Nest& nest, size_t outer) {
    const auto inside = [&](const Nest& n) -> std::optional<SymSizes> {
      SymSizes kept(n.ranges.begin() + static_cast<long>(outer), n.ranges.end()), reduced = n.reduced;
      for (SymSizes* sizes : {&kept, &reduced}) std::erase(*sizes, SymExpr(1));
      if (!kept.empty() && !reduced.empty()) return std::nullopt;
      return kept.empty() ? reduced : kept;
    };
    const std::optional<SymSizes> own = inside(nest);
    return own && std::all_of(group.nests.begin(), group.nests.end(), [&](const Nest& n) {
             const std::optional<SymSizes> its = inside(n);
             return its && (its->empty() || own->empty() || *its == *own);
           });
  }

  int64_t work(const Nest& nest) const {
    SymSizes all = nest.ranges;
    all.insert(all.end(), nest.reduced.begin(), nest.reduced.end());
    return hints_.numel(all);
  }

  // An access of the nest and one of the group to a buffer that one of them writes.
  using HandedOver = std::pair<const LoopInst*, const LoopInst*>;
  static std::vector<HandedOver> handed_over(const Group& group, const Nest& nest, const ItemAccess& own) {
    const auto is_access = [](const LoopInst& i) { return i.op == LoopOp::kStore || i.op == LoopOp::kLoad; };
    const auto touches = [](const std::vector<LoopBufferId>& list, LoopBufferId b) {
      return std::binary_search(list.begin(), list.end(), b);
    };
    std::vector<HandedOver> pairs;
    for (const Nest& n : group.nests)
      for (const LoopInst& other : n.body) {
        if (!is_access(other) || !touches(own.writes, other.buffer)) {
          if (other.op != LoopOp::kStore || !touches(own.reads, other.buffer)) continue;
        }
        for (const LoopInst& mine : nest.body)
          if (is_access(mine) && mine.buffer == other.buffer &&
              (mine.op == LoopOp::kStore || other.op == LoopOp::kStore))
            pairs.emplace_back(&mine, &other);
      }
    return pairs;
  }

  // Both have each outer dimension at the same position. A group without outer dimensions runs in order at one point,
  // which is always right.
  bool agrees(const std::vector<HandedOver>& handed, const Nest& nest, size_t outer) const {
    return std::all_of(handed.begin(), handed.end(), [&](const HandedOver& pair) {
      return same_points(pair.first->index, pair.second->index, nest.ranges, outer);
    });
  }

  bool same_points(const std::vector<SymExpr>& a, const std::vector<SymExpr>& b, const SymSizes& ranges,
                   size_t outer) const {
    for (size_t d = 0; d < outer; ++d) {
      bool found = ranges[d] == SymExpr(1);
      for (size_t k = 0; k < a.size() && !found; ++k) found = a[k] == symbols_.dim(d) && b[k] == symbols_.dim(d);
      if (!found) return false;
    }
    return true;
  }

  const SizeHints& hints_;
  const Costs& costs_;
  const bool blocks_meet_;
  NestSymbols symbols_;
  ItemOrder order_;
  const std::vector<uint32_t> attention_;  // by item, see find_attention()
  std::map<uint32_t, size_t> attention_steps_;  // of attentions so far
  std::vector<std::vector<size_t>> writing_;              // per buffer: items so far that write it
  std::vector<std::variant<Group, ExternCall>> steps_;    // by item: its step, unless it was joined
  Schedule schedule_;
  KeptNestPairs* notes_;
};

// A pair is not refused if its nests came together after all, or if one of them was merged into another nest.
KeptNestPairs apart(const Schedule& schedule, const KeptNestPairs& notes) {
  std::map<std::string, size_t> step_of;
  for (size_t s = 0; s < schedule.steps.size(); ++s)
    if (const auto* group = std::get_if<Group>(&schedule.steps[s]))
      for (const Nest& nest : group->nests) step_of[nest.name] = s;
  KeptNestPairs kept;
  std::set<std::tuple<std::string, std::string, KeptNests>> seen;
  for (const KeptNestPair& pair : notes) {
    const auto first = step_of.find(pair.first), second = step_of.find(pair.second);
    if (first == step_of.end() || second == step_of.end() || first->second == second->second) continue;
    if (seen.insert({pair.first, pair.second, pair.reason}).second) kept.push_back(pair);
  }
  return kept;
}

}  // namespace

Schedule make_schedule(LoopProgram program, const SizeHints& hints, const TargetInfo& target, bool with_kept_nests) {
  KeptNestPairs notes;
  KeptNestPairs* const wanted = with_kept_nests ? &notes : nullptr;
  program = prune(std::move(program));
  program = inline_producers(std::move(program), hints, target.costs, wanted);
  program = merge_nests(std::move(program), target.costs, wanted);
  program = prune(split_reductions(std::move(program), hints, target.costs));
  Schedule schedule = Grouper(std::move(program), hints, target, wanted).run();
  order_by_memory(schedule, hints);
  schedule.refused = apart(schedule, notes);
  return schedule;
}

ItemAccess access_of_step(const std::variant<Group, ExternCall>& step) {
  if (const auto* call = std::get_if<ExternCall>(&step)) return access_of(*call);
  ItemAccess all;
  for (const Nest& nest : std::get<Group>(step).nests) {
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

std::vector<bool> private_buffers(const Schedule& schedule) {
  const size_t count = schedule.program.buffers.size();
  std::vector<size_t> users(count, 0), last(count, SIZE_MAX);
  for (size_t step = 0; step < schedule.steps.size(); ++step) {
    const auto touch = [&](LoopBufferId b) { users[b] += std::exchange(last[b], step) != step; };
    if (const auto* call = std::get_if<ExternCall>(&schedule.steps[step])) {
      for (LoopBufferId b : call->reads) touch(b);
      for (LoopBufferId b : call->writes) touch(b);
    } else {
      for (const Nest& nest : std::get<Group>(schedule.steps[step]).nests)
        for (const LoopInst& inst : nest.body)
          if (inst.op == LoopOp::kLoad || inst.op == LoopOp::kStore) touch(inst.buffer);
    }
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
  for (const KeptNestPair& pair : schedule.refused)
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
    out += "kernel k" + std::to_string(kernel++) + " outer " + std::to_string(group.outer) +
           (group.is_product     ? " product\n"
            : group.is_attention ? " attention\n"
                                 : "\n");
    for (const Nest& nest : group.nests) out += print(frame, nest);
  }
  return out + "}\n";
}

}  // namespace framejit::inductor
