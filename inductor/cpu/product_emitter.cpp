#include "inductor/cpu/product_emitter.h"

#include "inductor/loop/index_expr.h"

namespace framejit::inductor {
namespace {

using llvm::BasicBlock;
using llvm::Value;

constexpr size_t kColumn = 0, kRow = 1, kSum = 2;  // dimensions of the nest

class ProductEmitter {
 public:
  ProductEmitter(FunctionState& s, const Kernel& kernel, const EmitOptions& options)
      : s_(s),
        b_(s.b),
        kernel_(kernel),
        nest_(kernel.nests[0].nest),
        symbols_(kernel.symbol_count),
        lanes_(options.target.registers.lanes),
        plan_(s.plan.product) {
    for (const LoopInst& inst : nest_.body) {
      if (inst.op == LoopOp::kStore) result_ = operand_of(inst);
      if (inst.op == LoopOp::kLoad) (steps_along(inst, kRow) ? left_ : right_) = operand_of(inst);
    }
  }

  void run() {
    const int64_t terms = nest_.extent(kSum).constant();
    const int64_t blocks = plan_.blocks, length = plan_.terms;
    Value* rows = eval_size(s_, nest_.extent(kRow));
    Value *first_column = s_.outer.back(), *end = s_.tile_end;
    const auto block = [&](Value* from) {
      from_ = from;
      to_ = blocks == 1 ? number(terms) : s_.least(b_.CreateAdd(from, number(length)), number(terms));
      is_first_ = blocks == 1 ? nullptr : b_.CreateICmpEQ(from, number(0));
      Value* whole_rows = whole(number(0), rows, plan_.rows);
      emit_loop(s_, number(0), whole_rows, {}, [&](Value* row) { return columns(row, plan_.rows, first_column, end); });
      emit_loop(s_, whole_rows, rows, {}, [&](Value* row) { return columns(row, 1, first_column, end); });
      return number(length);
    };
    terms_ = terms;
    if (blocks == 1) {
      block(number(0));
    } else {
      emit_loop(s_, number(0), number(terms), {}, block);
    }
  }

 private:
  struct Operand {
    Value* memory = nullptr;
    DType dtype = DType::kFloat32;
    Value *row_step = nullptr, *column_step = nullptr, *offset = nullptr;
  };

  Value* number(int64_t n) { return b_.getInt64(static_cast<uint64_t>(n)); }
  // Where the last whole step of length `step` from `from` ends.
  Value* whole(Value* from, Value* to, unsigned step) {
    return b_.CreateSub(to, b_.CreateURem(b_.CreateSub(to, from), number(step)));
  }

  bool steps_along(const LoopInst& inst, size_t dim) const {
    SymExpr coefficient, rest;
    return split_linear(inst.index[0], symbols_.dim(dim), coefficient, rest) && !(coefficient == SymExpr(0));
  }

  Operand operand_of(const LoopInst& inst) {
    Operand o{s_.buffers[inst.buffer], kernel_.buffers[inst.buffer].dtype};
    SymExpr rest = inst.index[0];
    const auto take = [&](size_t dim) {
      SymExpr coefficient, left;
      FJ_ASSERT(split_linear(rest, symbols_.dim(dim), coefficient, left), "a product whose operand is not linear");
      rest = left;
      return coefficient;
    };
    o.row_step = eval_size(s_, take(kRow));
    o.column_step = eval_size(s_, take(kColumn));
    const SymExpr along = take(kSum);
    FJ_ASSERT(along == SymExpr(inst.op == LoopOp::kLoad ? 1 : 0),
              "a product whose operand is not contiguous along its sums");
    o.offset = eval_size(s_, rest);
    return o;
  }

  Value* address(const Operand& o, Value* row, Value* column) {
    Value* index =
        b_.CreateAdd(b_.CreateAdd(b_.CreateMul(row, o.row_step), b_.CreateMul(column, o.column_step)), o.offset);
    return b_.CreateGEP(s_.ops.memory_type(o.dtype, 0), o.memory, index);
  }

  Value* columns(Value* row, unsigned rows, Value* first, Value* end) {
    Value* whole_columns = plan_.has_whole_columns ? end : whole(first, end, plan_.columns);
    emit_loop(s_, first, whole_columns, {}, [&](Value* column) { return tile(row, rows, column, plan_.columns); });
    if (!plan_.has_whole_columns)
      emit_loop(s_, whole_columns, end, {}, [&](Value* column) { return tile(row, rows, column, 1); });
    return number(rows);
  }

