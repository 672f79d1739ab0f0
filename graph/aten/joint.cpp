// graph/aten/joint.cpp — hidden leaves, tangents, one run of the autograd engine over traced tensors.
#include "graph/aten/joint.h"

#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

#include "graph/aten/holders.h"
#include "graph/aten/torch_texts.h"
#include "graph/shape_rule.h"
#include "runtime/aten/history_walk.h"
#include "runtime/aten/torch_version.h"

namespace framejit::graph {
namespace {

// The node between a hidden leaf and the input that the program sees. It passes gradients on unchanged.
struct InputNode final : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return std::move(gradients);
  }
  std::string name() const override { return "FramejitInput"; }
};

// The same value as a tensor without autograd history.
at::Tensor copy_of_value(const at::Tensor& tensor) {
  const TracedTensorImpl* traced = as_traced(tensor);
  at::Tensor copy(traced->shallow_copy_and_detach(c10::VariableVersion(0), true));
  as_traced(copy)->input = traced->input;
  return copy;
}

at::Tensor non_leaf(const at::Tensor& leaf) {
  at::Tensor result = copy_of_value(leaf);
  auto node = runtime::make_autograd_node<InputNode>();
  node->set_next_edges(torch::autograd::collect_next_edges(leaf));
  torch::autograd::set_history(result, node);
  return result;
}

// The nodes that a backward from these outputs may run.
runtime::HistoryNodes nodes_reached(std::vector<torch::autograd::Node*> outputs) {
  return runtime::walk_own_history(std::move(outputs), [](const torch::autograd::Edge&) { return true; });
}

// Leaves whose gradient nobody wants: views that were made without grad mode, of tensors that need a gradient. Eager
// still runs their formulas, so what these keep must be kept.
std::vector<at::Tensor> other_leaves(const HistoryReached& reached, const std::vector<at::Tensor>& wanted) {
  std::vector<at::Tensor> others;
  const auto has = [](const std::vector<at::Tensor>& tensors, const at::Tensor& leaf) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& t) { return t.is_same(leaf); });
  };
  for (const auto& nodes : reached)
    for (const torch::autograd::Node* node : nodes) {
      const auto* end = dynamic_cast<const torch::autograd::AccumulateGrad*>(node);
      if (end == nullptr || !end->variable.is_view() || has(wanted, end->variable) || has(others, end->variable))
        continue;
      others.push_back(end->variable);
    }
  return others;
}

bool is_function(const torch::autograd::Node* node) { return dynamic_cast<const UserFunction*>(node) != nullptr; }

// Runs autograd on this thread alone: only one thread at a time may use the recorder.
class OnThisThread {
 public:
  OnThisThread() : outer_(c10::AutogradState::get_tls_state()) {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  ~OnThisThread() { c10::AutogradState::set_tls_state(outer_); }
  OnThisThread(const OnThisThread&) = delete;

 private:
  c10::AutogradState outer_;
};

}  // namespace

at::Tensor JointRecording::add_input(const at::Tensor& real, const std::string& source, const DynamicExtents& dynamic) {
  at::Tensor traced = recorder_->add_input(real, source, dynamic);
  leaves_.resize(recorder_->input_count());
  visible_.resize(recorder_->input_count());
  visible_.back() = traced;
  if (!real.requires_grad()) return traced;
  leaves_.back() = traced;
  if (!real.is_leaf()) visible_.back() = non_leaf(traced);
  return visible_.back();
}

bool JointRecording::has_new_history(size_t input) const {
  if (input >= visible_.size() || !visible_[input].defined()) return false;
  const auto& node = visible_[input].grad_fn();
  return node != nullptr && dynamic_cast<const InputNode*>(node.get()) == nullptr;
}

at::Tensor JointRecording::add_tangent(const at::Tensor& output, size_t index) {
  const OpDef* empty_like = find_op("empty_like");
  std::vector<TensorMeta> metas;
  FJ_ASSERT(empty_like != nullptr, "no row for empty_like");
  const std::vector<Arg> args{Arg(recorder_->value_of(output))};
  FJ_ASSERT(infer_metas(*empty_like, args, recorder_->graph().values, recorder_->shapes(), metas),
            "empty_like refuses an output");
  return recorder_->add_input(std::move(metas[0]), "tangent of output " + std::to_string(index));
}

