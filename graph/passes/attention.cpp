// graph/passes/attention.cpp — softmax(scale * query @ key^T + mask) @ value, written out, becomes one op.
//
// In: a canonical graph without dead nodes, softmax decomposed.  Out: each attention that pays (attention_costs.def) is
// one "framejit::attention", which never holds the scores as a whole. That op detects by itself where non-finite values
// would make it differ from the original ops, and then runs those instead (runtime/aten/attention.h). So no proof about
// masks is needed here. Training graphs stay as they are, because their backward pass reads the weights. So do graphs
// in half precision, because the values between their ops are rounded.
//
// A factor of the query or the key stays where it was, so that overflows stay the same. If a number replaces scores and
// is so low that adding a score does not change it, it is added as a mask. Two masks (a bias of positions, padding) are
// summed first, unless the sum is larger than both.
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <unordered_map>

#include "graph/node_values.h"
#include "graph/passes/passes.h"
#include "graph/passes/rebuild.h"
#include "graph/shape_rule.h"
#include "runtime/base/log.h"

namespace framejit::graph {
namespace {

struct CostRow {
  int64_t size, queries, scores;
};
constexpr CostRow kCosts[] = {
#define ATTENTION_COST(size, queries, scores) {size, queries, scores},
#include "graph/passes/attention_costs.def"
#undef ATTENTION_COST
};
constexpr double kLosesScores = -1e38;  // a score of less than 4e30 added to it changes nothing

struct Attention {
  const Node* product = nullptr;                    // weights @ value
  ValueId query = kNoValue, key = kNoValue;         // [batch, queries, size], [batch, size, keys]
  double scale = 1;
  std::vector<ValueId> masks;  // added, the last first, at most two; or, with `replacement`, the condition of a choice
  std::optional<double> replacement;
  bool replaced_where = true;                       // the condition's value where scores are replaced
  SymSizes batch;                                   // two dimensions
};

std::optional<double> number_of(const Arg& arg) {
  if (const double* real = arg.get<double>()) return *real;
  if (const SymExpr* size = arg.get<SymExpr>(); size != nullptr && size->is_constant())
    return static_cast<double>(size->constant());
  return std::nullopt;
}

ValueId value_of(const Node& node, size_t i) {
  const ValueId* v = i < node.args.size() ? node.args[i].get<ValueId>() : nullptr;
  return v == nullptr ? kNoValue : *v;
}

bool is(const Node& node, size_t i, int64_t number) {
  return i < node.args.size() && number_of(node.args[i]) == static_cast<double>(number);
}

// The elements lie in memory in the order of their indices.
bool is_row_major(const TensorMeta& meta) {
  const SymSizes dense = contiguous_strides(meta.sizes);
  for (size_t d = 0; d < meta.ndim(); ++d)
    if (!(meta.sizes[d] == SymExpr(1)) && !(meta.strides[d] == dense[d])) return false;
  return true;
}

bool reduces_last(const Node& node, size_t ndim) {
  const auto* dims = node.args[1].get<SymSizes>();
  const bool* keeps = node.args[2].get<bool>();
  return dims != nullptr && dims->size() == 1 && keeps != nullptr && *keeps && ndim > 0 &&
         ((*dims)[0] == SymExpr(-1) || (*dims)[0] == SymExpr(static_cast<int64_t>(ndim) - 1));
}

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph), users_(graph.values.size()) {
    const Node* user = nullptr;
    const auto use = [&](ValueId v) {
      if (v != kNoValue) users_[index_of(v)].push_back(user);
    };
    for (const Node& node : graph.nodes) {
      user = &node;
      for_each_value(node, use);
    }
    user = nullptr;
    for (ValueId v : graph.outputs) use(v);
    for (const auto& [input, v] : graph.updates) use(v);
  }

