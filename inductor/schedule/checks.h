// inductor/schedule/checks.h — what a nest checks, apart from what it computes.
#pragma once

#include "inductor/loop/nest_builder.h"

namespace framejit::inductor {

bool has_checks(const Nest& nest);
// Per instruction: whether it is a check, or a check needs it.
std::vector<bool> feeding_checks(const Nest& nest, const NestSymbols& symbols);
// Per dimension: whether what is checked depends on it.
std::vector<bool> dims_of_checks(const Nest& nest, const NestSymbols& symbols, const std::vector<bool>& feeds);
// A nest that checks what this one does, and nothing else.
Nest checks_of(const Nest& nest, uint32_t symbol_count);

// The same, not finished: more may be added to it.
struct ChecksCopy {
  NestBuilder builder;
  std::vector<SymExpr> dims;  // what its dimensions are in the nest
  std::vector<InstId> map;    // of the nest's instructions; kNoInst for what is left out
};
ChecksCopy copy_checks(const Nest& nest, uint32_t symbol_count, std::string name);

}  // namespace framejit::inductor
