// graph/sym_text.h — reads what SymExpr::text() writes; shared by the text forms of all levels.
#pragma once

#include "graph/sym_expr.h"
#include "runtime/base/text.h"

namespace framejit::graph {

// sum of products over + - * // %, min(a, b), max(a, b), parentheses, integers and s<n>. Stops after the expression.
Result<SymExpr> parse_sym_expr(text::Cursor& cursor);

}  // namespace framejit::graph