  std::optional<Attention> find(const Node& product) const {
    if (!product.op->is(KnownOp::bmm) || !is_plain(product.results[0])) return std::nullopt;
    Attention found{.product = &product};
    const ValueId scores = softmax_of(unreshaped(value_of(product, 0)));
    if (scores == kNoValue || !find_product(scores, 2, found)) return std::nullopt;
    const SymSizes &q = graph_.meta(found.query).sizes, &v = graph_.meta(value_of(product, 1)).sizes,
                   &all = graph_.meta(scores).sizes;
    // The weights are the product of query and key row by row, however they were reshaped on the way.
    const bool same_rows =
        graph_.meta(value_of(product, 0)).sizes == SymSizes{q[0], q[1], graph_.meta(found.key).sizes[2]} &&
        all.back() == v[1];
    if (!same_rows || !(q[2] == v[2]) || graph_.shapes.known(1, Relation::kLe, q[2]) != true || !pays(q, v))
      return std::nullopt;
    if (found.batch.empty()) found.batch = batch_of(found.query, all);
    if (!(found.batch[0] * found.batch[1] == q[0])) return std::nullopt;
    if (!found.masks.empty() && !(all[all.size() - 2] == q[1])) return std::nullopt;
    return found;
  }

  // One for each use; null for a use as an output.
  const std::vector<const Node*>& users(ValueId v) const { return users_[index_of(v)]; }
  size_t uses(ValueId v) const { return users(v).size(); }

 private:
  // A literal number, or a 0-dim tensor that is filled with one.
  std::optional<double> scalar_of(const Arg& arg) const {
    const ValueId* v = arg.get<ValueId>();
    if (v == nullptr) return number_of(arg);
    const Node* filled = graph_.maker(*v, KnownOp::full);
    return filled != nullptr && graph_.meta(*v).ndim() == 0 ? number_of(filled->args[1]) : std::nullopt;
  }

  bool is_plain(ValueId v) const {
    const TensorMeta& meta = graph_.meta(v);
    return meta.dtype == DType::kFloat32 && meta.device.is_cpu() && !meta.requires_grad;
  }

  // Looks through views that only change the shape and have no other use.
  ValueId unreshaped(ValueId v) const {
    while (const Node* node = graph_.maker(v)) {
      const bool reshapes = node->op->is(KnownOp::view) ||
                            (node->op->is(KnownOp::permute) && is_row_major(graph_.meta(node->results[0])));
      if (!reshapes || uses(v) != 1 || !is_row_major(graph_.meta(value_of(*node, 0)))) break;
      v = value_of(*node, 0);
    }
    return v;
  }

  // The input of the softmax over the last dimension, if the weights have only this use.
  ValueId softmax_of(ValueId weights) const {
    const Node* quotient = graph_.maker(weights, KnownOp::div_tensor);
    if (quotient == nullptr || uses(weights) != 1) return kNoValue;
    const ValueId powers = value_of(*quotient, 0), total = value_of(*quotient, 1);
    const Node *power = graph_.maker(powers, KnownOp::exp), *sum = graph_.maker(total, KnownOp::sum_dims);
    if (power == nullptr || sum == nullptr || uses(powers) != 2 || uses(total) != 1 || value_of(*sum, 0) != powers)
      return kNoValue;
    const Node* shifted = graph_.maker(value_of(*power, 0), KnownOp::sub_tensor);
    if (shifted == nullptr || uses(shifted->results[0]) != 1 || !is(*shifted, 2, 1)) return kNoValue;
    const ValueId scores = value_of(*shifted, 0);
    const Node* most = graph_.maker(value_of(*shifted, 1), KnownOp::amax);
    if (most == nullptr || uses(most->results[0]) != 1 || value_of(*most, 0) != scores) return kNoValue;
    const size_t ndim = graph_.meta(weights).ndim();
    return reduces_last(*most, ndim) && reduces_last(*sum, ndim) ? scores : kNoValue;
  }

