#include "frame_hook/aten/training.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "graph/forward_again.h"
#include "graph/joint.h"
#include "runtime/aten/totals.h"
#include "runtime/base/config.h"
#include "runtime/base/text.h"

namespace framejit::frame_hook {
namespace {

using Pattern = std::pair<std::vector<bool>, std::vector<bool>>;  // gradients that are given, and wanted

class LazyBackward final : public runtime::BackwardPlans {
 public:
  LazyBackward(const graph::CompiledGraph& compiled, const RecordedValues& values, const OutputSet& outputs)
      : graphs_(compiled.training), backend_(compiled.backend), constants_(values.constants), opaques_(values.opaques) {
    for (const graph::Saved& saved : graphs_->saved) layout_.saved.push_back(saved_value(saved));
    layout_.roots = graphs_->roots;
    for (uint32_t root : layout_.roots) layout_.versions.push_back(outputs.properties[root].version);
    for (uint32_t root : layout_.roots) {  // what was detached from an input is another tensor, with its own history
      const graph::OutputAlias& alias = graphs_->forward.output_aliases[root];
      const bool is_written = alias.kind == graph::OutputKind::kInput && outputs.properties[root].is_input;
      layout_.written.push_back(is_written ? static_cast<int64_t>(alias.of) : -1);
    }
    for (const graph::GradientOf& gradient : graphs_->gradients)
      layout_.gradients.push_back({gradient.of == graph::GradientOf::kRoot, gradient.index});
    layout_.groups = graphs_->groups;
    layout_.reaches = graphs_->reaches;
    for (uint32_t g = 0; g < layout_.gradients.size(); ++g)
      if (!layout_.gradients[g].is_of_root && is_partly_reached(g)) layout_.partly_reached.push_back(g);
    layout_.kept_inputs = graphs_->kept_inputs;
    layout_.input_keepers = graphs_->input_keepers;
    for (size_t k = 0; k < graphs_->kept_outputs.size(); ++k) {
      const uint32_t output = graphs_->kept_outputs[k];
      if (has_counter_of_another(output, outputs.properties[output])) continue;
      layout_.kept_outputs.push_back(output);
      layout_.kept_versions.push_back(outputs.properties[output].version);
      layout_.output_keepers.push_back(graphs_->output_keepers[k]);
    }
    layout_.ends.resize(layout_.roots.size());
    for (const graph::Holder& holder : graphs_->holders) add_holder(holder);
    layout_.readers = graphs_->readers;
    layout_.gradient_readers = graphs_->gradient_readers;
    layout_.names = graphs_->root_names;
    for (size_t r = 0; r < layout_.roots.size(); ++r)
      if (outputs.properties[layout_.roots[r]].by_strides) layout_.names[r] = "AsStridedBackward0";
    layout_.draws = graphs_->draws;
    layout_.input_names = graphs_->forward.input_names;
    layout_.symbol_count = graphs_->forward.shapes.symbol_count();
    layout_.output_count = outputs.properties.size();
  }

  const runtime::BackwardLayout& layout() const override { return layout_; }

  // Whoever runs a backward needs its plan: here a thread does wait for another's compile.
  std::shared_ptr<const runtime::PlanRunner> plan_for(const std::vector<bool>& given,
                                                      const std::vector<bool>& wanted) override {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const runtime::PlanRunner>& plan = plans_[{given, wanted}];
    if (plan) return plan;
    auto bound = graph::compiler().compile_backward(*graphs_, backend_, given, wanted);
    if (!bound.ok()) {
      tell(bound.error());
      bound = graph::compiler().compile_backward(*graphs_, "eager", given, wanted);
    }
    if (!bound.ok()) throw std::runtime_error("framejit: no backward can be compiled: " + bound.error().message);
    const auto& executable = bound.value();
    plan = std::make_shared<const runtime::PlanRunner>(executable, executable->backward()[0], constants_, opaques_);
    runtime::backward_totals().graphs += 1;
    return plan;
  }

  bool is_read_itself(const runtime::SavedValue& saved, const std::vector<bool>& given) const override {
    const graph::Graph& recorded = *graphs_->recorded;
    const auto& values = saved.of == runtime::SavedValue::kInput ? recorded.inputs : recorded.outputs;
    const std::vector<bool> readers = graph::roots_that_read(*graphs_, values[saved.index]);
    for (size_t r = 0; r < given.size(); ++r)
      if (given[r] && readers[r]) return true;
    return false;
  }

  Result<runtime::ForwardAgain> forward_again() override {
    const std::lock_guard lock(mutex_);
    return forward_again({});
  }

