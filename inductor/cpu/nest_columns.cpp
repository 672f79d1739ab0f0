// inductor/cpu/nest_columns.cpp — reductions over rows whose lanes are columns, in slabs.
//
// Memory is read fastest by whole rows, but registers hold the accumulators of only a few columns. So the accumulators
// of all columns lie on the stack, and a slab of a few rows is walked from its first column to its last. For each group
// of lanes, the accumulators go through the rows of the slab in registers before they are stored again. Each row is
// then a separate stream, which the hardware follows.
#include "inductor/cpu/nest_columns.h"

#include <algorithm>
#include <bit>

namespace framejit::inductor {

using llvm::Value;

namespace {

int64_t bytes_of(Value* value) { return static_cast<int64_t>(value->getType()->getPrimitiveSizeInBits() + 7) / 8; }

}  // namespace

// Room for the accumulators of this many columns, from `offset` on; moves `offset` to its end.
Columns::Stack Columns::on_stack(const Accumulators& set, int64_t columns, int64_t& offset) {
  if (s_.stack == nullptr) {
    llvm::BasicBlock& entry = s_.function->getEntryBlock();
    llvm::IRBuilder<> at_entry(&entry, entry.begin());
    auto* block = at_entry.CreateAlloca(at_entry.getInt8Ty(), at_entry.getInt64(kStackBytes));
    block->setAlignment(llvm::Align(static_cast<uint64_t>(target_.caches.line)));
    s_.stack = block;
  }
  const auto place = [&](Value* value) -> Value* {
    if (value == nullptr) return nullptr;
    const int64_t begin = (offset + target_.caches.line - 1) / target_.caches.line * target_.caches.line;
    offset = begin + columns / lanes_ * bytes_of(value);
    return b_.CreateConstGEP1_64(b_.getInt8Ty(), s_.stack, static_cast<uint64_t>(begin));
  };
  Stack stack{{}, set};
  for (const Accumulator& a : set) stack.place.push_back({place(a.value), place(a.position), place(a.lost)});
  return stack;
}

static llvm::Align alignment_of(Value* value, int64_t line) {
  return llvm::Align(std::bit_floor(static_cast<uint64_t>(std::min(bytes_of(value), line))));
}

Accumulators Columns::taken(const Stack& stack, Value* at) {
  Accumulators set;
  for (size_t k = 0; k < stack.like.size(); ++k) {
    set.emplace_back();
    for (const auto member : {&Accumulator::value, &Accumulator::position, &Accumulator::lost})
      if (Value* like = stack.like[k].*member; like != nullptr)
        set[k].*member =
            b_.CreateAlignedLoad(like->getType(), b_.CreateGEP(like->getType(), stack.place[k].*member, at),
                                 alignment_of(like, target_.caches.line));
  }
  return set;
}

void Columns::put(const Stack& stack, const Accumulators& set, Value* at) {
  for (size_t k = 0; k < stack.like.size(); ++k)
    for (const auto member : {&Accumulator::value, &Accumulator::position, &Accumulator::lost})
      if (Value* value = set[k].*member; stack.like[k].*member != nullptr)
        b_.CreateAlignedStore(value, b_.CreateGEP(value->getType(), stack.place[k].*member, at),
                              alignment_of(value, target_.caches.line));
}

// `at`: the column of the first lane, counted from the first column.
void Columns::each_column(Value* from, Value* to, llvm::function_ref<void(Value* at)> body) {
  emit_carrying(s_, from, to, b_.getInt64(lanes_), {}, [&](Value* column) {
    dims_[plan_.lanes.dim] = column;
    body(b_.CreateUDiv(b_.CreateSub(column, from), b_.getInt64(lanes_)));
  });
}

void Columns::emit_slabs(const Stack& stack, Value* first_row, Value* last_row, Value* from, Value* to) {
  const bool restarts = plan_.loops.back().blocks.depth != 0;
  emit_carrying(s_, first_row, last_row, number(plan_.slabs.rows), {}, [&](Value* slab) {
    Value* const end = s_.least(b_.CreateNSWAdd(slab, number(plan_.slabs.rows)), last_row);
    each_column(from, to, [&](Value* at) {
      const Accumulators total = taken(stack, at);
      Accumulators set = restarts ? reductions_.restarted(total) : total;
      emit_carrying(s_, slab, end, b_.getInt64(1), {&set}, [&](Value* row) {
        dims_[plan_.loops.back().dim] = row;
        row_(set);
      });
      put(stack, restarts ? reductions_.joined(total, set) : set, at);
    });
  });
}

// Takes the columns from `from` to `to`, a multiple of the lanes apart, as many at once as fit. Slabs are summed into a
// total or, if there are many rows, kFanOut slabs at a time into a middle total.
void Columns::emit(Value* from, Value* to) {
  const bool has_middle = plan_.loops.back().blocks.depth == 2;
  const Accumulators fresh = reductions_.neutral(lanes_),
                     middle = has_middle ? reductions_.restarted(fresh) : Accumulators{};
  const int64_t columns = plan_.slabs.columns;
  int64_t offset = 0;
  const Stack totals = on_stack(fresh, columns, offset), middles = on_stack(middle, columns, offset);
  Value *const rows = indices_.extent(plan_.loops.back().dim), *const first_row = b_.getInt64(0);
  emit_carrying(s_, from, to, number(columns), {}, [&](Value* first) {
    Value* const last = s_.least(b_.CreateNSWAdd(first, number(columns)), to);
    each_column(first, last, [&](Value* at) { put(totals, fresh, at); });
    if (!has_middle) emit_slabs(totals, first_row, rows, first, last);
    else
      emit_carrying(s_, first_row, rows, number(plan_.slabs.rows * kFanOut), {}, [&](Value* block) {
        each_column(first, last, [&](Value* at) { put(middles, reductions_.restarted(taken(totals, at)), at); });
        emit_slabs(middles, block, s_.least(b_.CreateNSWAdd(block, number(plan_.slabs.rows * kFanOut)), rows), first,
                   last);
        each_column(first, last,
                    [&](Value* at) { put(totals, reductions_.joined(taken(totals, at), taken(middles, at)), at); });
      });
    each_column(first, last, [&](Value* at) {
      Accumulators set = taken(totals, at);
      results_(set);
    });
  });
}

}  // namespace framejit::inductor
