// graph/shape_rule.cpp — reads arguments for shape rules.
#include "graph/shape_rule.h"

namespace framejit::graph {

bool RuleArgs::given(size_t i) const {
  if (i >= args.size() || args[i].is_none()) return false;
  const ValueId* value = args[i].get<ValueId>();
  return value == nullptr || *value != kNoValue;
}

const TensorMeta* RuleArgs::tensor(size_t i) const {
  if (i >= args.size()) return nullptr;
  const ValueId* value = args[i].get<ValueId>();
  return value != nullptr && *value != kNoValue ? &meta(*value) : nullptr;
}

bool RuleArgs::tensors(size_t i, std::vector<const TensorMeta*>& out) const {
  if (i >= args.size()) return false;
  const auto* list = args[i].get<std::vector<ValueId>>();
  if (list == nullptr) return false;
  out.clear();
  for (ValueId v : *list) out.push_back(v == kNoValue ? nullptr : &meta(v));
  return true;
}

std::optional<SymExpr> RuleArgs::size(size_t i) const {
  if (i >= args.size()) return std::nullopt;
  if (const SymExpr* e = args[i].get<SymExpr>()) return *e;
  return std::nullopt;
}

std::optional<int64_t> RuleArgs::integer(size_t i) const {
  const auto e = size(i);
  return e ? e->as_constant() : std::nullopt;
}

int64_t RuleArgs::integer_or(size_t i, int64_t otherwise) const { return integer(i).value_or(otherwise); }

bool RuleArgs::sizes(size_t i, SymSizes& out) const {
  if (i >= args.size()) return false;
  if (const auto* list = args[i].get<std::vector<SymExpr>>()) {
    out = *list;
    return true;
  }
  if (const SymExpr* e = args[i].get<SymExpr>()) {
    out = {*e};
    return true;
  }
  return false;
}

bool RuleArgs::integers(size_t i, std::vector<int64_t>& out) const {
  SymSizes list;
  if (!sizes(i, list)) return false;
  out.clear();
  for (const SymExpr& e : list) {
    if (!e.is_constant()) return false;
    out.push_back(e.constant());
  }
  return true;
}

bool RuleArgs::flag(size_t i, bool otherwise) const {
  if (i >= args.size()) return otherwise;
  const bool* b = args[i].get<bool>();
  return b != nullptr ? *b : otherwise;
}

std::optional<DType> RuleArgs::dtype(size_t i) const {
  if (i >= args.size()) return std::nullopt;
  const DType* d = args[i].get<DType>();
  return d != nullptr ? std::optional<DType>(*d) : std::nullopt;
}

std::optional<Device> RuleArgs::device(size_t i) const {
  if (i >= args.size()) return std::nullopt;
  const Device* d = args[i].get<Device>();
  return d != nullptr ? std::optional<Device>(*d) : std::nullopt;
}

std::optional<DType> RuleArgs::number(size_t i) const {
  if (i >= args.size()) return std::nullopt;
  if (args[i].get<bool>() != nullptr) return DType::kBool;
  if (args[i].get<SymExpr>() != nullptr) return DType::kInt64;
  if (args[i].get<double>() != nullptr) return DType::kFloat64;
  return std::nullopt;
}

int RuleArgs::memory_format(size_t i) const {
  if (i >= args.size()) return -1;
  const TorchEnum* e = args[i].get<TorchEnum>();
  return e != nullptr && e->kind == 'm' ? e->value : -1;
}

bool infer_metas(const OpDef& op, std::span<const Arg> args, const ValueInfos& values, ShapeEnv& env,
                 std::vector<TensorMeta>& results, DType default_dtype) {
  if (op.shape_rule == nullptr) return false;
  results.clear();
  return op.shape_rule(RuleArgs{args, &values, default_dtype}, env, results);
}

}  // namespace framejit::graph
