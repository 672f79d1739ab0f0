// graph/known_ops.h — ops of which C++ code knows more than their rows say: rows of known_ops.def.
//
// A rule asks `op.is(KnownOp::mm)`. The id is found once, when the op enters the table of ops.
#pragma once

#include <cstdint>
#include <string_view>

namespace framejit::graph {

enum class KnownOp : uint8_t {
  none,
#define KNOWN_OP(id, op, why) id,
#include "graph/known_ops.def"
#undef KNOWN_OP
};

KnownOp known_op(std::string_view op);  // op: as OpDef::name

}  // namespace framejit::graph
