// graph/ops/families.h — the op rows, one function per family file.
#pragma once

#include <span>
#include <vector>

#include "graph/shape_rule.h"

namespace framejit::graph {

std::span<const OpRow> view_ops();

using OpFamily = std::span<const OpRow> (*)();
inline std::vector<OpFamily> op_families() { return {view_ops}; }

}  // namespace framejit::graph
