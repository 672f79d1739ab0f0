// graph/aten/true_masks.cpp — a proof by the ops that made the mask.
//
// A program that is traced may make a mask even if attention needs none: transformers compares positions with zero.
// Attention that gets a mask runs on slower kernels, and sums in another order than without one.
#include "graph/aten/true_masks.h"

#include <optional>

#include "graph/aten/recorder.h"

namespace framejit::graph {
namespace {

constexpr int kMostSteps = 64;

std::optional<int64_t> integer_of(const Node& node, size_t i) {
  const SymExpr* number = i < node.args.size() ? node.args[i].get<SymExpr>() : nullptr;
  return number != nullptr && number->is_constant() ? std::optional(number->constant()) : std::nullopt;
}

class Proof {
 public:
  Proof(const Graph& graph, const std::set<uint32_t>& written) : graph_(graph), written_(written) {}

  bool is_true(ValueId v, int budget = kMostSteps) const {
    const Node* node = maker(v, budget);
    if (node == nullptr) return false;
    const OpDef& op = *node->op;
    const ValueId* first = operand(*node, 0);
    if (op.is(KnownOp::ge_scalar) || op.is(KnownOp::gt_scalar)) {
      const auto least = first != nullptr ? least_of(*first, budget - 1) : std::nullopt;
      const auto limit = integer_of(*node, 1);
      return least && limit && (op.is(KnownOp::ge_scalar) ? *least >= *limit : *least > *limit);
    }
    if (op.is(KnownOp::bitwise_and_tensor) || op.is(KnownOp::logical_and)) {
      const ValueId* second = operand(*node, 1);
      return first != nullptr && second != nullptr && is_true(*first, budget - 1) && is_true(*second, budget - 1);
    }
    return first != nullptr && keeps_elements(*node) && graph_.meta(*first).dtype == DType::kBool &&
           is_true(*first, budget - 1);
  }

 private:
  static const ValueId* operand(const Node& node, size_t i) {
    const ValueId* v = i < node.args.size() ? node.args[i].get<ValueId>() : nullptr;
    return v == nullptr || *v == kNoValue ? nullptr : v;
  }

  // Null if the memory was written, because its contents may have changed.
  const Node* maker(ValueId v, int budget) const {
    const ValueInfo& info = graph_.values[index_of(v)];
    return budget == 0 || info.node < 0 || written_.contains(info.storage) ? nullptr : graph_.maker(v);
  }

  static bool keeps_elements(const Node& node) {
    return node.op->has(kView) || node.op->is(KnownOp::clone) || node.op->is(KnownOp::to_copy);
  }

  // A lower bound of the elements of an int64 tensor.
  std::optional<int64_t> least_of(ValueId v, int budget) const {
    const Node* node = maker(v, budget);
    if (node == nullptr || graph_.meta(v).dtype != DType::kInt64) return std::nullopt;
    const OpDef& op = *node->op;
    if (op.is(KnownOp::arange)) return 0;
    if (op.is(KnownOp::arange_start)) return integer_of(*node, 0);
    if (op.is(KnownOp::arange_start_step))
      return integer_of(*node, 2).value_or(0) > 0 ? integer_of(*node, 0) : std::nullopt;
    const ValueId* first = operand(*node, 0);
    if (first == nullptr) return std::nullopt;
    if (op.is(KnownOp::add_tensor)) {
      constexpr int64_t kMost = int64_t{1} << 31;  // sums of positions do not overflow
      const auto least = least_of(*first, budget - 1), more = integer_of(*node, 1), times = integer_of(*node, 2);
      const bool is_sum = least && more && times == 1 && *more > -kMost && *more < kMost;
      return is_sum ? std::optional(*least + *more) : std::nullopt;
    }
    return keeps_elements(*node) ? least_of(*first, budget - 1) : std::nullopt;
  }

  const Graph& graph_;
  const std::set<uint32_t>& written_;
};

}  // namespace

bool is_true_everywhere(const at::Tensor& mask) {
  const TracedTensorImpl* traced = as_traced(mask);
  if (traced == nullptr || !traced->recorder().live() || mask.scalar_type() != at::kBool) return false;
  return Proof(traced->recorder().graph(), traced->recorder().written_storages_).is_true(traced->value);
}

}  // namespace framejit::graph
