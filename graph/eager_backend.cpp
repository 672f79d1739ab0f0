// graph/eager_backend.cpp — backend "eager": every node is an extern call, in order; nothing is fused or merged.
//
// In: a functional graph, or a recorded one with its views and writes.  Out: a plan that does what op-by-op execution
// does; each intermediate is freed after its last use. View ops make the views themselves, so the output aliases hold
// by construction.
#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "graph/backend.h"
#include "graph/node_values.h"
#include "graph/op_lists.h"

namespace framejit::graph {
namespace {

class EagerCompiler {
 public:
  explicit EagerCompiler(const Graph& graph)
      : graph_(graph), sizes_(plan_), buffer_of_(graph.values.size(), runtime::kNoBuffer) {}

  runtime::CallPlan run() {
    plan_.name = graph_.name;
    plan_.input_count = static_cast<uint32_t>(graph_.inputs.size());
    plan_.symbol_count = static_cast<uint32_t>(graph_.shapes.symbol_count());
    for (size_t i = 0; i < graph_.inputs.size(); ++i) add_buffer(graph_.inputs[i], runtime::Storage::kInput, i);
    for (size_t i = 0; i < graph_.constants.size(); ++i)
      add_buffer(graph_.constants[i], runtime::Storage::kConstant, i);
    find_last_uses();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) add_node(i);
    for (size_t i = 0; i < graph_.outputs.size(); ++i) plan_.outputs.push_back(output(i));
    for (const auto& [input, value] : graph_.updates) plan_.updates.emplace_back(input, buffer_of_[index_of(value)]);
    return std::move(plan_);
  }

 private:
  static constexpr size_t kNever = SIZE_MAX;

  void add_buffer(ValueId v, runtime::Storage storage, size_t index) {
    runtime::Buffer buffer = sizes_.buffer(graph_.meta(v));
    buffer.storage = storage;
    buffer.index = static_cast<uint32_t>(index);
    buffer_of_[index_of(v)] = static_cast<runtime::BufferId>(plan_.buffers.size());
    plan_.buffers.push_back(std::move(buffer));
  }

  void find_last_uses() {
    last_use_.assign(graph_.values.size(), kNever);
    used_.assign(graph_.values.size(), false);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      auto use = [&](ValueId v) {
        if (v == kNoValue) return;
        last_use_[index_of(v)] = i;
        used_[index_of(v)] = true;
      };
      for_each_value(graph_.nodes[i], use);
    }
    auto keep = [&](ValueId v) {
      if (v == kNoValue) return;
      last_use_[index_of(v)] = kNever;
      used_[index_of(v)] = true;
    };
    for (ValueId v : graph_.outputs) keep(v);
    for (const auto& [input, value] : graph_.updates) keep(value);
  }

  // Their kernels copy the operand's whole storage: for a slice, the result would begin where the slice does.
  static bool copies_storage(const Node& node) {
    if (node.results.empty() || node.results[0] == kNoValue) return false;  // an op that only checks has none
    return is_in(OpList::copies_storage, node.op->name);
  }

  // A copy of the node's first operand, in its own memory.
  runtime::BufferId add_copy(const Node& node) {
    runtime::ExternStep step;
    step.op = "clone";
    step.line = node.line;
    step.place = place_of(graph_, node);
    step.result_lists = {-1};
    step.args = {sizes_.arg(node.args[0], buffer_of_), {}};
    runtime::Buffer buffer = sizes_.buffer(graph_.meta(node.results[0]));
    buffer.storage = runtime::Storage::kTensor;
    const auto copy = static_cast<runtime::BufferId>(plan_.buffers.size());
    plan_.buffers.push_back(std::move(buffer));
    step.results = {copy};
    plan_.steps.emplace_back(std::move(step));
    return copy;
  }

