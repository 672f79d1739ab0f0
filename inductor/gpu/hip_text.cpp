// inductor/gpu/hip_text.cpp — spelling; everything that is not an operator of C is a function of the prelude named
// fj_<op>.
#include "inductor/gpu/hip_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace framejit::inductor {

using graph::SymOp;

std::string value_type_text(DType dtype) {
  switch (dtype) {
    case DType::kBool: return "bool";
    case DType::kUInt8: return "u8";
    case DType::kInt8: return "i8";
    case DType::kInt16: return "i16";
    case DType::kInt32: return "int";
    case DType::kInt64: return "i64";
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32: return "float";
    case DType::kFloat64: return "double";
    case DType::kComplex64:
    case DType::kComplex128:
    case DType::kOther: break;
  }
  FJ_ASSERT(false, std::string("no value of dtype ") + row_of(dtype).text);
}

std::string memory_type_text(DType dtype) {
  if (dtype == DType::kBool) return "boolm";
  if (dtype == DType::kFloat16) return "f16m";
  if (dtype == DType::kBFloat16) return "bf16m";
  return value_type_text(dtype);
}

namespace {

// Shortest text that reads back as the same number; a float always has a point or an exponent.
template <class T>
std::string float_digits(T value) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string integer_text(int64_t value) {
  if (value == INT64_MIN) return "(-9223372036854775807LL - 1)";
  const bool is_wide = value > INT32_MAX || value < -INT32_MAX;
  const std::string text = std::to_string(value) + (is_wide ? "LL" : "");
  return value < 0 ? "(" + text + ")" : text;
}

}  // namespace

std::string constant_text(DType dtype, graph::ScalarValue value) {
  if (dtype == DType::kBool) return value.i != 0 ? "true" : "false";
  if (!is_float(dtype)) return integer_text(value.i);
  const bool is_single = dtype == DType::kFloat32;
  if (std::isnan(value.f)) return is_single ? "as_f32(0x7fc00000u)" : "as_f64(0x7ff8000000000000ull)";
  const std::string sign = std::signbit(value.f) ? "-" : "";
  if (std::isinf(value.f)) return sign + (is_single ? "as_f32(0x7f800000u)" : "as_f64(0x7ff0000000000000ull)");
  return is_single ? float_digits(static_cast<float>(value.f)) + "f" : float_digits(value.f);
}

namespace {

// An upper bound of |e| and of all its parts; nothing if it is unknown or reaches 2^31.
std::optional<int64_t> magnitude(const SymExpr& e, const Nest& nest, const NestSymbols& symbols) {
  constexpr int64_t kLimit = INT32_MAX;
  const auto bounded = [](int64_t n) { return n < kLimit ? std::optional(n) : std::nullopt; };
  if (e.is_constant()) return e.constant() == INT64_MIN ? std::nullopt : bounded(std::abs(e.constant()));
  const SymExpr::Node& n = *e.node();
  if (n.op == SymOp::kSymbol) {
    if (symbols.is_value(n.symbol)) {  // an index from data is below the extent that it was checked against
      const LoopInst& inst = nest.body[symbols.inst_of(n.symbol)];
      const auto extent = inst.op == LoopOp::kCheck ? inst.index[0].as_constant() : std::nullopt;
      return extent ? bounded(*extent) : std::nullopt;
    }
    if (!symbols.is_dim(n.symbol)) return std::nullopt;
    const auto extent = nest.extent(symbols.dim_of(n.symbol)).as_constant();
    return extent ? bounded(*extent) : std::nullopt;
  }
  const bool is_product = n.op == SymOp::kProduct;
  int64_t total = n.op == SymOp::kSum || is_product ? std::abs(n.coefficient) : 0;
  for (const SymExpr& x : n.operands) {
    const auto part = magnitude(x, nest, symbols);
    if (!part || total >= kLimit) return std::nullopt;
    total = is_product ? total * *part : n.op == SymOp::kSum ? total + *part : std::max(total, *part);
  }
  return bounded(total);
}

bool is_nonnegative(const SymExpr& e) {
  if (e.is_constant()) return e.constant() >= 0;
  const SymExpr::Node& n = *e.node();
  const bool coefficient_fits = (n.op != SymOp::kSum && n.op != SymOp::kProduct) || n.coefficient >= 0;
  return coefficient_fits && std::all_of(n.operands.begin(), n.operands.end(), is_nonnegative);
}

}  // namespace

bool fits_in_32_bits(const Kernel& kernel, int64_t over_the_end) {
  const NestSymbols symbols(kernel.symbol_count);
  for (const KernelNest& n : kernel.nests) {
    SymExpr points = 1;
    for (size_t d = 0; d < n.nest.dim_count(); ++d) points = points * n.nest.extent(d);
    if (!magnitude(points * SymExpr(2) + SymExpr(over_the_end), n.nest, symbols)) return false;
    for (const LoopInst& inst : n.nest.body)
      for (const SymExpr& e : inst.index)
        if (!magnitude(e, n.nest, symbols)) return false;
  }
  return true;
}