  // From the scores back to the product of query and key: a mask, then factors, with reshapes in between.
  bool find_product(ValueId scores, uint32_t allowed_uses, Attention& found) const {
    const Node* node = graph_.maker(scores);
    if (node == nullptr || uses(scores) != allowed_uses || !is_plain(scores)) return false;
    const OpDef& op = *node->op;
    if (op.is(KnownOp::bmm) || op.is(KnownOp::baddbmm)) return is_product(*node, found);
    if (op.is(KnownOp::view) || op.is(KnownOp::permute)) {
      const ValueId base = value_of(*node, 0);
      return is_row_major(graph_.meta(scores)) && is_row_major(graph_.meta(base)) && find_product(base, 1, found);
    }
    const bool multiplies = op.is(KnownOp::mul_tensor) || op.is(KnownOp::mul_scalar);
    if (multiplies || op.is(KnownOp::div_tensor) || op.is(KnownOp::div_scalar)) {
      const std::optional<double> factor = scalar_of(node->args[1]);
      if (!factor || node->args.size() != 2) return false;
      return add_factor(multiplies ? *factor : 1 / *factor, found) && find_product(value_of(*node, 0), 1, found);
    }
    if (op.is(KnownOp::add_tensor) && is(*node, 2, 1)) {
      const ValueId left = value_of(*node, 0), right = value_of(*node, 1);
      return find_masked(*node, left, right, found) || find_masked(*node, right, left, found);
    }
    return op.is(KnownOp::where_self) && find_chosen(*node, found);
  }

  // Two factors become one if no product can overflow or underflow in between.
  static bool add_factor(double factor, Attention& found) {
    const bool is_first = found.scale == 1;
    if (!is_first && (std::abs(factor) > 1 || std::abs(found.scale) > 1)) return false;
    found.scale *= factor;
    return std::isfinite(found.scale);
  }

  bool find_masked(const Node& node, ValueId scores, ValueId mask, Attention& found) const {
    if (scores == kNoValue || mask == kNoValue || !is_plain(mask)) return false;
    Attention inner = found;
    if (!set_mask(graph_.meta(node.results[0]).sizes, scores, mask, inner) || !find_product(scores, 1, inner))
      return false;
    found = inner;
    return true;
  }

  bool find_chosen(const Node& node, Attention& found) const {
    for (const size_t at : {size_t{1}, size_t{2}}) {
      const std::optional<double> number = scalar_of(node.args[at]);
      const ValueId scores = value_of(node, 3 - at), condition = value_of(node, 0);
      if (!found.masks.empty() || !number || !(*number <= kLosesScores) || scores == kNoValue || condition == kNoValue)
        continue;
      found.replacement = static_cast<double>(static_cast<float>(*number));
      found.replaced_where = at == 1;
      return graph_.meta(condition).dtype == DType::kBool &&
             set_mask(graph_.meta(node.results[0]).sizes, scores, condition, found) && find_product(scores, 1, found);
    }
    return false;
  }

  // Masks apply to the finished scores. A mask has at most two leading dimensions, each of size one or that of the
  // scores, and covers all keys.
  bool set_mask(const SymSizes& sizes, ValueId scores, ValueId mask, Attention& found) const {
    const TensorMeta& meta = graph_.meta(mask);
    if (found.masks.size() > (found.replacement ? 0 : 1) || found.scale != 1 || graph_.meta(scores).sizes != sizes ||
        sizes.size() < 3 || sizes.size() > 4)
      return false;
    if (meta.ndim() == 0 || meta.ndim() > sizes.size() || !(meta.sizes.back() == sizes.back()) || !meta.device.is_cpu())
      return false;
    for (size_t d = 0; d + 1 < meta.ndim(); ++d)
      if (!(meta.sizes[d] == SymExpr(1)) && !(meta.sizes[d] == sizes[sizes.size() - meta.ndim() + d])) return false;
    const SymSizes batch = sizes.size() == 4 ? SymSizes{sizes[0], sizes[1]} : SymSizes{SymExpr(1), sizes[0]};
    if (!found.masks.empty() &&
        (found.batch != batch || !(covers(mask, found.masks[0]) || covers(found.masks[0], mask))))
      return false;
    found.masks.push_back(mask);
    found.batch = batch;
    return true;
  }

  // Whether the sum of both masks is no larger than the first one.
  bool covers(ValueId mask, ValueId other) const {
    const SymSizes &sizes = graph_.meta(mask).sizes, &fewer = graph_.meta(other).sizes;
    if (fewer.size() > sizes.size()) return false;
    for (size_t d = 0; d < fewer.size(); ++d)
      if (!(fewer[d] == SymExpr(1)) && !(fewer[d] == sizes[sizes.size() - fewer.size() + d])) return false;
    return true;
  }

