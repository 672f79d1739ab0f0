// inductor/schedule/checks.h — what a nest checks, separate from what it computes.
#pragma once

#include "inductor/loop/nest_builder.h"

namespace framejit::inductor {

bool has_checks(const Nest& nest);
// Per instruction: whether it is a check, or feeds one.
std::vector<bool> feeding_checks(const Nest& nest, const NestSymbols& symbols);
// Per dimension: whether a check depends on it.
std::vector<bool> dims_of_checks(const Nest& nest, const NestSymbols& symbols, const std::vector<bool>& feeds);
// A nest that does the checks of this one, and nothing else.
Nest checks_of(const Nest& nest, uint32_t symbol_count);

// The same, unfinished: more may be added to it.
struct ChecksCopy {
  NestBuilder builder;
  std::vector<SymExpr> dims;  // its dimensions in terms of the nest's
  std::vector<InstId> map;    // for the nest's instructions; kNoInst for those left out
};
ChecksCopy copy_checks(const Nest& nest, uint32_t symbol_count, std::string name);

}  // namespace framejit::inductor