std::string NestText::dim(size_t d) const {
  const size_t ranges = nest_.ranges.size();
  return d < ranges ? "i" + std::to_string(d) : "r" + std::to_string(d - ranges);
}

std::string NestText::expr(const SymExpr& e) const {
  if (e.is_constant()) return integer_text(e.constant());
  const SymExpr::Node& n = *e.node();
  std::vector<std::string> parts;
  for (const SymExpr& x : n.operands) parts.push_back(expr(x));
  const auto joined = [&](const char* between) {
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
    return text;
  };
  // Operands of / and % that are products need parentheses.
  const auto quotient = [&](const char* between) {
    for (size_t k = 0; k < parts.size(); ++k) parts[k] = factor(n.operands[k]);
    return "(" + joined(between) + ")";
  };
  const auto call = [&](const char* name) { return std::string(name) + "<index>(" + parts[0] + ", " + parts[1] + ")"; };
  const bool is_plain = is_nonnegative(e);
  switch (n.op) {
    case SymOp::kSymbol:
      if (symbols_.is_dim(n.symbol)) return dim(symbols_.dim_of(n.symbol));
      return symbols_.is_value(n.symbol) ? "(index)v" + std::to_string(symbols_.inst_of(n.symbol))
                                         : "s" + std::to_string(n.symbol);
    case SymOp::kSum:
      return "(" + joined(" + ") + (n.coefficient == 0 ? "" : " + " + integer_text(n.coefficient)) + ")";
    case SymOp::kProduct: return (n.coefficient == 1 ? "" : integer_text(n.coefficient) + " * ") + joined(" * ");
    case SymOp::kFloorDiv: return is_plain ? quotient(" / ") : call("idx_div");
    case SymOp::kMod: return is_plain ? quotient(" % ") : call("idx_mod");
    case SymOp::kMin: return call("idx_min");
    case SymOp::kMax: return call("idx_max");
  }
  return "";
}

std::string NestText::factor(const SymExpr& e) const {
  const bool is_product = !e.is_constant() && e.node()->op == SymOp::kProduct;
  return is_product ? "(" + expr(e) + ")" : expr(e);
}

std::string NestText::access(const LoopInst& inst) const {
  return "b" + std::to_string(inst.buffer) + "[" + expr(inst.index[0]) + "]";
}

// The x, if the instruction is 1 / sqrt(x) in float32.
std::optional<InstId> NestText::reciprocal_root(const LoopInst& inst) const {
  if (inst.scalar != ScalarOp::k_div || inst.dtype != DType::kFloat32) return std::nullopt;
  const LoopInst &one = nest_.body[inst.operands[0]], &root = nest_.body[inst.operands[1]];
  if (one.op != LoopOp::kConstant || one.constant.f != 1 || root.op != LoopOp::kScalar ||
      root.scalar != ScalarOp::k_sqrt)
    return std::nullopt;
  return root.operands[0];
}

std::string NestText::scalar(const LoopInst& inst) const {
  const auto operand = [&](int k) { return "v" + std::to_string(inst.operands[k]); };
  const bool is_select = inst.scalar == ScalarOp::k_select;
  if (is_select) return operand(0) + " ? " + operand(1) + " : " + operand(2);
  const bool floating = is_float(nest_.body[inst.operands[0]].dtype);
  const char* infix = nullptr;
  switch (inst.scalar) {
    case ScalarOp::k_add: infix = floating ? " + " : nullptr; break;
    case ScalarOp::k_sub: infix = floating ? " - " : nullptr; break;
    case ScalarOp::k_mul: infix = floating ? " * " : nullptr; break;
    case ScalarOp::k_div: infix = floating ? " / " : nullptr; break;
    case ScalarOp::k_eq: infix = " == "; break;
    case ScalarOp::k_ne: infix = " != "; break;
    case ScalarOp::k_lt: infix = " < "; break;
    case ScalarOp::k_le: infix = " <= "; break;
    case ScalarOp::k_gt: infix = " > "; break;
    case ScalarOp::k_ge: infix = " >= "; break;
    // clang-format off
    default: break;
    // clang-format on
  }
  if (inst.scalar == ScalarOp::k_div && divisors_.count(inst.operands[1]) != 0)
    return "quotient(" + operand(0) + ", " + operand(1) + ", u" + std::to_string(inst.operands[1]) + ")";
  if (const auto root = reciprocal_root(inst)) return "fj_rsqrt(v" + std::to_string(*root) + ")";
  if (infix != nullptr) return operand(0) + infix + operand(1);
  std::string text = std::string("fj_") + graph::row_of(inst.scalar).name + "(";
  for (int k = 0; k < inst.operand_count(); ++k) text += (k ? ", " : "") + operand(k);
  return text + ")";
}

