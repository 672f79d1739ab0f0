// inductor/lowering/formula.cpp — recursive descent over text::Cursor.
#include "inductor/lowering/formula.h"

#include <cctype>
#include <limits>

#include "runtime/base/text.h"

namespace framejit::inductor {

InstId emit_scalar(NestBuilder& builder, ScalarOp op, std::initializer_list<InstId> operands) {
  if (builder.dtype(*operands.begin()) == DType::kBool) {
    if (op == ScalarOp::k_add) op = ScalarOp::k_bit_or;
    if (op == ScalarOp::k_mul) op = ScalarOp::k_bit_and;
  }
  return builder.scalar(op, operands);
}

namespace {

class FormulaParser {
 public:
  FormulaParser(NestBuilder& builder, std::string_view text, DType compute,
                const std::function<InstId(std::string_view)>& argument)
      : builder_(builder), cursor_(text), text_(text), compute_(compute), argument_(argument) {}

  InstId whole() {
    const InstId value = comparison();
    if (!cursor_.at_end()) fail();
    return value;
  }

 private:
  [[noreturn]] void fail() { throw_internal_error(__FILE__, __LINE__, "formula parses", std::string(text_)); }

  InstId comparison() {
    static constexpr std::pair<const char*, ScalarOp> kSigns[] = {{"<=", ScalarOp::k_le}, {">=", ScalarOp::k_ge},
                                                                  {"==", ScalarOp::k_eq}, {"!=", ScalarOp::k_ne},
                                                                  {"<", ScalarOp::k_lt},  {">", ScalarOp::k_gt}};
    const InstId left = sum();
    for (const auto& [sign, op] : kSigns)
      if (cursor_.accept(sign)) return builder_.scalar(op, {left, sum()});
    return left;
  }

  InstId sum() {
    InstId value = product();
    for (;;) {
      if (cursor_.accept("+")) {
        value = emit_scalar(builder_, ScalarOp::k_add, {value, product()});
      } else if (cursor_.accept("-")) {
        value = emit_scalar(builder_, ScalarOp::k_sub, {value, product()});
      } else {
        return value;
      }
    }
  }

  InstId product() {
    InstId value = atom();
    for (;;) {
      if (cursor_.accept("*")) {
        value = emit_scalar(builder_, ScalarOp::k_mul, {value, atom()});
      } else if (cursor_.accept("/")) {
        value = emit_scalar(builder_, ScalarOp::k_div, {value, atom()});
      } else {
        return value;
      }
    }
  }

  InstId atom() {
    if (cursor_.accept("(")) {
      const InstId value = comparison();
      if (!cursor_.accept(")")) fail();
      return value;
    }
    if (std::isdigit(static_cast<unsigned char>(cursor_.peek()))) {
      auto number =
          cursor_.next_is_float() ? cursor_.floating() : Result<double>(static_cast<double>(cursor_.integer().take()));
      return builder_.constant(number.take(), compute_);
    }
    const std::string name(cursor_.word());
    if (name == "inf") return builder_.constant(std::numeric_limits<double>::infinity(), compute_);
    if (!cursor_.accept("(")) return name.empty() ? (fail(), 0) : argument_(name);
    const auto op = graph::find_scalar_op(name);
    if (!op) fail();
    InstId operands[3] = {};
    const int arity = graph::row_of(*op).arity;
    for (int k = 0; k < arity; ++k) {
      if (k > 0 && !cursor_.accept(",")) fail();
      operands[k] = comparison();
    }
    if (!cursor_.accept(")")) fail();
    if (arity == 1) return builder_.scalar(*op, {operands[0]});
    if (arity == 2) return builder_.scalar(*op, {operands[0], operands[1]});
    return builder_.scalar(*op, {operands[0], operands[1], operands[2]});
  }

  NestBuilder& builder_;
  text::Cursor cursor_;
  std::string_view text_;
  DType compute_;
  const std::function<InstId(std::string_view)>& argument_;
};

}  // namespace

InstId emit_formula(NestBuilder& builder, std::string_view formula, DType compute,
                    const std::function<InstId(std::string_view)>& argument) {
  return FormulaParser(builder, formula, compute, argument).whole();
}

}  // namespace framejit::inductor
