// graph/known_ops.cpp — the rows in a map.
#include "graph/known_ops.h"

#include <unordered_map>

namespace framejit::graph {

KnownOp known_op(std::string_view op) {
  static const auto* const rows = new std::unordered_map<std::string_view, KnownOp>{
#define KNOWN_OP(id, op, why) {op, KnownOp::id},
#include "graph/known_ops.def"
#undef KNOWN_OP
  };
  const auto at = rows->find(op);
  return at == rows->end() ? KnownOp::none : at->second;
}

}  // namespace framejit::graph
