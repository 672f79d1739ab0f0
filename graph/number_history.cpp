// graph/number_history.cpp — walks back from a value to the last node that wrote its storage, and on to its operands.
#include "graph/number_history.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "graph/node_values.h"
#include "graph/passes/rebuild.h"

namespace framejit::graph {
namespace {

constexpr size_t kMostSteps = 64;

using Found = std::optional<uint32_t>;  // the step that makes a number

struct Operand {
  uint32_t step;
  std::optional<DType> dtype;  // none: a Python number
};

bool holds_number(const TensorMeta& meta) {
  return meta.sizes.empty() && meta.device.is_cpu() && (meta.dtype == DType::kFloat32 || meta.dtype == DType::kFloat64);
}

// What an op does with numbers: the kinds of number_ops.def.
enum class NumberOpKind : uint8_t {
  kNone,
  kAdd,
  kSub,
  kReversedSub,
  kMul,
  kDiv,
  kNeg,
  kZero,
  kOne,
  kFull,
  kScalar,
  kWritten,
  kSame
};

// "add" of "add.Tensor", "add_.Scalar", "_foreach_add_.List" and "framejit::add.Tensor".
std::string_view plain_name(std::string_view name) {
  for (const std::string_view prefix : {"framejit::", "_foreach_"})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  name = base_name(name);
  if (name.ends_with('_')) name.remove_suffix(1);
  return name;
}

NumberOpKind kind_of(const OpDef& op) {
  static const auto* const rows = new std::unordered_map<std::string_view, NumberOpKind>{
#define NUMBER_OP(op, kind, why) {op, NumberOpKind::kind},
#include "graph/number_ops.def"
#undef NUMBER_OP
  };
  const auto row = rows->find(plain_name(op.name));
  return row == rows->end() ? NumberOpKind::kNone : row->second;
}

// A twin takes a tensor in place of a Python number (graph/aten/float_ops.h).
bool takes_number_as_tensor(const OpDef& op) {
  return op.name.starts_with("framejit::") && (op.name.ends_with(".Scalar") || kind_of(op) == NumberOpKind::kFull);
}

class Walk {
 public:
  Walk(const Graph& graph, const std::unordered_map<uint32_t, std::vector<uint32_t>>& writers,
       const NumberHistory::ConstantOf& constant_of)
      : g_(graph), writers_(writers), constant_of_(constant_of) {}

  // What `v` holds before node number `before` runs.
  Found contents(ValueId v, size_t before) {
    if (v == kNoValue || !holds_number(g_.meta(v)) || ++asked_ > kMostSteps) return std::nullopt;
    const ValueInfo& info = g_.values[index_of(v)];
    if (const auto writers = writers_.find(info.storage); writers != writers_.end()) {
      const auto next = std::lower_bound(writers->second.begin(), writers->second.end(), before);
      if (next != writers->second.begin()) return written(v, *(next - 1));
    }
    if (info.node >= 0) return made(v, static_cast<size_t>(info.node));
    const auto input = std::find(g_.inputs.begin(), g_.inputs.end(), v);
    if (input != g_.inputs.end()) return add({NumberStep::kInput, static_cast<uint32_t>(input - g_.inputs.begin())});
    const auto number = constant_of_(v);
    return number ? add({.number = *number}) : std::nullopt;
  }

  NumberSteps take() { return std::move(steps_); }

 private:
  Found add(NumberStep step) {
    steps_.push_back(step);
    return static_cast<uint32_t>(steps_.size() - 1);
  }

  DType dtype(ValueId v) const { return g_.meta(v).dtype; }

  Found rounded(Found step, DType from, DType to) {
    if (!step || from == to || to != DType::kFloat32) return step;
    return add({NumberStep::kNarrow, *step});
  }
  Found constant(const Arg& arg, DType to) {
    const auto number = number_of(arg);
    return number ? rounded(add({.number = *number}), DType::kFloat64, to) : std::nullopt;
  }

  static std::optional<double> number_of(const Arg& arg) {
    if (const double* d = arg.get<double>()) return *d;
    const SymExpr* n = arg.get<SymExpr>();
    return n != nullptr && n->is_constant() ? std::optional(static_cast<double>(n->constant())) : std::nullopt;
  }

  // Argument i of a node for element k of its lists.
  std::optional<Operand> operand(const Node& node, size_t i, size_t k, size_t before) {
    if (i >= node.args.size()) return std::nullopt;
    Arg arg = node.args[i];
    if (const auto* values = arg.get<std::vector<ValueId>>()) arg = k < values->size() ? Arg((*values)[k]) : Arg();
    else if (const auto* numbers = arg.get<std::vector<double>>())
      arg = k < numbers->size() ? Arg((*numbers)[k]) : Arg();
    else if (const auto* integers = arg.get<SymSizes>()) arg = k < integers->size() ? Arg((*integers)[k]) : Arg();
    if (const ValueId* v = arg.get<ValueId>()) {
      const bool is_number = i == 1 && takes_number_as_tensor(*node.op);
      const Found step = contents(*v, before);
      if (!step) return std::nullopt;
      return Operand{*step, is_number ? std::nullopt : std::optional(dtype(*v))};
    }
    const Found step = constant(arg, DType::kFloat64);
    return step ? std::optional(Operand{*step, std::nullopt}) : std::nullopt;
  }

