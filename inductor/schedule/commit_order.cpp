// inductor/schedule/commit_order.cpp — which values may lie in the inputs that they update, and which steps move for
// that.
#include "inductor/schedule/commit_order.h"

#include <algorithm>

#include "inductor/schedule/checks.h"
#include "inductor/schedule/item_order.h"
#include "inductor/schedule/memory_order.h"

namespace framejit::inductor {
namespace {

using graph::Graph;
using graph::ValueId;
using Step = std::variant<Group, ExternCall>;
constexpr size_t kNone = SIZE_MAX, kSeveral = SIZE_MAX - 1;

bool may_fail(const Step& step) {
  const auto* group = std::get_if<Group>(&step);
  return group == nullptr || std::any_of(group->nests.begin(), group->nests.end(), has_checks);
}

bool returns_view(const graph::OpDef& op) {
  return std::any_of(op.result_alias.begin(), op.result_alias.end(), [](int8_t of) { return of >= 0; });
}

class CommitOrder {
 public:
  CommitOrder(const Graph& graph, const std::vector<ValueForm>& forms, Schedule& schedule)
      : graph_(graph), forms_(forms), schedule_(schedule), program_(schedule.program) {}

  void run(const SizeHints& hints) {
    schedule_.commit = schedule_.steps.size();
    while (schedule_.commit > 0 && !may_fail(schedule_.steps[schedule_.commit - 1])) --schedule_.commit;
    if (!find_candidates()) return;
    find_conflicts();
    const std::vector<size_t> order = moved_order();
    const bool pays =
        !order.empty() && peak_bytes(schedule_, hints, order, values_in_place()) <= peak_bytes(schedule_, hints);
    if (pays) move(order);
    for (const Candidate& c : candidates_)
      if (c.step >= schedule_.commit) schedule_.new_values.push_back(c.made);
  }

 private:
  struct Candidate {
    NewValue made;
    size_t step;  // the one that writes it
  };

  // Values with their own memory that nobody else sees, made by one kernel, with the layout of the input.
  bool find_candidates() {
    std::vector<size_t> writer(program_.buffers.size(), kNone);
    std::vector<bool> is_viewed(program_.buffers.size(), false);  // through a library's view, which is another buffer
    for (size_t s = 0; s < schedule_.steps.size(); ++s) {
      for (LoopBufferId b : access_of_step(schedule_.steps[s]).writes) writer[b] = writer[b] == kNone ? s : kSeveral;
      const auto* call = std::get_if<ExternCall>(&schedule_.steps[s]);
      if (call == nullptr || !returns_view(*graph_.nodes[call->node].op)) continue;
      for (LoopBufferId b : call->reads) is_viewed[b] = true;
    }
    std::vector<uint32_t> shown(program_.buffers.size(), 0);  // by how many updates and outputs
    for (const auto& [input, value] : graph_.updates) {
      const LoopBufferId root = root_buffer(forms_, value);
      const bool is_own = root == root_buffer(forms_, graph_.inputs[input]);  // already written in place
      // copied before the first write, which may fail
      if (!is_own && program_.buffers[root].role == BufferRole::kInput) return false;
      ++shown[root];
    }
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const bool is_input =
          i < graph_.output_aliases.size() && graph_.output_aliases[i].kind == graph::OutputKind::kInput;
      if (!is_input && graph_.outputs[i] != graph::kNoValue) ++shown[root_buffer(forms_, graph_.outputs[i])];
    }
    for (size_t u = 0; u < graph_.updates.size(); ++u) {
      const auto& [input, value] = graph_.updates[u];
      const ValueForm& form = forms_[graph::index_of(value)];
      const LoopBufferId own = root_buffer(forms_, graph_.inputs[input]);
      if (form.kind != ValueForm::kBuffer || shown[form.buffer] != 1 || is_viewed[own]) continue;
      if (program_.buffers[form.buffer].role != BufferRole::kTemp) continue;
      const size_t step = writer[form.buffer];
      if (step >= kSeveral || !std::holds_alternative<Group>(schedule_.steps[step])) continue;
      if (same_layout(graph_.meta(graph_.inputs[input]), graph_.meta(value)))
        candidates_.push_back({{u, form.buffer, own}, step});
    }
    return !candidates_.empty();
  }