  bool is_product(const Node& node, Attention& found) const {
    const bool adds = node.op->is(KnownOp::baddbmm);
    found.query = value_of(node, adds ? 1 : 0);
    found.key = value_of(node, adds ? 2 : 1);
    if (!adds) return true;
    const std::optional<double> factor = number_of(node.args[4]);
    return is(node, 3, 0) && factor && add_factor(*factor, found);
  }

  // The two dimensions that were merged into the batch of the products, if the query or the scores show them.
  SymSizes batch_of(ValueId query, const SymSizes& scores) const {
    const Node* view = graph_.maker(query, KnownOp::view);
    const SymSizes& sizes = graph_.meta(query).sizes;
    if (scores.size() == 4 && scores[2] == sizes[1]) return {scores[0], scores[1]};
    if (view != nullptr) {
      const SymSizes& whole = graph_.meta(value_of(*view, 0)).sizes;
      if (whole.size() == 4 && whole[2] == sizes[1] && whole[3] == sizes[2]) return {whole[0], whole[1]};
    }
    return {SymExpr(1), sizes[0]};
  }

  bool pays(const SymSizes& query, const SymSizes& value) const {
    const ShapeEnv& env = graph_.shapes;
    const int64_t size = env.hint(query[2]), queries = env.hint(query[1]),
                  scores = env.hint(query[0] * query[1] * value[1]);
    return std::any_of(std::begin(kCosts), std::end(kCosts), [&](const CostRow& row) {
      return size <= row.size && queries >= row.queries && scores >= row.scores;
    });
  }

  const Graph& graph_;
  std::vector<std::vector<const Node*>> users_;
};

class Rewriter {
 public:
  using Matches = std::unordered_map<const Node*, Attention>;  // by their last product
  Rewriter(const Graph& graph, const Finder& finder, const Matches& matches)
      : graph_(graph), finder_(finder), matches_(matches), r_(graph, true) {}

  Result<Graph> run() {
    for (const Node& node : graph_.nodes) {
      if (done_.contains(&node)) continue;
      if (const auto found = matches_.find(&node); found != matches_.end()) replace(found->second);
      else r_.copy_node(node);
    }
    FJ_TRY(Graph simpler, canonicalize(r_.build()));
    return dce(std::move(simpler));
  }

 private:
  GraphBuilder& out() { return r_.out(); }

  void replace(const Attention& found) {
    r_.begin(*found.product);
    const ValueId keys = batched(found.key, found.batch, true);
    const Arg mask = found.masks.empty() ? Arg{} : Arg(mask_of(found));
    const ValueId attended =
        out().emit("framejit::attention", {batched(found.query, found.batch, false), keys,
                                           batched(value_of(*found.product, 1), found.batch, false), mask,
                                           found.replacement.has_value(), found.scale});
    report(attended, out().meta(keys).sizes[2]);
    const ValueId product = found.product->results[0];
    if (const Node* view = freely_laid(product, found.batch)) {
      r_.set(view->results[0], attended);
      done_.insert(view);
      return;
    }
    r_.adopt(product, reshaped(out(), contiguous_clone(out(), attended), graph_.meta(product).sizes));
  }

  // [batch, rows, columns] as [b, h, rows, columns], without the copy that a matrix product needed. `turned`: the last
  // two dimensions are swapped, as for keys.
  ValueId batched(ValueId matrices, const SymSizes& batch, bool turned) {
    static const SymSizes kTurned{SymExpr(0), SymExpr(2), SymExpr(1)},
        kTurned4{SymExpr(0), SymExpr(1), SymExpr(3), SymExpr(2)};
    const Node* made = graph_.maker(matrices);
    if (made != nullptr && made->op->is(KnownOp::permute) && *made->args[1].get<SymSizes>() == kTurned) {
      const ValueId plain = batched(value_of(*made, 0), batch, false);
      return turned ? plain : out().emit("permute", {plain, kTurned4});
    }
    const SymSizes& rest = graph_.meta(matrices).sizes;
    const SymSizes sizes{batch[0], batch[1], rest[1], rest[2]};
    ValueId result = uncopied(matrices, sizes);
    if (result == kNoValue) result = reshaped(out(), r_.get(matrices), sizes);
    return turned ? out().emit("permute", {result, kTurned4}) : result;
  }

