// tests/parsers/sym_parser.cpp — recursive descent over the grammar of size expressions, with Python's precedence.
//
// A blank follows the modulo sign: "%2" directly after an expression is the value that begins the next line.
#include "tests/parsers/sym_parser.h"

#include <charconv>

namespace framejit::graph {
namespace {

Result<SymExpr> parse_atom(text::Reader& cursor, const SymbolReader& read_symbol) {
  if (cursor.accept("(")) {
    FJ_TRY(SymExpr inner, parse_sym_expr(cursor, read_symbol));
    FJ_TRY_VOID(cursor.expect(")"));
    return inner;
  }
  if (cursor.peek() >= '0' && cursor.peek() <= '9') {
    FJ_TRY(const int64_t value, cursor.integer());
    return SymExpr(value);
  }
  for (const bool least : {true, false}) {
    if (!cursor.accept(least ? "min" : "max")) continue;
    FJ_TRY_VOID(cursor.expect("("));
    FJ_TRY(const SymExpr a, parse_sym_expr(cursor, read_symbol));
    FJ_TRY_VOID(cursor.expect(","));
    FJ_TRY(const SymExpr b, parse_sym_expr(cursor, read_symbol));
    FJ_TRY_VOID(cursor.expect(")"));
    return least ? SymExpr::min(a, b) : SymExpr::max(a, b);
  }
  const size_t start = cursor.position();
  if (const auto id = read_symbol(cursor)) return SymExpr::symbol(*id);
  cursor.rewind(start);
  return cursor.error("expected a size: an integer, a symbol such as s0, min, max or '('");
}

Result<SymExpr> parse_unary(text::Reader& cursor, const SymbolReader& read_symbol) {
  if (!cursor.accept("-")) return parse_atom(cursor, read_symbol);
  FJ_TRY(const SymExpr operand, parse_unary(cursor, read_symbol));
  return SymExpr(-1) * operand;
}

Result<SymExpr> parse_product(text::Reader& cursor, const SymbolReader& read_symbol) {
  FJ_TRY(SymExpr value, parse_unary(cursor, read_symbol));
  while (true) {
    const char op = cursor.accept("//") ? '/' : cursor.accept("*") ? '*' : cursor.accept("% ") ? '%' : '\0';
    if (op == '\0') return value;
    FJ_TRY(const SymExpr right, parse_unary(cursor, read_symbol));
    if (op != '*' && right == SymExpr(0)) return cursor.error("division by zero");
    value = op == '*' ? value * right : op == '/' ? SymExpr::floor_div(value, right) : SymExpr::mod(value, right);
  }
}

}  // namespace

std::optional<uint32_t> numbered_word(text::Reader& cursor, char letter) {
  const std::string_view word = cursor.word();
  uint32_t number = 0;
  if (word.size() < 2 || word[0] != letter) return std::nullopt;
  const auto [end, failed] = std::from_chars(word.data() + 1, word.data() + word.size(), number);
  if (failed != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return number;
}

std::optional<SymbolId> read_size_symbol(text::Reader& cursor) { return numbered_word(cursor, 's'); }

Result<SymExpr> parse_sym_expr(text::Reader& cursor, const SymbolReader& read_symbol) {
  FJ_TRY(SymExpr value, parse_product(cursor, read_symbol));
  while (true) {
    const bool minus = cursor.peek_is("-");
    if (!minus && !cursor.peek_is("+")) return value;
    (void)cursor.accept(minus ? "-" : "+");
    FJ_TRY(const SymExpr right, parse_product(cursor, read_symbol));
    value = minus ? value - right : value + right;
  }
}

}  // namespace framejit::graph