// Cuts each edge from one root to another and ends it in a new leaf. The gradient along that edge can then be read
// separately.
void JointRecording::part_roots(std::vector<Root>& roots) const {
  std::map<std::pair<const torch::autograd::Node*, uint32_t>, Root*> ends;
  const auto node_of = [&](const Root& root) { return formulas_.in_place_of(root.output.grad_fn()); };
  for (Root& root : roots) ends[{node_of(root).get(), root.output.output_nr()}] = &root;
  std::vector<torch::autograd::Node*> begin;
  for (const Root& root : roots) begin.push_back(node_of(root).get());
  // The edges may be changed: only this recording owns the nodes, and their topological numbers stay upper bounds.
  runtime::walk_own_history(std::move(begin), [&](torch::autograd::Edge& edge) {
    const auto end = ends.find({edge.function.get(), edge.input_nr});
    if (end == ends.end()) return true;
    at::Tensor& leaf = end->second->part;
    if (!leaf.defined()) leaf = copy_of_value(end->second->output).set_requires_grad(true);
    edge = torch::autograd::impl::gradient_edge(leaf);
    return false;
  });
}

// Whether the gradient of a view goes to its base. It does not for views that were made without grad mode, for views of
// those, and for views that an autograd.Function returned, which defines their gradient itself.
bool JointRecording::leads_to_base(const at::Tensor& view) const {
  const at::Tensor base = at::TensorBase(view._base());
  if (!base.requires_grad()) return false;
  const auto end = formulas_.in_place_of(torch::autograd::impl::gradient_edge(base).function);
  const auto begin = formulas_.in_place_of(view.grad_fn());
  bool is_met = begin == end;
  const runtime::HistoryNodes between =
      runtime::walk_own_history({begin.get()}, [&](const torch::autograd::Edge& edge) {
        is_met = is_met || edge.function == end;
        return edge.function != end;
      });
  return is_met && std::none_of(between.begin(), between.end(), is_function);
}

std::vector<bool> JointRecording::views_on_the_way(const std::vector<at::Tensor>& outputs,
                                                   const std::vector<bool>& roots,
                                                   const std::vector<bool>& views) const {
  using End = std::pair<const torch::autograd::Node*, uint32_t>;
  std::map<End, size_t> ends;  // of views
  for (size_t i = 0; i < outputs.size(); ++i)
    if (views[i]) ends[{formulas_.in_place_of(outputs[i].grad_fn()).get(), outputs[i].output_nr()}] = i;
  std::vector<bool> met(outputs.size());
  if (ends.empty()) return met;
  const auto views_reached = [&](const at::Tensor& output) {
    std::vector<size_t> reached;
    for (const torch::autograd::Node* node : nodes_reached({formulas_.in_place_of(output.grad_fn()).get()}))
      for (const torch::autograd::Edge& edge : node->next_edges())
        if (edge.is_valid())
          if (const auto end = ends.find({formulas_.in_place_of(edge.function).get(), edge.input_nr});
              end != ends.end())
            reached.push_back(end->second);
    return reached;
  };
  std::vector<bool> leads(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!roots[i] && !views[i]) continue;
    const std::vector<size_t> reached = views_reached(outputs[i]);
    for (size_t view : reached) met[view] = true;
    leads[i] = views[i] && !reached.empty();
  }
  for (size_t i = 0; i < outputs.size(); ++i) met[i] = met[i] || leads[i] || (views[i] && !leads_to_base(outputs[i]));
  return met;
}

