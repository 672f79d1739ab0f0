// guards/size_guards.cpp — runs size facts, and says which one failed.
#include "guards/size_guards.h"

#include "graph/int64_range.h"
#include "graph/size_program.h"

namespace framejit::guards {

SizeGuards::SizeGuards(const std::vector<graph::SizeFact>& facts) {
  graph::SizeProgram program(ops_);
  for (const graph::SizeFact& fact : facts) {
    const int32_t left = program.slot(fact.left), right = program.slot(fact.right);
    facts_.push_back({fact.relation, left, right, static_cast<int32_t>(ops_.size())});
  }
  values_.resize(ops_.size());
}

int SizeGuards::first_failure(const int64_t* symbols) const {
  int64_t* v = values_.data();
  size_t at = 0;
  for (size_t fact = 0; fact < facts_.size(); ++fact) {
    for (; at < static_cast<size_t>(facts_[fact].end); ++at)
      if (!runtime::evaluate(ops_[at], symbols, v, v[at])) return static_cast<int>(fact);
    if (!graph::holds(v[facts_[fact].left], facts_[fact].relation, v[facts_[fact].right]))
      return static_cast<int>(fact);
  }
  return -1;
}

std::string text_of(const graph::SizeFact& fact) {
  if (graph::is_any_int64(fact)) return fact.right.text() + " fits in 64 bits";
  return fact.left.text() + " " + graph::text_of(fact.relation) + " " + fact.right.text();
}

std::string text_of_failure(const graph::SizeFact& fact, const std::vector<int64_t>& symbols) {
  if (graph::is_any_int64(fact)) return text_of(fact) + " but does not";
  std::string values;
  for (const graph::SymExpr* side : {&fact.left, &fact.right}) {
    if (side->is_constant()) continue;
    const std::optional<int64_t> value = graph::value_of(*side, symbols);
    values += (values.empty() ? " but " : " and ") + side->text() + " is " +
              (value ? std::to_string(*value) : "not a 64-bit integer");
  }
  return text_of(fact) + values;
}

}  // namespace framejit::guards
