// tests/parsers/sym_parser.h — reads what SymExpr::text() writes; shared by the text forms of all levels.
#pragma once

#include <functional>
#include <optional>

#include "graph/sym_expr.h"
#include "tests/parsers/reader.h"

namespace framejit::graph {

// Reads the name of a symbol. Nothing: no such name is next; the cursor may have moved.
using SymbolReader = std::function<std::optional<SymbolId>(text::Reader&)>;

std::optional<uint32_t> numbered_word(text::Reader& cursor, char letter);  // 12 of "s12"
std::optional<SymbolId> read_size_symbol(text::Reader& cursor);            // s<n>

// sum of products over + - * // %, min(a, b), max(a, b), parentheses, integers and symbols. Stops after the expression.
Result<SymExpr> parse_sym_expr(text::Reader& cursor, const SymbolReader& read_symbol = read_size_symbol);

}  // namespace framejit::graph