std::vector<at::Tensor> JointRecording::run_backward(const std::vector<Root>& roots,
                                                     const std::vector<at::Tensor>& all_outputs, JointLayout& layout) {
  std::vector<at::Tensor> outputs, tangents, wanted;
  std::vector<GradientOf> wanted_of;
  for (uint32_t i = 0; i < leaves_.size(); ++i)
    if (leaves_[i].defined()) wanted.push_back(leaves_[i]), wanted_of.push_back({GradientOf::kInput, i});
  for (uint32_t r = 0; r < roots.size(); ++r) {
    outputs.push_back(roots[r].output);
    tangents.push_back(roots[r].tangent);
    if (roots[r].part.defined()) wanted.push_back(roots[r].part), wanted_of.push_back({GradientOf::kRoot, r});
  }
  layout.reaches.resize(roots.size());
  if (outputs.empty() || wanted.empty()) return {};
  std::vector<size_t> order;
  for (size_t i = 0; i < wanted.size(); ++i)
    wanted[i].register_hook([&order, i](const at::Tensor&) { order.push_back(i); });
  HistoryReached reached;
  for (const at::Tensor& output : outputs) {
    const runtime::HistoryNodes nodes = nodes_reached({formulas_.in_place_of(output.grad_fn()).get()});
    for (const torch::autograd::Node* node : nodes) functions_.note(static_cast<uint32_t>(reached.size()), *node);
    reached.emplace_back(nodes.begin(), nodes.end());
  }
  for (const at::Tensor& leaf : other_leaves(reached, wanted)) wanted.push_back(leaf);
  HolderNotes holders(*recorder_, reached, wanted);
  std::vector<at::Tensor> found, gradients;
  RecordScope scope(*recorder_);
  ForwardScope views_by_op;  // a backward may write to views of what it made
  OnThisThread alone;
  // Eager's backward runs outside the autocast region, as a rule.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  recorder_->set_line({});
  recorder_->allow_sparse_results(true);
  try {
    {
      RecordScope questions(*recorder_);
      holders.look_into_views(visible_, all_outputs);
      holders.look_into_ends(visible_, all_outputs);
      questions.drop();  // ops of formulas that run without gradients
    }
    found = run_engine(outputs, wanted, tangents, /*keeps_graph=*/false, /*creates_graph=*/false);
  } catch (const std::exception& e) {
    scope.drop();
    const bool names_sizes = recorder_->shapes().symbol_count() != 0 && is_of_written(e.what());
    const auto holder = names_sizes ? holders.holds_written() : std::nullopt;
    if (holder) throw std::runtime_error("a value that " + *holder + " holds was modified after it was saved");
    throw;
  }
  std::vector<size_t> leaves;  // per gradient
  for (size_t i : order) {
    if (i >= wanted_of.size() || !found[i].defined()) continue;
    layout.gradients.push_back(wanted_of[i]);
    gradients.push_back(found[i]);
    leaves.push_back(i);
    const torch::autograd::Node* leaf = torch::autograd::impl::grad_accumulator(wanted[i]).get();
    for (size_t r = 0; r < roots.size(); ++r) layout.reaches[r].push_back(reached[r].contains(leaf));
  }
  layout.holders = holders.of(leaves);
  return gradients;
}

void JointRecording::add_leaf(const at::Tensor& made) { added_leaves_.push_back(made.set_requires_grad(true)); }

bool JointRecording::is_added_leaf(const at::Tensor& tensor) const {
  return std::any_of(added_leaves_.begin(), added_leaves_.end(),
                     [&](const at::Tensor& leaf) { return leaf.is_same(tensor); });
}

// The walk stops where the history leaves the recording: the nodes beyond it already exist.
std::vector<at::Tensor> JointRecording::leaves_reached(const std::vector<at::Tensor>& outputs) const {
  std::vector<torch::autograd::Node*> begin;
  for (const at::Tensor& output : outputs) begin.push_back(torch::autograd::impl::gradient_edge(output).function.get());
  std::vector<at::Tensor> leaves;
  for (const torch::autograd::Node* node : nodes_reached(std::move(begin))) {
    if (dynamic_cast<const InputNode*>(node) != nullptr)
      recorder_->fail({Reason::gradient_call, "a backward whose graph began before the traced code"});
    if (const auto* end = dynamic_cast<const torch::autograd::AccumulateGrad*>(node)) leaves.push_back(end->variable);
  }
  return leaves;
}

// The input that this leaf stands for: the leaf replaces it, or is the hidden end of its history. -1: none.
int64_t JointRecording::input_of_leaf(const torch::autograd::Node& leaf) const {
  for (size_t i = 0; i < leaves_.size(); ++i)
    if (leaves_[i].defined() && torch::autograd::impl::grad_accumulator(leaves_[i]).get() == &leaf)
      return static_cast<int64_t>(i);
  return -1;
}

std::vector<size_t> JointRecording::inputs_reached(const std::vector<at::Tensor>& outputs, bool with_history) const {
  const RecordScope scope(*recorder_);  // a view that is asked for its history may run again the ops that made it
  const ForwardScope views_by_op;
  std::vector<torch::autograd::Node*> begin;
  for (const at::Tensor& output : outputs)
    begin.push_back(formulas_.in_place_of(torch::autograd::impl::gradient_edge(output).function).get());
  std::vector<size_t> inputs;
  for (const torch::autograd::Node* node : nodes_reached(std::move(begin))) {
    if (with_history && dynamic_cast<const InputNode*>(node) == nullptr) continue;
    const int64_t input = input_of_leaf(with_history ? *node->next_edge(0).function : *node);
    if (input >= 0) inputs.push_back(static_cast<size_t>(input));
  }
  return inputs;
}