std::string NestText::inst(InstId i, const std::string& guard) const {
  const LoopInst& inst = nest_.body[i];
  const std::string type = inst.op == LoopOp::kStore ? "" : value_type_text(inst.dtype);
  const std::string operand = "v" + std::to_string(inst.operands[0]);
  std::string value;
  switch (inst.op) {
    case LoopOp::kConstant: value = constant_text(inst.dtype, inst.constant); break;
    case LoopOp::kIndex: value = "(i64)(" + expr(inst.index[0]) + ")"; break;
    case LoopOp::kLoad:
      value = "value_of(" + (stand_ins_.count(i) != 0 ? stand_ins_.at(i).first : access(inst)) + ")";
      if (inst.is_masked()) value = operand + " ? " + value + " : v" + std::to_string(inst.operands[1]);
      break;
    case LoopOp::kCast: value = "fj_cast<" + type + ">(" + operand + ")"; break;
    case LoopOp::kScalar: value = scalar(inst); break;
    case LoopOp::kStore: return stored(i, guard);
    case LoopOp::kCheck:
      value =
          std::string("checked<") + (inst.wrap ? "true" : "false") + ">(" + operand + ", " + expr(inst.index[0]) + ")";
      break;
    case LoopOp::kReduce:
    case LoopOp::kScan: FJ_ASSERT(false, "no statement of its own");
  }
  return "const " + type + " v" + std::to_string(i) + " = " + value + ";";
}

std::string NestText::stored(InstId i, const std::string& guard) const {
  const LoopInst& inst = nest_.body[i];
  const std::string operand = "v" + std::to_string(inst.operands[0]);
  if (const auto own = stand_ins_.find(i); own != stand_ins_.end())
    return own->second.first + operand + own->second.second;
  const bool is_own = has_own_locals_ && kernel_.buffers[inst.buffer].is_local;
  return (is_own ? "" : guard) + "put(&" + access(inst) + ", " + operand + ");";
}

bool NestText::is_position(InstId i) const {
  return nest_.body[i].reduce == ReduceOp::kArgmax || nest_.body[i].reduce == ReduceOp::kArgmin;
}

std::string NestText::operation(InstId i) const {
  switch (nest_.body[i].reduce) {
    case ReduceOp::kSum: return "Sum";
    case ReduceOp::kProd: return "Prod";
    case ReduceOp::kMax: return "Max";
    case ReduceOp::kMin: return "Min";
    case ReduceOp::kAny: return "Any";
    case ReduceOp::kAll: return "All";
    case ReduceOp::kArgmax: return "Argmax";
    case ReduceOp::kArgmin: return "Argmin";
  }
  return "";
}

std::string NestText::accumulator_type(InstId i) const {
  const std::string type = value_type_text(nest_.body[nest_.body[i].operands[0]].dtype);
  return is_position(i) ? "Best<" + type + ", index>" : type;
}

std::string NestText::start(InstId i) const {
  const LoopInst& inst = nest_.body[i];
  const DType dtype = nest_.body[inst.operands[0]].dtype;
  if (is_position(i)) return accumulator_type(i) + "{0, -1}";
  graph::ScalarValue start{};
  const bool is_unsigned = dtype == DType::kBool || dtype == DType::kUInt8;
  const int bits = dtype == DType::kBool ? 1 : 8 * row_of(dtype).bytes;
  const int64_t largest = static_cast<int64_t>(~uint64_t{0} >> ((is_unsigned ? 64 : 65) - bits));
  const bool is_max = inst.reduce == ReduceOp::kMax, is_min = inst.reduce == ReduceOp::kMin;
  const bool is_one = inst.reduce == ReduceOp::kProd || inst.reduce == ReduceOp::kAll;
  if (is_float(dtype)) {
    start.f = is_max ? -INFINITY : is_min ? INFINITY : is_one ? 1 : 0;
  } else {
    start.i = is_max ? (is_unsigned ? 0 : -largest - 1) : is_min ? largest : is_one ? 1 : 0;
  }
  return constant_text(dtype, start);
}

std::string NestText::declare_accumulator(InstId i) const {
  return accumulator_type(i) + " a" + std::to_string(i) + " = " + start(i) + ";";
}

std::string NestText::accumulate(InstId i, const std::string& position, const std::string& element) const {
  const LoopInst& inst = nest_.body[i];
  const std::string name = "a" + std::to_string(i) + element, x = "v" + std::to_string(inst.operands[0]);
  if (is_position(i)) return name + " = " + operation(i) + "::next(" + name + ", " + x + ", " + position + ");";
  return name + " = " + operation(i) + "::of(" + name + ", " + x + ");";
}

}  // namespace framejit::inductor