  ValueId uncopied(ValueId matrices, const SymSizes& sizes) {
    ValueId base = matrices;
    if (const Node* view = graph_.maker(base, KnownOp::view)) base = value_of(*view, 0);
    if (const Node* copy = graph_.maker(base, KnownOp::clone)) base = value_of(*copy, 0);
    const ValueId original = r_.get(base);
    if (out().meta(original).sizes == sizes) return original;
    std::vector<TensorMeta> metas;
    const std::vector<Arg> args{original, sizes};
    if (!infer_metas(*find_op("view"), args, out().peek().values, out().shapes(), metas)) return kNoValue;
    return out().emit("view", args, metas[0]);
  }

  // The mask to add to the scores, in four dimensions. Two masks are summed here, once for all layers that share them.
  ValueId mask_of(const Attention& found) {
    ValueId mask = in_four_dimensions(r_.get(found.masks[0]));
    if (found.masks.size() == 2)
      mask = out().emit("add.Tensor", {in_four_dimensions(r_.get(found.masks[1])), mask, SymExpr(1)});
    if (found.replacement) {
      const ValueId zero = out().emit("full", {SymSizes{}, 0.0, DType::kFloat32, Arg{}, Device{}, Arg{}});
      if (found.replaced_where) mask = out().emit("where.self", {mask, *found.replacement, zero});
      else mask = out().emit("where.self", {mask, zero, *found.replacement});
    }
    const TensorMeta& meta = out().meta(mask);
    return meta.strides.back() == SymExpr(1) ? mask : contiguous_clone(out(), mask);  // the kernel reads rows
  }

  ValueId in_four_dimensions(ValueId mask) {
    SymSizes sizes = out().meta(mask).sizes;
    sizes.insert(sizes.begin(), 4 - sizes.size(), SymExpr(1));
    return reshaped(out(), mask, sizes);
  }

  // The view of the product, if its strides do not matter: it is only read by a copy of a permutation.
  const Node* freely_laid(ValueId product, const SymSizes& batch) const {
    const auto only_user = [&](ValueId v, KnownOp op) {
      const auto& users = finder_.users(v);
      return users.size() == 1 && users[0] != nullptr && users[0]->op->is(op) ? users[0] : nullptr;
    };
    const Node* view = only_user(product, KnownOp::view);
    if (view == nullptr) return nullptr;
    const ValueId whole = view->results[0];
    const SymSizes& rest = graph_.meta(product).sizes;
    if (graph_.meta(whole).sizes != SymSizes{batch[0], batch[1], rest[1], rest[2]}) return nullptr;
    const auto& users = finder_.users(whole);
    const bool all_copied = std::all_of(users.begin(), users.end(), [&](const Node* user) {
      return user != nullptr && user->op->is(KnownOp::permute) &&
             only_user(user->results[0], KnownOp::clone) != nullptr;
    });
    return all_copied ? view : nullptr;
  }

  void report(ValueId attended, const SymExpr& keys) {
    if (!log::enabled(log::Kind::Attention)) return;
    log::emit(log::Kind::Attention, "",
              {{"graph", graph_.name}, {"queries", text_of(out().meta(attended))}, {"keys", keys.text()}});
  }

  const Graph& graph_;
  const Finder& finder_;
  const Matches& matches_;
  Rebuild r_;
  std::set<const Node*> done_;
};

}  // namespace

Result<Graph> attention(Graph graph) {
  const Finder finder(graph);
  Rewriter::Matches matches;
  for (const Node& node : graph.nodes)
    if (auto found = finder.find(node)) matches.emplace(&node, std::move(*found));
  if (matches.empty()) return graph;
  return Rewriter(graph, finder, matches).run();
}

}  // namespace framejit::graph