InnerGradients JointRecording::gradients(const InnerBackward& call) {
  RecordScope scope(*recorder_);
  const ForwardScope views_by_op;
  const OnThisThread alone;
  try {
    InnerGradients found;
    found.of = call.wanted.empty() ? leaves_reached(call.outputs) : call.wanted;
    found.gradients = run_engine(call.outputs, found.of, call.given, call.keeps_graph, call.creates_graph);
    has_freed_ = has_freed_ || !call.keeps_graph;
    const c10::AutoGradMode no_history(false);
    for (size_t i = 0; call.accumulates && i < found.of.size(); ++i)
      if (at::Tensor gradient = std::move(found.gradients[i]); gradient.defined())
        found.gradients[i] = torch::autograd::impl::is_tensor_stealable(gradient) &&
                                     torch::autograd::utils::obeys_layout_contract(gradient, found.of[i])
                                 ? gradient.detach()
                                 : torch::autograd::utils::clone_obey_contract(gradient, found.of[i]);
    return found;
  } catch (...) {
    scope.drop();
    throw;
  }
}

bool JointRecording::is_freed(const at::Tensor& tensor) {
  std::vector<at::Tensor> wanted = added_leaves_;
  for (const at::Tensor& leaf : leaves_)
    if (leaf.defined()) wanted.push_back(leaf);
  if (wanted.empty()) return false;
  RecordScope scope(*recorder_);
  const ForwardScope views_by_op;
  const OnThisThread alone;
  bool is_missed = false;
  try {
    run_engine({tensor}, wanted, {at::ones_like(tensor)}, /*keeps_graph=*/true, /*creates_graph=*/false);
  } catch (const std::exception& e) {  // other errors come again in build()
    is_missed = has_torch_text(TorchText::freed_graph, e.what());
    recorder_->take_break();
  }
  scope.drop();
  return is_missed;
}

std::string JointRecording::name_of_history(const at::Tensor& tensor) {
  const RecordScope scope(*recorder_);  // a view that is asked for its history may run again the ops that made it
  const ForwardScope views_by_op;
  return tensor.grad_fn()->name();
}

// torch::autograd::grad() with formulas of ours. Call it inside a RecordScope.
std::vector<at::Tensor> JointRecording::run_engine(const std::vector<at::Tensor>& outputs,
                                                   const std::vector<at::Tensor>& wanted,
                                                   const std::vector<at::Tensor>& given, bool keeps_graph,
                                                   bool creates_graph) {
  torch::autograd::edge_list from;
  for (const auto* tensors : {&outputs, &wanted})
    for (const at::Tensor& tensor : *tensors) from.push_back(torch::autograd::impl::gradient_edge(tensor));
  if (!std::all_of(from.begin(), from.end(), [](const torch::autograd::Edge& edge) { return edge.is_valid(); }))
    throw std::runtime_error("a tensor without a history");
  formulas_.replace(from);
  const torch::autograd::edge_list to(from.begin() + static_cast<ptrdiff_t>(outputs.size()), from.end());
  from.resize(outputs.size());
  return torch::autograd::Engine::get_default_engine().execute(from, given, keeps_graph, creates_graph,
                                                               /*accumulate_grad=*/false, to);
}

Result<JointGraph> JointRecording::build(const std::vector<at::Tensor>& outputs, const std::vector<bool>& is_root) {
  for (const at::Tensor& constant : recorder_->constants())
    if (constant.requires_grad())
      return Error{Reason::unsupported_tensor,
                   "a captured tensor that needs a gradient but is not an input (under torch.no_grad() none does)"};
  JointGraph joint;
  JointLayout& layout = joint.layout;
  layout.forward_inputs = recorder_->input_count();
  layout.forward_outputs = outputs.size();
  layout.forward_nodes = recorder_->graph().nodes.size();
  layout.without_history = recorder_->without_history();
  std::vector<Root> roots;
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (as_traced(outputs[i]) == nullptr)
      return Error{Reason::recording_failed, "an output is not a tensor of this capture"};
    if (is_root.empty() ? outputs[i].requires_grad() : is_root[i]) {
      roots.push_back({outputs[i], add_tangent(outputs[i], i), {}});
      layout.roots.push_back(static_cast<uint32_t>(i));
      layout.root_names.push_back(name_of_history(outputs[i]));
    }
    results.push_back(copy_of_value(outputs[i]));
  }
  if (roots.size() > 1 && !is_root.empty()) {
    torch::autograd::edge_list edges;
    const RecordScope scope(*recorder_);
    const ForwardScope views_by_op;
    for (const Root& root : roots) edges.push_back(torch::autograd::impl::gradient_edge(root.output));
    formulas_.replace(edges);
    part_roots(roots);
  }
  for (at::Tensor& gradient : run_backward(roots, outputs, layout)) results.push_back(std::move(gradient));
  FJ_TRY_VOID(recorder_->build(results));
  joint.graph = recorder_->graph();
  describe_joint(joint.graph, layout);
  layout.has_functions = functions_.any();
  FJ_TRY_VOID(functions_.verify(layout));
  return joint;
}

}  // namespace framejit::graph
