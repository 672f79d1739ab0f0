// graph/op_lists.cpp — the rows in a set.
#include "graph/op_lists.h"

#include <set>
#include <utility>

namespace framejit::graph {

namespace {

const std::set<std::pair<OpList, std::string_view>>& list_rows() {
  static const auto* const rows = new std::set<std::pair<OpList, std::string_view>>{
#define OP_LIST(list, op, why) {OpList::list, op},
#include "graph/op_lists.def"
#undef OP_LIST
  };
  return *rows;
}

}  // namespace

bool is_in(OpList list, std::string_view op) { return list_rows().contains({list, op}); }

std::vector<std::string_view> ops_of(OpList list) {
  std::vector<std::string_view> ops;
  for (const auto& [row, op] : list_rows())
    if (row == list) ops.push_back(op);
  return ops;
}

}  // namespace framejit::graph
