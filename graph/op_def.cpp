// graph/op_def.cpp — the table of operators: rows of graph/ops/*.cpp first, what the dispatcher declares later.
//
// One mutex guards the map; definitions live in a deque and are never moved. The first declare_op() adds what a row
// left open, before the op can appear in any recorded graph.
#include "graph/op_def.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "graph/ops/families.h"
#include "graph/shape_rule.h"

namespace framejit::graph {
namespace {

class OpTable {
 public:
  OpTable() {
    for (const OpFamily family : kOpFamilies)
      for (const OpRow& row : family()) {
        OpDef definition;
        definition.name = row.name;
        definition.shape_rule = row.rule;
        definition.flags = row.flags;
        definition.functional = row.functional;
        if (definition.has(kMutates)) definition.write_args = {0};  // our rows write only their first argument
        if (definition.has(kMutates) || definition.has(kView)) definition.result_alias = {0};
        insert(std::move(definition));
      }
  }

  const OpDef* find(std::string_view name) {
    std::shared_lock lock(mutex_);
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? nullptr : at->second;
  }

  const OpDef* declare(OpDef definition) {
    std::unique_lock lock(mutex_);
    const auto at = by_name_.find(definition.name);
    if (at == by_name_.end()) return insert(std::move(definition));
    complete(*at->second, definition);
    return at->second;
  }

  void forget(std::string_view name) {
    std::unique_lock lock(mutex_);
    by_name_.erase(name);
  }

 private:
  OpDef* insert(OpDef definition) {
    OpDef& stored = definitions_.emplace_back(std::move(definition));
    stored.known = known_op(stored.name);
    by_name_.emplace(stored.name, &stored);
    return &stored;
  }

  static void complete(OpDef& known, const OpDef& added) {
    if ((known.flags | added.flags) != known.flags) known.flags |= added.flags;
    if (known.arg_names.empty() && !added.arg_names.empty()) known.arg_names = added.arg_names;
    if (known.write_args.empty() && !added.write_args.empty()) known.write_args = added.write_args;
    if (known.result_alias.empty() && !added.result_alias.empty()) known.result_alias = added.result_alias;
    if (known.functional.empty() && !added.functional.empty()) {
      known.functional = added.functional;
      known.drops_out_args = added.drops_out_args;
    }
    if (known.shape_rule == nullptr && added.shape_rule != nullptr) known.shape_rule = added.shape_rule;
  }

  std::shared_mutex mutex_;
  std::deque<OpDef> definitions_;
  std::unordered_map<std::string_view, OpDef*> by_name_;
};

OpTable& table() {
  static OpTable* t = new OpTable;  // never destroyed: graphs hold pointers into it
  return *t;
}

}  // namespace

const OpDef* find_op(std::string_view name) { return table().find(name); }
const OpDef* declare_op(OpDef definition) { return table().declare(std::move(definition)); }
void forget_op(std::string_view name) { table().forget(name); }

}  // namespace framejit::graph