  void add_node(size_t index) {
    const Node& node = graph_.nodes[index];
    const runtime::BufferId copy = copies_storage(node) ? add_copy(node) : runtime::kNoBuffer;
    runtime::ExternStep step;
    step.op = node.op->name;
    step.line = node.line;
    step.place = place_of(graph_, node);
    step.result_lists = node.result_lists;
    for (const Arg& arg : node.args) step.args.push_back(sizes_.arg(arg, buffer_of_));
    if (copy != runtime::kNoBuffer) step.args[0].payload = copy;
    for (ValueId v : node.results) {
      const bool wanted = v != kNoValue && used_[index_of(v)];
      if (wanted && buffer_of_[index_of(v)] == runtime::kNoBuffer) add_buffer(v, runtime::Storage::kTensor, 0);
      step.results.push_back(wanted ? buffer_of_[index_of(v)] : runtime::kNoBuffer);
    }
    plan_.steps.emplace_back(std::move(step));
    if (copy != runtime::kNoBuffer) plan_.steps.emplace_back(runtime::FreeStep{copy});
    std::vector<ValueId> freed;
    for_each_value(node, [&](ValueId v) {
      if (v == kNoValue || last_use_[index_of(v)] != index || std::find(freed.begin(), freed.end(), v) != freed.end())
        return;
      freed.push_back(v);
      const runtime::BufferId buffer = buffer_of_[index_of(v)];
      if (plan_.buffers[buffer].storage == runtime::Storage::kTensor)
        plan_.steps.emplace_back(runtime::FreeStep{buffer});
    });
  }

  // An output that is a view, but whose view op was an identity, becomes a new tensor object over the same memory.
  runtime::Output output(size_t i) {
    const ValueId v = graph_.outputs[i];
    const OutputAlias alias = graph_.output_aliases[i];
    if (v == kNoValue) return {runtime::Output::kBuffer, runtime::kNoBuffer};
    if (alias.kind == OutputKind::kInput) return {runtime::Output::kInput, alias.of};
    const auto input = std::find(graph_.inputs.begin(), graph_.inputs.end(), v);
    const bool is_input = input != graph_.inputs.end();
    if (is_input && alias.kind == OutputKind::kFresh)
      return {runtime::Output::kInput, static_cast<uint32_t>(input - graph_.inputs.begin())};
    const runtime::BufferId buffer = buffer_of_[index_of(v)];
    if (!is_input && !(alias.kind == OutputKind::kViewOfOutput && graph_.outputs[alias.of] == v))
      return {runtime::Output::kBuffer, buffer};
    add_buffer(v, runtime::Storage::kTensor, 0);
    const runtime::BufferId view = std::exchange(buffer_of_[index_of(v)], buffer);
    plan_.steps.emplace_back(runtime::ViewStep{buffer, view});
    return {runtime::Output::kBuffer, view};
  }

  const Graph& graph_;
  runtime::CallPlan plan_;
  PlanSizes sizes_;
  std::vector<runtime::BufferId> buffer_of_;
  std::vector<size_t> last_use_;  // node after which a value is dead; kNever for outputs
  std::vector<bool> used_;
};

class NoKernels final : public runtime::KernelLoader {
 public:
  Result<runtime::LoadedKernel> load(const std::shared_ptr<const runtime::KernelCode>&, runtime::DeviceId) override {
    return Error{Reason::no_target, "backend eager has no kernels"};
  }
};

class EagerBackend : public Backend {
 public:
  std::string name() const override { return "eager"; }
  bool takes_core_ops() const override { return false; }
  Result<runtime::Executable> compile(const Graph& functional) override {
    runtime::Executable executable;
    executable.name = functional.name;
    executable.forward = EagerCompiler(functional).run();
    return executable;
  }
  runtime::KernelLoader& loader() override { return loader_; }

 private:
  NoKernels loader_;
};

}  // namespace

std::unique_ptr<Backend> make_eager_backend() { return std::make_unique<EagerBackend>(); }

}  // namespace framejit::graph
