// graph/op_lists.cpp — the rows in a set.
#include "graph/op_lists.h"

#include <set>
#include <utility>

namespace framejit::graph {

bool is_in(OpList list, std::string_view op) {
  static const auto* const rows = new std::set<std::pair<OpList, std::string_view>>{
#define OP_LIST(list, op, why) {OpList::list, op},
#include "graph/op_lists.def"
#undef OP_LIST
  };
  return rows->contains({list, op});
}

}  // namespace framejit::graph
