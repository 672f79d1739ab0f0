// graph/aten/known_contents.cpp — the real contents of small traced tensors that depend only on fresh constants and
// factories.
//
// The nodes that make a tensor run for real, once, and the result is kept. If its memory was written, its contents at
// the time of the question are needed. Then the nodes that made or wrote it up to that time run again, and nothing is
// kept.
#include <algorithm>

#include "graph/aten/meta_call.h"
#include "graph/aten/recorder.h"
#include "graph/node_values.h"

namespace framejit::graph {
namespace {

bool hides_writes(const Node& node) { return node.op->is(KnownOp::native_batch_norm); }

bool is_as_recorded(const at::Tensor& tensor, const TensorMeta& meta) {
  return dtype_of(tensor.scalar_type()) == meta.dtype && static_cast<size_t>(tensor.dim()) == meta.ndim() &&
         std::equal(meta.sizes.begin(), meta.sizes.end(), tensor.sizes().begin(),
                    [](const SymExpr& e, int64_t size) { return e == SymExpr(size); });
}

}  // namespace

at::Tensor Recorder::known_contents(const at::Tensor& tensor) {
  constexpr int kMostSteps = 256;
  const TracedTensorImpl* traced = as_traced(tensor);
  if (traced == nullptr || &traced->recorder() != this || !live()) return {};
  Question question{kMostSteps, {}};
  const at::Tensor* found = find_contents(traced->value, graph().nodes.size(), question);
  return found != nullptr ? *found : at::Tensor();
}

// The contents before node `before` runs; null: not known.
const at::Tensor* Recorder::find_contents(ValueId value, size_t before, Question& question) {
  constexpr int64_t kMostElements = 4096;
  const Graph& g = graph();
  const ValueInfo& info = g.values[index_of(value)];
  const auto numel = info.meta.numel().as_constant();
  if (!numel || *numel > kMostElements || !torch_device_of(info.meta.device).is_cpu()) return nullptr;
  if (contents_.size() < g.values.size()) contents_.resize(g.values.size());
  if (written_storages_.contains(info.storage)) return redo_writes(value, before, question);
  at::Tensor& known = contents_[index_of(value)];
  if (!known.defined() && info.node < 0) {
    const auto at = std::find(g.constants.begin(), g.constants.end(), value);
    if (at != g.constants.end() && constant_is_fresh_[static_cast<size_t>(at - g.constants.begin())])
      known = constants_[static_cast<size_t>(at - g.constants.begin())];
  } else if (!known.defined() && !g.nodes[static_cast<size_t>(info.node)].op->has(kMutates)) {
    run_for_real(static_cast<size_t>(info.node), std::nullopt, question);
  }
  return known.defined() ? &known : nullptr;
}

// While writes are redone, the entries of contents_ for this storage are those at the node that has been reached.
const at::Tensor* Recorder::redo_writes(ValueId value, size_t before, Question& question) {
  const Graph& g = graph();
  const uint32_t storage = g.values[index_of(value)].storage;
  if (std::ranges::find(question.storages, storage) != question.storages.end()) return nullptr;
  const auto lies_there = [&](ValueId v) { return v != kNoValue && g.values[index_of(v)].storage == storage; };
  const auto writes_only_there = [&](const Node& node) {
    return std::ranges::all_of(node.op->write_args, [&](int8_t i) {
      const ValueId* written = node.args[static_cast<size_t>(i)].get<ValueId>();
      return written != nullptr && lies_there(*written);
    });
  };
  const auto forget = [&] {
    for (size_t v = 0; v < g.values.size(); ++v)
      if (g.values[v].storage == storage) contents_[v] = at::Tensor();
  };
  const auto own_memory = [&](const Node& node) {  // kept contents of other memory must not be written
    const PlainExecution plain;
    for (ValueId v : node.results)
      if (lies_there(v) && contents_[index_of(v)].defined()) contents_[index_of(v)] = contents_[index_of(v)].clone();
  };
  forget();
  question.storages.push_back(storage);
  bool known = true;
  for (size_t i = 0; i < before && known; ++i) {
    const Node& node = g.nodes[i];
    bool reads = false;
    for_each_value(node, [&](ValueId v) { reads = reads || lies_there(v); });
    const bool makes = std::ranges::any_of(node.results, lies_there);
    if (!makes && !(reads && (node.op->has(kMutates) || hides_writes(node)))) continue;
    known = !hides_writes(node) && writes_only_there(node) && run_for_real(i, storage, question);
    if (known && !reads) own_memory(node);
  }
  question.storages.pop_back();
  at::Tensor found = known ? contents_[index_of(value)] : at::Tensor();
  forget();
  if (!found.defined()) return nullptr;
  contents_[index_of(value)] = std::move(found);
  return &contents_[index_of(value)];
}

// Fills contents_ for the results of a node. Its arguments in the storage `redone` are in contents_.
bool Recorder::run_for_real(size_t at, std::optional<uint32_t> redone, Question& question) {
  const Node& node = graph().nodes[at];
  const OpInfo* info = find_op_info(node.op->name);
  if (info == nullptr || node.op->has(kRandom) || node.op->has(kDataDependent) || question.budget-- <= 0) return false;
  const auto is_redone = [&](ValueId v) { return graph().values[index_of(v)].storage == redone; };
  const auto learn = [&](ValueId v) {
    if (v == kNoValue) return true;
    return is_redone(v) ? contents_[index_of(v)].defined() : find_contents(v, at, question) != nullptr;
  };
  bool constant_sizes = true;
  const SizeValue size_of = [&](const SymExpr& e) {
    constant_sizes = constant_sizes && e.is_constant();
    return shapes().hint(e);
  };
  torch::jit::Stack stack;
  for (size_t i = 0; i < node.args.size(); ++i) {
    if (const auto* v = node.args[i].get<ValueId>(); v != nullptr && !learn(*v)) return false;
    if (const auto* list = node.args[i].get<std::vector<ValueId>>(); list != nullptr) {
      std::vector<at::Tensor> found;  // redoing the writes of one item forgets items of the same storage
      for (ValueId v : *list) {
        if (!learn(v)) return false;
        found.push_back(v == kNoValue ? at::Tensor() : contents_[index_of(v)]);
      }
      for (size_t k = 0; k < list->size(); ++k)
        if ((*list)[k] != kNoValue) contents_[index_of((*list)[k])] = found[k];
    }
    stack.push_back(ivalue_of(node.args[i], info->handle.schema().arguments()[i], contents_, opaques_, size_of));
  }
  if (!constant_sizes) return false;
  const PlainExecution plain;
  try {
    info->handle.callBoxed(stack);
  } catch (const std::exception&) {  // an error of the program, which is raised where the op stands
    return false;
  }
  size_t next = 0;
  bool all_as_recorded = true;
  const auto take = [&](const at::Tensor& tensor) {
    if (next >= node.results.size()) return;
    const ValueId v = node.results[next++];
    if (v == kNoValue || !tensor.defined()) return;
    const bool is_same = is_as_recorded(tensor, graph().meta(v));
    all_as_recorded = all_as_recorded && is_same;
    if (is_same) contents_[index_of(v)] = tensor;
  };
  for (const c10::IValue& result : stack) each_tensor(result, take);
  return all_as_recorded;
}

}  // namespace framejit::graph