  // Where the rows (columns) of a tile begin: elements `offset` after `begin`. Constants become parts of addresses,
  // everything else lies in registers.
  struct Lines {
    std::vector<Value*> begin, offset;
  };
  Lines lines(const Operand& o, Value* row, Value* column, Value* step, unsigned count) {
    Lines l;
    Value* first = address(o, row, column);
    for (unsigned k = 0; k < count; ++k) {
      Value* offset = b_.CreateMul(step, number(k));
      const bool is_number = llvm::isa<llvm::ConstantInt>(offset);
      l.begin.push_back(is_number ? first : b_.CreateGEP(s_.ops.memory_type(o.dtype, 0), first, offset));
      l.offset.push_back(is_number ? offset : number(0));
    }
    return l;
  }

  Value* tile(Value* row, unsigned rows, Value* column, unsigned columns) {
    const Lines left = lines(left_, row, column, left_.row_step, rows),
                right = lines(right_, row, column, right_.column_step, columns);
    std::vector<Value*> sums(size_t{rows} * columns, s_.ops.neutral(ReduceOp::kSum, DType::kFloat32, lanes_));
    Value* whole_end = terms_ % lanes_ == 0 ? to_ : whole(from_, to_, lanes_);
    sum_up(from_, whole_end, left, right, sums);
    if (terms_ % lanes_ != 0)
      step(left, right, whole_end, s_.ops.first_lanes(b_.CreateSub(to_, whole_end), lanes_), sums);
    for (unsigned r = 0; r < rows; ++r) {
      const auto first = sums.begin() + r * columns;
      store(s_.ops.halve_each(ReduceOp::kSum, DType::kFloat32, {first, first + columns}), b_.CreateAdd(row, number(r)),
            column);
    }
    return number(columns);
  }

  // Stores results that are side by side in a row.
  void store(Value* sums, Value* row, Value* column) {
    const llvm::Align alignment(sizeof(float));
    Value* to = address(result_, row, column);
    if (is_first_ != nullptr) {
      Value* before = b_.CreateAlignedLoad(sums->getType(), to, alignment);
      sums = b_.CreateFAdd(b_.CreateSelect(is_first_, llvm::Constant::getNullValue(sums->getType()), before), sums);
    }
    b_.CreateAlignedStore(sums, to, alignment);
  }

  // Sums all whole vectors; a block that is more than a tail has at least one.
  void sum_up(Value* from, Value* to, const Lines& left, const Lines& right, std::vector<Value*>& sums) {
    std::vector<Value**> carried;
    for (Value*& sum : sums) carried.push_back(&sum);
    emit_loop(s_, from, to, carried, [&](Value* index) {
      step(left, right, index, nullptr, sums);
      return number(lanes_);
    });
  }

  // Multiplies one vector of each row and column. The vectors of the columns stay in registers; those of the rows come
  // one after the other.
  void step(const Lines& left, const Lines& right, Value* index, Value* mask, std::vector<Value*>& sums) {
    const auto load = [&](const Operand& o, const Lines& lines, size_t k) {
      llvm::Type* type = s_.ops.memory_type(o.dtype, 0);
      return s_.ops.load(o.dtype, b_.CreateGEP(type, b_.CreateGEP(type, lines.begin[k], index), lines.offset[k]),
                         lanes_, mask, false);
    };
    std::vector<Value*> columns;
    for (size_t c = 0; c < right.begin.size(); ++c) columns.push_back(load(right_, right, c));
    for (size_t r = 0; r < left.begin.size(); ++r) {
      Value* of_row = load(left_, left, r);
      for (size_t c = 0; c < columns.size(); ++c) {
        Value*& sum = sums[r * columns.size() + c];
        sum = b_.CreateIntrinsic(llvm::Intrinsic::fmuladd, {sum->getType()}, {of_row, columns[c], sum});
      }
    }
  }

  FunctionState& s_;
  llvm::IRBuilder<>& b_;
  const Kernel& kernel_;
  const Nest& nest_;
  const NestSymbols symbols_;
  const unsigned lanes_;
  const ProductPlan& plan_;
  Operand left_, right_, result_;
  int64_t terms_ = 0;
  Value *from_ = nullptr, *to_ = nullptr;  // of the terms being summed
  Value* is_first_ = nullptr;  // whether they are the first ones; null: there are no others
};

}  // namespace

void emit_product(FunctionState& s, const Kernel& kernel, const EmitOptions& options) {
  ProductEmitter(s, kernel, options).run();
}

}  // namespace framejit::inductor
