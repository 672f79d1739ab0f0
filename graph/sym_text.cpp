// graph/sym_text.cpp — recursive descent over the grammar of size expressions, with Python's precedence.
//
// A blank follows the modulo sign: "%2" directly after an expression is the value that begins the next line.
#include "graph/sym_text.h"

#include <charconv>

namespace framejit::graph {
namespace {

Result<SymExpr> parse_atom(text::Cursor& cursor) {
  if (cursor.accept("(")) {
    FJ_TRY(SymExpr inner, parse_sym_expr(cursor));
    FJ_TRY_VOID(cursor.expect(")"));
    return inner;
  }
  if (cursor.peek() >= '0' && cursor.peek() <= '9') {
    FJ_TRY(const int64_t value, cursor.integer());
    return SymExpr(value);
  }
  const size_t start = cursor.position();
  const std::string_view word = cursor.word();
  if (word == "min" || word == "max") {
    FJ_TRY_VOID(cursor.expect("("));
    FJ_TRY(const SymExpr a, parse_sym_expr(cursor));
    FJ_TRY_VOID(cursor.expect(","));
    FJ_TRY(const SymExpr b, parse_sym_expr(cursor));
    FJ_TRY_VOID(cursor.expect(")"));
    return word == "min" ? SymExpr::min(a, b) : SymExpr::max(a, b);
  }
  SymbolId id = 0;
  if (word.size() > 1 && word[0] == 's') {
    const auto [end, failed] = std::from_chars(word.data() + 1, word.data() + word.size(), id);
    if (failed == std::errc() && end == word.data() + word.size()) return SymExpr::symbol(id);
  }
  cursor.rewind(start);
  return cursor.error("expected a size: an integer, a symbol such as s0, min, max or '('");
}

Result<SymExpr> parse_unary(text::Cursor& cursor) {
  if (!cursor.accept("-")) return parse_atom(cursor);
  FJ_TRY(const SymExpr operand, parse_unary(cursor));
  return SymExpr(-1) * operand;
}

Result<SymExpr> parse_product(text::Cursor& cursor) {
  FJ_TRY(SymExpr value, parse_unary(cursor));
  while (true) {
    const char op = cursor.accept("//") ? '/' : cursor.accept("*") ? '*' : cursor.accept("% ") ? '%' : '\0';
    if (op == '\0') return value;
    FJ_TRY(const SymExpr right, parse_unary(cursor));
    if (op != '*' && right == SymExpr(0)) return cursor.error("division by zero");
    value = op == '*' ? value * right : op == '/' ? SymExpr::floor_div(value, right) : SymExpr::mod(value, right);
  }
}

}  // namespace

Result<SymExpr> parse_sym_expr(text::Cursor& cursor) {
  FJ_TRY(SymExpr value, parse_product(cursor));
  while (true) {
    const bool minus = cursor.peek_is("-");
    if (!minus && !cursor.peek_is("+")) return value;
    (void)cursor.accept(minus ? "-" : "+");
    FJ_TRY(const SymExpr right, parse_product(cursor));
    value = minus ? value - right : value + right;
  }
}

}  // namespace framejit::graph
