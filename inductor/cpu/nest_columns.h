// inductor/cpu/nest_columns.h — reductions over rows whose lanes are columns, in slabs.
#pragma once

#include "inductor/cpu/nest_reductions.h"

namespace framejit::inductor {

class Columns : NestPart {
 public:
  // `row` emits the computation of a row and accumulates it, `results` the code after the last row.
  using OfSet = llvm::function_ref<void(Accumulators& set)>;
  Columns(NestState& state, Indices& indices, Reductions& reductions, OfSet row, OfSet results)
      : NestPart(state), indices_(indices), reductions_(reductions), row_(row), results_(results) {}

  // From `from` to `to`, a multiple of the lanes apart.
  void emit(Value* from, Value* to);

 private:
  struct Stack {  // accumulators of the columns that one walk takes: their places, and values of their types
    Accumulators place, like;
  };
  Stack on_stack(const Accumulators& set, int64_t columns, int64_t& offset);
  Accumulators taken(const Stack& stack, Value* at);
  void put(const Stack& stack, const Accumulators& set, Value* at);
  void each_column(Value* from, Value* to, llvm::function_ref<void(Value* at)> body);
  void emit_slabs(const Stack& stack, Value* first_row, Value* last_row, Value* from, Value* to);

  Indices& indices_;
  Reductions& reductions_;
  const OfSet row_, results_;
};

}  // namespace framejit::inductor
