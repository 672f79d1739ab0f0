// graph/aten/repeated_nodes.cpp — Recorder::repeat: nodes that are recorded once more, with other tensors in place of
// some.
//
// Stand-ins have the sizes, strides and offsets of the real tensors, so shapes stay the same.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>

#include "graph/aten/recorder.h"
#include "graph/node_values.h"

namespace framejit::graph {
namespace {

// Maps values and storages of the original nodes to their copies. What is not in a map was not copied.
struct Copies {
  std::map<ValueId, ValueId> values;
  std::map<uint32_t, uint32_t> storages;

  ValueId of(ValueId v) const {
    const auto at = values.find(v);
    return at == values.end() ? v : at->second;
  }
  Arg of(const Arg& arg) const {
    if (const ValueId* v = arg.get<ValueId>()) return Arg(of(*v));
    if (const auto* list = arg.get<std::vector<ValueId>>()) {
      std::vector<ValueId> copies;
      for (ValueId v : *list) copies.push_back(of(v));
      return Arg(std::move(copies));
    }
    return arg;
  }
};

}  // namespace

// The node gets the line of whoever repeats it.
void Recorder::add_copy(Node node) {
  node.line = 0;
  for (int8_t i : node.op->write_args)
    for_each_value(node.args[static_cast<size_t>(i)], [&](ValueId v) {
      if (v != kNoValue) written_storages_.insert(graph().values[index_of(v)].storage);
    });
  if (!c10::GradMode::is_enabled()) without_history_.push_back(static_cast<uint32_t>(graph().nodes.size()));
  builder_.add_node(std::move(node));
}

// `objects`: storages by number. If the storage is not among them, it is that of `like`.
at::Tensor Recorder::tensor_of(ValueId copy, const at::Tensor& like, const std::map<uint32_t, c10::Storage>& objects) {
  const ValueInfo& value = graph().values[index_of(copy)];
  const auto object = objects.find(value.storage);
  auto impl = c10::make_intrusive<TracedTensorImpl>(
      shared_from_this(), object == objects.end() ? like.storage() : object->second, like.dtype(), like.device());
  impl->set_shape(value.meta);
  impl->value = copy;
  return at::Tensor(std::move(impl));
}

std::vector<at::Tensor> Recorder::repeat(size_t first, size_t end, const StandIns& stand_ins,
                                         const std::vector<at::Tensor>& results) {
  const auto storage_of = [&](ValueId v) { return graph().values[index_of(v)].storage; };
  Copies copies;
  std::map<uint32_t, c10::Storage> objects;  // of copies, by number; as far as results need them
  std::set<uint32_t> older;  // storages that the nodes did not make
  for (const ValueInfo& value : graph().values)
    if (value.node < static_cast<int32_t>(first)) older.insert(value.storage);
  for (const auto& [original, copy] : stand_ins) {
    copies.values[value_of(original)] = value_of(copy);
    copies.storages[storage_of(value_of(original))] = storage_of(value_of(copy));
    objects.emplace(storage_of(value_of(copy)), traced_storage_of(copy));
  }
  for (const at::Tensor& result : results) {
    if (!result.defined()) continue;
    const uint32_t storage = storage_of(value_of(result));
    if (older.contains(storage) || copies.storages.contains(storage)) continue;
    const c10::Storage made = make_traced_storage(static_cast<int64_t>(result.storage().nbytes()), result.device());
    copies.storages[storage] = storage_number(made);
    objects.emplace(copies.storages[storage], made);
  }
  const auto copy_result = [&](const Node& node, ValueId v) {
    if (copies.values.contains(v) || has_argument(node, v)) return;
    const ValueInfo original = graph().values[index_of(v)];
    uint32_t storage = original.storage;
    if (!older.contains(storage) || copies.storages.contains(storage)) {
      const auto [at, is_new] = copies.storages.try_emplace(storage, 0);
      if (is_new) at->second = builder_.new_storage();
      storage = at->second;
    }
    copies.values[v] = builder_.new_value(original.meta, storage);
  };
  for (size_t n = first; n < end; ++n) {
    Node node = graph().nodes[n];
    for (ValueId v : node.results)
      if (v != kNoValue) copy_result(node, v);
    for (ValueId& v : node.results) v = copies.of(v);
    for (Arg& arg : node.args) arg = copies.of(arg);
    add_copy(std::move(node));
  }
  std::vector<at::Tensor> made;
  for (const at::Tensor& result : results) {
    const ValueId original = result.defined() ? value_of(result) : kNoValue;
    const auto is_it = [&](const auto& pair) { return value_of(pair.first) == original; };
    if (!result.defined()) made.emplace_back();
    else if (!copies.values.contains(original)) made.push_back(result.detach());
    else if (const auto given = std::find_if(stand_ins.begin(), stand_ins.end(), is_it); given != stand_ins.end())
      made.push_back(given->second);
    else made.push_back(tensor_of(copies.of(original), result, objects));
  }
  return made;
}

}  // namespace framejit::graph