  static bool same_layout(const graph::TensorMeta& a, const graph::TensorMeta& b) {
    for (size_t d = 0; d < a.sizes.size(); ++d)
      if (a.strides[d] == graph::SymExpr(0) && !(a.sizes[d] == graph::SymExpr(1))) return false;
    return a.dtype == b.dtype && a.sizes == b.sizes && a.strides == b.strides;
  }

  void find_conflicts() {
    needed_by_.resize(schedule_.steps.size());
    std::vector<std::vector<size_t>> writers(program_.buffers.size()), touching(program_.buffers.size());
    for (size_t s = 0; s < schedule_.steps.size(); ++s) {
      const ItemAccess access = access_of_step(schedule_.steps[s]);
      for (LoopBufferId b : access.reads)
        for (size_t earlier : writers[b]) needed_by_[earlier].push_back(s);
      for (LoopBufferId b : access.writes)
        for (size_t earlier : touching[b]) needed_by_[earlier].push_back(s);
      for (LoopBufferId b : access.writes) writers[b].push_back(s);
      for (const auto* list : {&access.reads, &access.writes})
        for (LoopBufferId b : *list) touching[b].push_back(s);
    }
  }

  // Steps before the last one that may fail go after it, if they write candidates or need steps that do. Empty: none
  // moves.
  std::vector<size_t> moved_order() {
    std::vector<bool> moves(schedule_.steps.size(), false);
    stays_.assign(schedule_.steps.size(), false);
    for (size_t s = schedule_.steps.size(); s-- > 0;)
      stays_[s] = may_fail(schedule_.steps[s]) ||
                  std::any_of(needed_by_[s].begin(), needed_by_[s].end(), [&](size_t later) { return stays_[later]; });
    for (const Candidate& c : candidates_) moves[c.step] = moves[c.step] || !stays_[c.step];
    for (size_t s = 0; s < schedule_.commit; ++s)
      if (moves[s])
        for (size_t later : needed_by_[s]) moves[later] = true;
    std::vector<size_t> order, last;
    for (size_t s = 0; s < schedule_.commit; ++s) (moves[s] ? last : order).push_back(s);
    if (last.empty()) return {};
    first_moved_ = order.size();
    order.insert(order.end(), last.begin(), last.end());
    for (size_t s = schedule_.commit; s < schedule_.steps.size(); ++s) order.push_back(s);
    return order;
  }

  std::vector<LoopBufferId> values_in_place() const {
    std::vector<LoopBufferId> values;
    for (const Candidate& c : candidates_)
      if (!stays_[c.step]) values.push_back(c.made.value);
    return values;
  }

  void move(const std::vector<size_t>& order) {
    std::vector<Step> steps;
    std::vector<size_t> place(order.size());
    for (size_t s : order) {
      place[s] = steps.size();
      steps.push_back(std::move(schedule_.steps[s]));
    }
    schedule_.steps = std::move(steps);
    schedule_.commit = first_moved_;
    for (Candidate& c : candidates_) c.step = place[c.step];
  }

  const Graph& graph_;
  const std::vector<ValueForm>& forms_;
  Schedule& schedule_;
  const LoopProgram& program_;
  std::vector<Candidate> candidates_;
  std::vector<std::vector<size_t>> needed_by_;  // per step: later ones that conflict with it
  std::vector<bool> stays_;                     // per step: it may fail, or a step that needs it may
  size_t first_moved_ = 0;                      // in the new order
};

}  // namespace

void order_for_commit(const Graph& graph, const std::vector<ValueForm>& forms, const SizeHints& hints,
                      const TargetInfo& target, Schedule& schedule) {
  if (graph.updates.empty() || !target.traits.steps_end_in_order) return;
  CommitOrder(graph, forms, schedule).run(hints);
}

}  // namespace framejit::inductor
