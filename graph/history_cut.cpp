// graph/history_cut.cpp — see history_cut.h.
#include "graph/history_cut.h"

#include <algorithm>
#include <set>

#include "graph/node_values.h"

namespace framejit::graph {
namespace {

class Cutter {
 public:
  explicit Cutter(const TrainingGraphs& graphs)
      : graphs_(graphs),
        recorded_(*graphs.recorded),
        without_history_(graphs.without_history.begin(), graphs.without_history.end()),
        has_history_(recorded_.values.size()) {}

  Result<std::optional<HistoryCut>> run() {
    const size_t tangents = recorded_.inputs.size() - graphs_.roots.size();
    for (size_t i = 0; i < recorded_.inputs.size(); ++i)
      has_history_[index_of(recorded_.inputs[i])] = i >= tangents || recorded_.meta(recorded_.inputs[i]).requires_grad;
    for (const Node& node : recorded_.nodes)
      for (int8_t i : node.op->write_args)
        for_each_value(node.args[static_cast<size_t>(i)], [&](ValueId v) {
          if (v != kNoValue) written_.insert(recorded_.values[index_of(v)].storage);
        });
    for (uint32_t i = 0; i < recorded_.nodes.size(); ++i) FJ_TRY_VOID(look_at(recorded_.nodes[i], i));
    if (cut_.empty()) return std::optional<HistoryCut>();
    HistoryCut made{graphs_, graphs_};
    made.values.recorded = std::make_shared<const Graph>(values());
    made.values.forward_outputs = 0;
    made.rest.recorded = std::make_shared<const Graph>(rest());
    return std::optional(std::move(made));
  }

 private:
  bool is_written(ValueId v) const { return written_.contains(recorded_.values[index_of(v)].storage); }

  Result<void> look_at(const Node& node, uint32_t index) {
    bool depends = false;
    for_each_value(node, [&](ValueId v) { depends = depends || (v != kNoValue && has_history_[index_of(v)]); });
    if (!depends) return {};
    const bool is_cut = without_history_.contains(index) || node.op->name == "detach";
    for (ValueId v : node.results) {
      if (v == kNoValue) continue;
      if (is_cut && is_written(v))
        return Error{Reason::no_backward, "memory is written that belongs to a value without a history"};
      if (is_cut) cut_.push_back(v);
      else has_history_[index_of(v)] = true;
    }
    if (is_cut && !node.op->write_args.empty())
      return Error{Reason::no_backward, "a write without grad mode to a value with a history"};
    return {};
  }

  Graph values() const {
    Graph made = recorded_;
    made.outputs = cut_;
    made.output_aliases.assign(cut_.size(), OutputAlias{});
    return made;
  }

  // The nodes stay, with results that nobody reads.
  Graph rest() const {
    Graph made = recorded_;
    uint32_t storage = 0;
    for (const ValueInfo& value : made.values) storage = std::max(storage, value.storage + 1);
    for (size_t i = 0; i < cut_.size(); ++i) {
      ValueInfo& info = made.values[index_of(cut_[i])];
      Node& node = made.nodes[static_cast<size_t>(info.node)];
      const ValueId unread{static_cast<uint32_t>(made.values.size())};
      std::replace(node.results.begin(), node.results.end(), cut_[i], unread);
      ValueInfo kept = info;
      info.node = -1;
      info.storage = storage++;
      made.values.push_back(std::move(kept));
      made.inputs.push_back(cut_[i]);
      made.input_names.push_back("without history " + std::to_string(i));
    }
    return made;
  }

  const TrainingGraphs& graphs_;
  const Graph& recorded_;
  const std::set<uint32_t> without_history_;
  std::vector<bool> has_history_;
  std::set<uint32_t> written_;  // storages
  std::vector<ValueId> cut_;
};

}  // namespace

Result<std::optional<HistoryCut>> cut_histories(const TrainingGraphs& graphs) { return Cutter(graphs).run(); }

}  // namespace framejit::graph