  Result<runtime::ForwardAgain> forward_again(const std::vector<bool>& missing, const std::vector<bool>& there,
                                              const std::vector<bool>& given) override {
    const std::lock_guard lock(mutex_);
    graph::WhatIsLeft left{missing, there, std::vector<bool>(layout_.output_count), given};
    for (size_t k = 0; k < layout_.kept_outputs.size(); ++k)
      for (size_t r = 0; r < given.size(); ++r)
        if (given[r] && layout_.output_keepers[k][r]) left.outputs[layout_.kept_outputs[k]] = true;
    return forward_again(left);
  }

 private:
  // If several outputs share memory and a version counter, the counter is checked once. Eager does not keep outputs
  // with a counter of their own, such as x.data.
  bool has_counter_of_another(uint32_t output, const OutputProperties& properties) const {
    if (properties.of != OutputProperties::Of::kNothing) return true;
    const bool shares = properties.shares_input || properties.shares_output;
    return shares && std::ranges::find(layout_.roots, output) == layout_.roots.end();
  }

  void add_holder(const graph::Holder& holder) {
    layout_.holders.push_back({holder.roots, holder.gradients, {}, {}});
    for (const auto& [saved, text] : holder.write_errors)
      layout_.holders.back().write_errors.emplace_back(saved_value(saved), text);
    for (const graph::Saved& saved : holder.versions) layout_.holders.back().versions.push_back(saved_value(saved));
    for (size_t r = 0; layout_.holders.back().is_end() && r < holder.roots.size(); ++r)
      if (holder.roots[r]) layout_.ends[r] = true;
  }

  bool is_partly_reached(uint32_t gradient) const {
    for (size_t r = 0; r < layout_.roots.size(); ++r)
      for (size_t s = 0; s < r; ++s)
        if (layout_.groups[r] == layout_.groups[s] && layout_.reaches[r][gradient] != layout_.reaches[s][gradient])
          return true;
    return false;
  }

  Result<runtime::ForwardAgain> forward_again(const graph::WhatIsLeft& left) {
    runtime::ForwardAgain& again = again_[{left.missing, left.inputs, left.given}];
    if (again.roots) return again;
    FJ_TRY(const graph::ForwardAgainGraphs graphs, graph::forward_again(*graphs_, left));
    if (graphs.constants) { FJ_TRY(again.constants, by_ops(*graphs.constants)); }
    if (graphs.lost) {
      FJ_TRY(again.lost, by_ops(graphs.lost->graph));
      for (const graph::Saved& held : graphs.lost->held) again.held.push_back(saved_value(held));
    }
    again.reads = graphs.reads;
    FJ_TRY(again.roots, by_ops(graphs.roots));
    return again;
  }
  Result<std::shared_ptr<const runtime::PlanRunner>> by_ops(const graph::Graph& graph) const {
    FJ_TRY(auto bound, graph::compiler().compile_by_ops(graph));
    return std::make_shared<const runtime::PlanRunner>(std::move(bound), constants_, opaques_);
  }
  static runtime::SavedValue saved_value(const graph::Saved& saved) {
    return {static_cast<runtime::SavedValue::Of>(saved.of), saved.index};
  }

  // A backward without compiled code runs op by op. This says so.
  void tell(const Error& error) const {
    const std::string where = graph::where_it_begins(graphs_->forward);
    const bool raises = config().strict;
    runtime::count_failed_backward(
        std::string(text::first_line(error.message)) + (raises ? "; backward() raises it" : "; its ops run one by one"),
        where);
    FJ_ASSERT(!raises, "no code for a backward: " + error.message);
  }

  const std::shared_ptr<const graph::TrainingGraphs> graphs_;
  const std::string backend_;
  const std::vector<at::Tensor> constants_;
  const std::vector<c10::IValue> opaques_;
  runtime::BackwardLayout layout_;
  std::mutex mutex_;
  std::map<Pattern, std::shared_ptr<const runtime::PlanRunner>> plans_;
  std::map<std::tuple<std::vector<bool>, std::vector<bool>, std::vector<bool>>, runtime::ForwardAgain> again_;
};

}  // namespace

std::shared_ptr<runtime::BackwardPlans> backward_plans(const graph::CompiledGraph& compiled,
                                                       const RecordedValues& values, const OutputSet& outputs) {
  if (!compiled.training) return nullptr;
  return std::make_shared<LazyBackward>(compiled, values, outputs);
}

}  // namespace framejit::frame_hook