  // Element k of the results of an arithmetic op, in dtype `to`.
  Found computed(const Node& node, size_t k, size_t before, DType to) {
    static constexpr std::pair<NumberOpKind, NumberStep::Op> kSteps[] = {{NumberOpKind::kAdd, NumberStep::kAdd},
                                                                         {NumberOpKind::kSub, NumberStep::kSub},
                                                                         {NumberOpKind::kReversedSub, NumberStep::kSub},
                                                                         {NumberOpKind::kMul, NumberStep::kMul},
                                                                         {NumberOpKind::kDiv, NumberStep::kDiv}};
    const NumberOpKind kind = kind_of(*node.op);
    const auto self = operand(node, 0, k, before);
    if (!self || !self->dtype) return std::nullopt;
    if (kind == NumberOpKind::kNeg) return add({NumberStep::kNeg, self->step, 0, 0, to == DType::kFloat32});
    const bool reflected = kind == NumberOpKind::kReversedSub;
    const auto row = std::ranges::find(kSteps, kind, &std::pair<NumberOpKind, NumberStep::Op>::first);
    const bool takes_alpha = row != std::end(kSteps) && row->second <= NumberStep::kSub;
    if (row == std::end(kSteps) || (node.args.size() > 2 && !(takes_alpha && is_one(node.args[2]))))
      return std::nullopt;
    const auto other = operand(node, 1, k, before);
    if (!other) return std::nullopt;
    const bool is_single = *self->dtype == DType::kFloat32 && other->dtype.value_or(DType::kFloat32) == DType::kFloat32;
    const DType common = is_single ? DType::kFloat32 : DType::kFloat64;
    const uint32_t a = reflected ? other->step : self->step, b = reflected ? self->step : other->step;
    return rounded(add({row->second, a, b, 0, is_single}), common, to);
  }

  // The number in `v` after node n, which writes the storage of `v`.
  Found written(ValueId v, size_t n) {
    const Node& node = g_.nodes[n];
    if (node.op->write_args != std::vector<int8_t>{0}) return std::nullopt;
    const auto* list = node.args[0].get<std::vector<ValueId>>();
    const ValueId* self = node.args[0].get<ValueId>();
    if (list == nullptr && (self == nullptr || *self != v)) return std::nullopt;
    if (list != nullptr && std::count(list->begin(), list->end(), v) != 1) return std::nullopt;
    const size_t k =
        list == nullptr ? 0 : static_cast<size_t>(std::find(list->begin(), list->end(), v) - list->begin());
    const NumberOpKind kind = kind_of(*node.op);
    if (kind == NumberOpKind::kZero) return constant(SymExpr(0), dtype(v));
    if (kind == NumberOpKind::kWritten) {
      const auto source = operand(node, 1, k, n);
      return source ? rounded(source->step, source->dtype.value_or(DType::kFloat64), dtype(v)) : std::nullopt;
    }
    return computed(node, k, n, dtype(v));
  }

  // The number in `v`, which node n made.
  Found made(ValueId v, size_t n) {
    const Node& node = g_.nodes[n];
    if (node.op->has(kMutates) || node.op->has(kView)) return std::nullopt;
    const NumberOpKind kind = kind_of(*node.op);
    const size_t k = static_cast<size_t>(std::find(node.results.begin(), node.results.end(), v) - node.results.begin());
    if (kind == NumberOpKind::kSame) {
      const auto source = operand(node, 0, k, n);
      return source && source->dtype ? rounded(source->step, *source->dtype, dtype(v)) : std::nullopt;
    }
    if (kind == NumberOpKind::kZero) return constant(SymExpr(0), dtype(v));
    if (kind == NumberOpKind::kOne) return constant(SymExpr(1), dtype(v));
    if (kind == NumberOpKind::kFull) {
      const auto number = operand(node, 1, k, n);
      return number && !number->dtype ? rounded(number->step, DType::kFloat64, dtype(v)) : std::nullopt;
    }
    if (kind == NumberOpKind::kScalar) return constant(node.args[0], dtype(v));
    return computed(node, k, n, dtype(v));
  }

  const Graph& g_;
  const std::unordered_map<uint32_t, std::vector<uint32_t>>& writers_;
  const NumberHistory::ConstantOf& constant_of_;
  NumberSteps steps_;
  size_t asked_ = 0;
};

}  // namespace

NumberSteps NumberHistory::find(const Graph& graph, ValueId value, const ConstantOf& constant_of) {
  for (; scanned_ < graph.nodes.size(); ++scanned_)
    for (int8_t i : graph.nodes[scanned_].op->write_args)
      for_each_value(graph.nodes[scanned_].args[static_cast<size_t>(i)], [&](ValueId v) {
        if (v == kNoValue) return;
        std::vector<uint32_t>& nodes = writers_[graph.values[index_of(v)].storage];
        if (nodes.empty() || nodes.back() != scanned_) nodes.push_back(static_cast<uint32_t>(scanned_));
      });
  Walk walk(graph, writers_, constant_of);
  return walk.contents(value, graph.nodes.size()) ? walk.take() : NumberSteps{};
}

void NumberHistory::forget() {
  writers_.clear();
  scanned_ = 0;
}

}  // namespace framejit::graph
