// guards/size_guards.h — facts about sizes, flattened into one straight program over int64 that allocates nothing when
// it runs. If an expression does not fit int64 for the given symbols, its fact does not hold.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/shape_env.h"
#include "runtime/size_op.h"

namespace framejit::guards {

class SizeGuards {
 public:
  SizeGuards() = default;
  explicit SizeGuards(const std::vector<graph::SizeFact>& facts);
  // Index of the first fact that does not hold, or -1.
  int first_failure(const int64_t* symbols) const;
  bool empty() const { return facts_.empty(); }

 private:
  struct Compare {
    graph::Relation relation;
    int32_t left, right, end;  // values, and the number of instructions they need
  };

  std::vector<runtime::SizeOp> ops_;
  std::vector<Compare> facts_;
  mutable std::vector<int64_t> values_;
};

std::string text_of(const graph::SizeFact& fact);
std::string text_of_failure(const graph::SizeFact& fact, const std::vector<int64_t>& symbols);

}  // namespace framejit::guards
