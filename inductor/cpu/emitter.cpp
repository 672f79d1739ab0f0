// inductor/cpu/emitter.cpp — kernel IR to LLVM IR, vectorised as it is written.
//
// Every instruction belongs to a level: the number of loops of its nest that it depends on. A level's instructions are emitted
// where that loop's body begins, so loop-invariant work is outside without any pass. The loop over the vector dimension is emitted
// twice: a main loop of `lanes * unroll` lanes (wide vectors, which code generation splits into registers: that is the unrolling)
// and a masked tail. Reductions are carried as phis, one set for the main loop and one for the tail; they meet in a fixed tree, so
// that results depend neither on threads nor on the place of the tail.
#include "inductor/cpu/emitter.h"

#include <algorithm>
#include <cmath>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "inductor/cpu/lane_ops.h"

namespace framejit::inductor {

using llvm::BasicBlock;
using llvm::Value;

namespace {

struct Accumulator {  // of one reduction; position only for argmax and argmin
  Value *value = nullptr, *position = nullptr;
};
using Accumulators = std::vector<Accumulator>;

// State that all nests of a kernel share.
struct FunctionState {
  FunctionState(llvm::Module& m, llvm::Function* f) : module(m), function(f), b(m.getContext()), ops(b, m) {}
  llvm::Module& module;
  llvm::Function* function;
  llvm::IRBuilder<> b;
  LaneOps ops;
  std::vector<Value*> buffers;
  std::vector<Value*> symbols;     // by symbol id: sizes
  std::vector<Value*> outer;       // outer dimensions
  Value *begin = nullptr, *end = nullptr;
  BasicBlock* failed = nullptr;
};

class NestEmitter {
 public:
  NestEmitter(FunctionState& state, const Kernel& kernel, const KernelNest& n, const EmitOptions& options)
      : s_(state), b_(state.b), ops_(state.ops), kernel_(kernel), n_(n), nest_(n.nest), symbols_(kernel.symbol_count), width_(options.lanes) {
    dims_.assign(nest_.dim_count(), nullptr);
    for (size_t d = 0; d < state.outer.size(); ++d) dims_[d] = state.outer[d];
    values_.assign(nest_.body.size(), nullptr);
    while (range_levels_ < n_.order.size() && n_.order[range_levels_] < nest_.ranges.size()) ++range_levels_;
    find_levels();
    choose_unroll();
  }

  void run() {
    Accumulators none;
    emit_level(0, none, none);
  }

 private:
  bool has_vector() const { return n_.vector_dim != SIZE_MAX; }
  bool vector_is_reduced() const { return has_vector() && n_.vector_dim >= nest_.ranges.size(); }

  void find_levels() {
    after_ = after_reduction(nest_, symbols_);
    level_.assign(nest_.body.size(), 0);
    for (size_t i = 0; i < nest_.body.size(); ++i) {
      const LoopInst& inst = nest_.body[i];
      if (after_[i]) {
        level_[i] = range_levels_;
        continue;
      }
      for (const SymExpr& e : inst.index) {
        std::vector<graph::SymbolId> ids;
        e.collect_symbols(ids);
        for (graph::SymbolId id : ids)
          if (symbols_.is_dim(id)) level_[i] = std::max(level_[i], level_of_dim(symbols_.dim_of(id)));
      }
      std::vector<InstId> uses;
      collect_uses(inst, symbols_, uses);
      for (InstId use : uses) level_[i] = std::max(level_[i], level_[use]);
    }
  }

  size_t level_of_dim(size_t d) const {
    for (size_t k = 0; k < n_.order.size(); ++k)
      if (n_.order[k] == d) return k + 1;
    return 0;
  }

  // Light bodies are unrolled, so that loads overlap; heavy ones have parallelism of their own.
  void choose_unroll() {
    size_t weight = 0;
    bool narrow = false;
    for (size_t i = 0; i < nest_.body.size(); ++i) {
      const LoopInst& inst = nest_.body[i];
      narrow |= inst.op == LoopOp::kCheck || inst.dtype == DType::kInt64 || inst.dtype == DType::kFloat64;
      narrow |= inst.op == LoopOp::kReduce && (inst.reduce == ReduceOp::kArgmax || inst.reduce == ReduceOp::kArgmin);
      narrow |= (inst.op == LoopOp::kLoad || inst.op == LoopOp::kStore) && !is_contiguous(inst);
      if (inst.op != LoopOp::kScalar) continue;
      weight += inst.scalar >= ScalarOp::k_exp && inst.scalar <= ScalarOp::k_hypot && inst.scalar != ScalarOp::k_sqrt ? 12 : 1;
    }
    unroll_ = narrow || weight > 20 ? 1 : weight > 6 ? 2 : 4;
    is_masked_only_ = weight > 12 && width_ == 16;
    if (!has_vector()) return;
    const auto extent = nest_.extent(n_.vector_dim).as_constant();
    while (extent && unroll_ > 1 && *extent < static_cast<int64_t>(width_ * unroll_)) unroll_ /= 2;
  }

  bool is_contiguous(const LoopInst& inst) const {
    if (!has_vector()) return true;
    SymExpr coefficient, rest;
    return split_linear(inst.index[0], symbols_.dim(n_.vector_dim), coefficient, rest) && (coefficient == SymExpr(0) || coefficient == SymExpr(1));
  }

  // --- levels and loops ---------------------------------------------------------------------------------------------------

  // Emits everything inside the first `level` loops. `main` and `tail` are the accumulators there; both are updated in place.
  void emit_level(size_t level, Accumulators& main, Accumulators& tail) {
    for (size_t i = 0; i < nest_.body.size(); ++i)
      if (level_[i] == level && !after_[i]) emit_inst(static_cast<InstId>(i));
    const bool starts_reduction = nest_.is_reduction() && level == range_levels_;
    if (!starts_reduction) {
      emit_deeper(level, main, tail);
      return;
    }
    Accumulators own_main = neutral(vector_is_reduced() ? width_ * unroll_ : lanes_);
    Accumulators own_tail = vector_is_reduced() ? neutral(width_) : Accumulators{};
    emit_deeper(level, own_main, own_tail);
    finish_reductions(own_main, own_tail);
    for (size_t i = 0; i < nest_.body.size(); ++i)
      if (after_[i] && nest_.body[i].op != LoopOp::kReduce) emit_inst(static_cast<InstId>(i));
  }

  void emit_deeper(size_t level, Accumulators& main, Accumulators& tail) {
    if (level < n_.order.size()) {
      n_.order[level] == n_.vector_dim ? emit_vector_loop(level, main, tail) : emit_scalar_loop(level, main, tail);
    } else if (nest_.is_reduction()) {
      accumulate(in_tail_ && vector_is_reduced() ? tail : main);
    }
  }

  Value* extent(size_t d) { return eval(nest_.extent(d)); }

  // A rotated loop from `from` while index < to. `body` gets the index and updates the accumulators, which are carried.
  template <class Body>
  void emit_loop(Value* from, Value* to, Value* step, Accumulators& main, Accumulators& tail, Body body) {
    std::vector<Value**> carried;
    for (Accumulators* set : {&main, &tail})
      for (Accumulator& a : *set) {
        carried.push_back(&a.value);
        if (a.position != nullptr) carried.push_back(&a.position);
      }
    BasicBlock* before = b_.GetInsertBlock();
    BasicBlock* inside = BasicBlock::Create(b_.getContext(), "loop", s_.function);
    BasicBlock* behind = BasicBlock::Create(b_.getContext(), "end", s_.function);
    std::vector<Value*> initial;
    for (Value** v : carried) initial.push_back(*v);
    b_.CreateCondBr(b_.CreateICmpSLT(from, to), inside, behind);
    b_.SetInsertPoint(inside);
    llvm::PHINode* index = b_.CreatePHI(b_.getInt64Ty(), 2);
    index->addIncoming(from, before);
    std::vector<llvm::PHINode*> phis;
    for (size_t k = 0; k < carried.size(); ++k) {
      phis.push_back(b_.CreatePHI(initial[k]->getType(), 2));
      phis[k]->addIncoming(initial[k], before);
      *carried[k] = phis[k];
    }
    body(index);
    Value* next = b_.CreateNSWAdd(index, step);
    BasicBlock* latch = b_.GetInsertBlock();
    index->addIncoming(next, latch);
    for (size_t k = 0; k < carried.size(); ++k) phis[k]->addIncoming(*carried[k], latch);
    b_.CreateCondBr(b_.CreateICmpSLT(next, to), inside, behind);
    b_.SetInsertPoint(behind);
    for (size_t k = 0; k < carried.size(); ++k) {
      llvm::PHINode* out = b_.CreatePHI(initial[k]->getType(), 2);
      out->addIncoming(initial[k], before);
      out->addIncoming(*carried[k], latch);
      *carried[k] = out;
    }
  }

  void emit_scalar_loop(size_t level, Accumulators& main, Accumulators& tail) {
    const size_t d = n_.order[level];
    emit_loop(b_.getInt64(0), extent(d), b_.getInt64(1), main, tail, [&](Value* index) {
      dims_[d] = index;
      emit_level(level + 1, main, tail);
    });
  }

  void emit_vector_loop(size_t level, Accumulators& main, Accumulators& tail) {
    const size_t d = n_.vector_dim;
    Value* from = kernel_.is_flat ? s_.begin : b_.getInt64(0);
    Value* to = kernel_.is_flat ? s_.end : extent(d);
    const auto constant = kernel_.is_flat ? std::nullopt : nest_.extent(d).as_constant();
    const unsigned wide = width_ * unroll_;
    Value* middle = from;
    const bool has_main = constant ? *constant >= wide : !is_masked_only_;
    if (has_main && !(is_masked_only_ && *constant % wide != 0)) {
      Value* count = b_.CreateSub(to, from);
      middle = b_.CreateAdd(from, b_.CreateAnd(count, b_.getInt64(~static_cast<uint64_t>(wide - 1))));
      if (constant) middle = b_.getInt64(static_cast<uint64_t>(*constant / wide * wide));
      lanes_ = wide;
      emit_loop(from, middle, b_.getInt64(wide), main, tail, [&](Value* index) {
        dims_[d] = index;
        emit_level(level + 1, main, tail);
      });
    }
    if (!constant || *constant % wide != 0) {
      lanes_ = width_;
      in_tail_ = true;
      emit_loop(middle, to, b_.getInt64(width_), main, tail, [&](Value* index) {
        dims_[d] = index;
        Value* left = b_.CreateVectorSplat(width_, b_.CreateSub(to, index));
        mask_ = b_.CreateICmpSLT(ops_.iota(width_), left);
        emit_level(level + 1, main, tail);
      });
      mask_ = nullptr;
      in_tail_ = false;
    }
    lanes_ = 0;
  }

  // --- reductions ---------------------------------------------------------------------------------------------------------

  static bool is_position(ReduceOp op) { return op == ReduceOp::kArgmax || op == ReduceOp::kArgmin; }
  DType operand_dtype(const LoopInst& inst) const { return nest_.body[inst.operands[0]].dtype; }

  Accumulators neutral(unsigned lanes) {
    Accumulators out;
    for (const LoopInst& inst : nest_.body) {
      if (inst.op != LoopOp::kReduce) continue;
      Accumulator a{ops_.neutral(inst.reduce, operand_dtype(inst), lanes), nullptr};
      if (is_position(inst.reduce)) a.position = ops_.splat(b_.getInt64(INT64_MAX), lanes);
      out.push_back(a);
    }
    return out;
  }

  void accumulate(Accumulators& set) {
    size_t k = 0;
    for (const LoopInst& inst : nest_.body) {
      if (inst.op != LoopOp::kReduce) continue;
      Accumulator& a = set[k++];
      const unsigned lanes = LaneOps::lanes_of(a.value);
      Value* x = ops_.splat(values_[inst.operands[0]], lanes);
      Value* active = lanes != 0 && vector_is_reduced() ? mask_ : nullptr;
      if (is_position(inst.reduce)) {
        pick(inst, a, x, ops_.splat(reduced_position(), lanes), active);
      } else {
        Value* next = ops_.combine(inst.reduce, operand_dtype(inst), a.value, x);
        a.value = active == nullptr ? next : b_.CreateSelect(active, next, a.value);
      }
    }
  }

  // a becomes (x, position) where x is better, or equally good and earlier. NaN is best.
  void pick(const LoopInst& inst, Accumulator& a, Value* x, Value* position, Value* active) {
    const DType dtype = operand_dtype(inst);
    const bool max = inst.reduce == ReduceOp::kArgmax;
    Value* pair[2] = {x, a.value};
    Value* better = ops_.scalar_op(max ? ScalarOp::k_gt : ScalarOp::k_lt, dtype, pair);
    Value* equal = ops_.scalar_op(ScalarOp::k_eq, dtype, pair);
    if (is_float(dtype)) {
      Value *x_nan = b_.CreateFCmpUNO(x, x), *a_nan = b_.CreateFCmpUNO(a.value, a.value);
      better = b_.CreateOr(better, b_.CreateAnd(x_nan, b_.CreateNot(a_nan)));
      equal = b_.CreateOr(equal, b_.CreateAnd(x_nan, a_nan));
    }
    Value* take = b_.CreateOr(better, b_.CreateAnd(equal, b_.CreateICmpSLT(position, a.position)));
    if (active != nullptr) take = b_.CreateAnd(take, active);
    a.value = b_.CreateSelect(take, x, a.value);
    a.position = b_.CreateSelect(take, position, a.position);
  }

  // Linear index of the current point among the reduced ones; lanes if the vector dimension is reduced.
  Value* reduced_position() {
    SymExpr linear = 0;
    for (size_t d = nest_.ranges.size(); d < nest_.dim_count(); ++d) linear = linear * nest_.extent(d) + symbols_.dim(d);
    return eval(linear);
  }

  void finish_reductions(Accumulators& main, Accumulators& tail) {
    size_t k = 0;
    for (size_t i = 0; i < nest_.body.size(); ++i) {
      const LoopInst& inst = nest_.body[i];
      if (inst.op != LoopOp::kReduce) continue;
      const size_t at = k++;
      if (!vector_is_reduced()) {
        values_[i] = is_position(inst.reduce) ? main[at].position : main[at].value;
      } else if (is_position(inst.reduce)) {
        values_[i] = best_position(inst, main[at], tail[at]);
      } else {
        Value* folded = ops_.halve(inst.reduce, inst.dtype, main[at].value, width_);
        values_[i] = ops_.halve(inst.reduce, inst.dtype, ops_.combine(inst.reduce, inst.dtype, folded, tail[at].value), 0);
      }
    }
  }

  Value* best_position(const LoopInst& inst, const Accumulator& main, const Accumulator& tail) {
    const auto lane = [&](const Accumulator& a, unsigned k) {
      return Accumulator{b_.CreateExtractElement(a.value, k), b_.CreateExtractElement(a.position, k)};
    };
    Accumulator best = lane(main, 0);
    for (const Accumulator* set : {&main, &tail})
      for (unsigned k = set == &main ? 1 : 0; k < LaneOps::lanes_of(set->value); ++k) {
        const Accumulator other = lane(*set, k);
        pick(inst, best, other.value, other.position, nullptr);
      }
    return best.position;
  }

  // --- expressions --------------------------------------------------------------------------------------------------------

  bool in_vector() const { return lanes_ != 0; }
  bool is_vector_symbol(graph::SymbolId id) const {
    if (symbols_.is_value(id)) return LaneOps::lanes_of(values_[symbols_.inst_of(id)]) != 0;
    return in_vector() && symbols_.is_dim(id) && symbols_.dim_of(id) == n_.vector_dim;
  }

  // The value of an index expression: a vector of i64 if it depends on the lane.
  Value* eval(const SymExpr& e) {
    if (e.is_constant()) return b_.getInt64(static_cast<uint64_t>(e.constant()));
    const SymExpr::Node& node = *e.node();
    if (node.op == graph::SymOp::kSymbol) return eval_symbol(node.symbol);
    std::vector<Value*> v;
    for (const SymExpr& x : node.operands) v.push_back(eval(x));
    unsigned lanes = 0;
    for (Value* x : v) lanes = std::max(lanes, LaneOps::lanes_of(x));
    for (Value*& x : v) x = ops_.splat(x, lanes);
    const auto constant = [&](int64_t c) { return ops_.splat(b_.getInt64(static_cast<uint64_t>(c)), lanes); };
    switch (node.op) {
      case graph::SymOp::kSymbol: break;
      case graph::SymOp::kSum:
      case graph::SymOp::kProduct: {
        const bool sum = node.op == graph::SymOp::kSum;
        Value* total = v[0];
        for (size_t k = 1; k < v.size(); ++k) total = sum ? b_.CreateAdd(total, v[k]) : b_.CreateMul(total, v[k]);
        if (node.coefficient == (sum ? 0 : 1)) return total;
        return sum ? b_.CreateAdd(total, constant(node.coefficient)) : b_.CreateMul(total, constant(node.coefficient));
      }
      case graph::SymOp::kFloorDiv:
      case graph::SymOp::kMod: {
        Value* pair[2] = {v[0], v[1]};
        return ops_.scalar_op(node.op == graph::SymOp::kFloorDiv ? ScalarOp::k_floor_div : ScalarOp::k_rem, DType::kInt64, pair);
      }
      case graph::SymOp::kMin: return b_.CreateSelect(b_.CreateICmpSLT(v[0], v[1]), v[0], v[1]);
      case graph::SymOp::kMax: return b_.CreateSelect(b_.CreateICmpSGT(v[0], v[1]), v[0], v[1]);
    }
    return v[0];
  }

  Value* eval_symbol(graph::SymbolId id) {
    if (symbols_.is_value(id)) return values_[symbols_.inst_of(id)];
    if (!symbols_.is_dim(id)) return s_.symbols[id];
    Value* base = dims_[symbols_.dim_of(id)];
    if (!is_vector_symbol(id)) return base;
    return b_.CreateAdd(b_.CreateVectorSplat(lanes_, base), ops_.iota(lanes_));
  }

  // --- instructions -------------------------------------------------------------------------------------------------------

  struct Address {
    Value* base = nullptr;      // scalar address, contiguous for lanes when `lanes` is set
    Value* offsets = nullptr;   // else: per lane
    bool has_lanes = false;
  };

  Address address_of(const LoopInst& inst) {
    const KernelBuffer& buffer = kernel_.buffers[inst.buffer];
    const SymExpr& e = inst.index[0];
    std::vector<graph::SymbolId> ids;
    e.collect_symbols(ids);
    bool from_values = false, from_dim = false;
    for (graph::SymbolId id : ids) {
      if (!is_vector_symbol(id)) continue;
      (symbols_.is_value(id) ? from_values : from_dim) = true;
    }
    Address a;
    a.has_lanes = from_values || from_dim;
    const auto at = [&](Value* offset) { return b_.CreateGEP(ops_.memory_type(buffer.dtype, 0), s_.buffers[inst.buffer], offset); };
    if (!a.has_lanes) {
      a.base = at(eval(e));
      return a;
    }
    SymExpr coefficient, rest;
    if (!from_values && split_linear(e, symbols_.dim(n_.vector_dim), coefficient, rest) && coefficient == SymExpr(1)) {
      a.base = at(b_.CreateAdd(eval(rest), dims_[n_.vector_dim]));
      return a;
    }
    a.base = s_.buffers[inst.buffer];
    a.offsets = eval(e);
    return a;
  }

  void emit_load(InstId i) {
    const LoopInst& inst = nest_.body[i];
    const KernelBuffer& buffer = kernel_.buffers[inst.buffer];
    const Address a = address_of(inst);
    values_[i] = a.offsets != nullptr ? ops_.gather(buffer.dtype, a.base, a.offsets, all_or_mask())
                                      : ops_.load(buffer.dtype, a.base, a.has_lanes ? lanes_ : 0, mask_, !buffer.is_written);
  }

  Value* all_or_mask() {
    return mask_ != nullptr ? mask_ : llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(b_.getInt1Ty(), lanes_));
  }

  void emit_store(const LoopInst& inst) {
    const KernelBuffer& buffer = kernel_.buffers[inst.buffer];
    const Address a = address_of(inst);
    Value* value = values_[inst.operands[0]];
    if (a.offsets != nullptr) {
      ops_.scatter(buffer.dtype, a.base, a.offsets, ops_.splat(value, lanes_), all_or_mask());
    } else if (a.has_lanes) {
      ops_.store(buffer.dtype, a.base, ops_.splat(value, lanes_), mask_);
    } else {  // all lanes go to one place: there is one element
      ops_.store(buffer.dtype, a.base, LaneOps::lanes_of(value) != 0 ? b_.CreateExtractElement(value, uint64_t{0}) : value, nullptr);
    }
  }

  // The checked index; leaves the kernel with 1 when it is out of range.
  void emit_check(InstId i) {
    const LoopInst& inst = nest_.body[i];
    Value* at = values_[inst.operands[0]];
    const unsigned lanes = LaneOps::lanes_of(at);
    Value* limit = ops_.splat(eval(inst.index[0]), lanes);
    if (inst.wrap) {
      Value* negative = b_.CreateICmpSLT(at, ops_.splat(b_.getInt64(0), lanes));
      at = b_.CreateSelect(negative, b_.CreateAdd(at, limit), at);
    }
    if (lanes != 0 && mask_ != nullptr) at = b_.CreateSelect(mask_, at, llvm::Constant::getNullValue(at->getType()));
    Value* bad = b_.CreateICmpUGE(at, limit);
    if (lanes != 0 && mask_ != nullptr) bad = b_.CreateAnd(bad, mask_);
    if (lanes != 0) bad = b_.CreateOrReduce(bad);
    BasicBlock* good = BasicBlock::Create(b_.getContext(), "in_range", s_.function);
    b_.CreateCondBr(bad, s_.failed, good);
    b_.SetInsertPoint(good);
    values_[i] = at;
  }

  void emit_inst(InstId i) {
    const LoopInst& inst = nest_.body[i];
    switch (inst.op) {
      case LoopOp::kConstant: values_[i] = ops_.constant(inst.dtype, inst.constant); return;
      case LoopOp::kIndex: values_[i] = eval(inst.index[0]); return;
      case LoopOp::kLoad: return emit_load(i);
      case LoopOp::kStore: return emit_store(inst);
      case LoopOp::kCheck: return emit_check(i);
      case LoopOp::kCast: values_[i] = ops_.cast(values_[inst.operands[0]], operand_dtype(inst), inst.dtype); return;
      case LoopOp::kReduce: return;
      case LoopOp::kScalar: break;
    }
    const bool is_select = inst.scalar == ScalarOp::k_select;
    Value* operands[3] = {};
    unsigned lanes = 0;
    const size_t count = static_cast<size_t>(inst.operand_count());
    for (size_t k = 0; k < count; ++k) lanes = std::max(lanes, LaneOps::lanes_of(values_[inst.operands[k]]));
    for (size_t k = 0; k < count; ++k) operands[k] = ops_.splat(values_[inst.operands[k]], lanes);
    values_[i] = ops_.scalar_op(inst.scalar, nest_.body[inst.operands[is_select ? 1 : 0]].dtype, {operands, count});
  }

  FunctionState& s_;
  llvm::IRBuilder<>& b_;
  LaneOps& ops_;
  const Kernel& kernel_;
  const KernelNest& n_;
  const Nest& nest_;
  NestSymbols symbols_;
  const unsigned width_;
  unsigned unroll_ = 1;
  bool is_masked_only_ = false;  // masks cost nothing beside the body: one loop, half the code
  size_t range_levels_ = 0;
  std::vector<size_t> level_;
  std::vector<bool> after_;
  std::vector<Value*> values_, dims_;
  unsigned lanes_ = 0;      // of the vector dimension here; 0 outside its loop
  Value* mask_ = nullptr;   // active lanes; null: all
  bool in_tail_ = false;
};

void add_attributes(llvm::Function* f, const EmitOptions& options) {
  const std::string width = std::to_string(options.width_bits);
  f->addFnAttr("min-legal-vector-width", width);
  f->addFnAttr("prefer-vector-width", width);
  f->addFnAttr(llvm::Attribute::NoUnwind);
}

// Buffer pointers from the argument array, scratch from the stack, sizes by symbol.
void emit_arguments(FunctionState& s, const Kernel& kernel) {
  llvm::Type* pointer = s.b.getPtrTy();
  for (size_t k = 0; k < kernel.buffers.size(); ++k) {
    const KernelBuffer& buffer = kernel.buffers[k];
    if (buffer.is_local) {
      auto* type = llvm::ArrayType::get(s.ops.memory_type(buffer.dtype, 0), static_cast<uint64_t>(buffer.local_elements));
      auto* scratch = s.b.CreateAlloca(type);
      scratch->setAlignment(llvm::Align(64));
      s.buffers.push_back(scratch);
    } else {
      s.buffers.push_back(s.b.CreateLoad(pointer, s.b.CreateConstGEP1_64(pointer, s.function->getArg(0), k)));
    }
  }
  s.symbols.assign(kernel.symbol_count, nullptr);
  for (size_t k = 0; k < kernel.symbols.size(); ++k)
    s.symbols[kernel.symbols[k]] = s.b.CreateLoad(s.b.getInt64Ty(), s.b.CreateConstGEP1_64(s.b.getInt64Ty(), s.function->getArg(1), k));
}

void emit_nests(FunctionState& s, const Kernel& kernel, const EmitOptions& options) {
  for (const KernelNest& n : kernel.nests) NestEmitter(s, kernel, n, options).run();
}

// Sizes only: extents of outer dimensions.
Value* eval_size(FunctionState& s, const SymExpr& e) {
  if (e.is_constant()) return s.b.getInt64(static_cast<uint64_t>(e.constant()));
  const SymExpr::Node& node = *e.node();
  if (node.op == graph::SymOp::kSymbol) return s.symbols[node.symbol];
  Value* total = nullptr;
  std::vector<Value*> v;
  for (const SymExpr& x : node.operands) v.push_back(eval_size(s, x));
  if (node.op == graph::SymOp::kSum || node.op == graph::SymOp::kProduct) {
    total = s.b.getInt64(static_cast<uint64_t>(node.coefficient));
    for (Value* x : v) total = node.op == graph::SymOp::kSum ? s.b.CreateAdd(total, x) : s.b.CreateMul(total, x);
    return total;
  }
  if (node.op == graph::SymOp::kMin) return s.b.CreateSelect(s.b.CreateICmpSLT(v[0], v[1]), v[0], v[1]);
  if (node.op == graph::SymOp::kMax) return s.b.CreateSelect(s.b.CreateICmpSGT(v[0], v[1]), v[0], v[1]);
  Value* pair[2] = {v[0], v[1]};
  return s.ops.scalar_op(node.op == graph::SymOp::kFloorDiv ? ScalarOp::k_floor_div : ScalarOp::k_rem, DType::kInt64, pair);
}

// The loop over outer points; the linear index is taken apart, last dimension fastest.
void emit_outer(FunctionState& s, const Kernel& kernel, const EmitOptions& options) {
  std::vector<Value*> extents;
  for (const SymExpr& e : kernel.outer) extents.push_back(eval_size(s, e));
  BasicBlock* before = s.b.GetInsertBlock();
  BasicBlock* inside = BasicBlock::Create(s.b.getContext(), "point", s.function);
  BasicBlock* behind = BasicBlock::Create(s.b.getContext(), "done", s.function);
  s.b.CreateCondBr(s.b.CreateICmpSLT(s.begin, s.end), inside, behind);
  s.b.SetInsertPoint(inside);
  llvm::PHINode* point = s.b.CreatePHI(s.b.getInt64Ty(), 2);
  point->addIncoming(s.begin, before);
  Value* left = point;
  s.outer.assign(kernel.outer.size(), nullptr);
  for (size_t d = kernel.outer.size(); d-- > 0;) {
    s.outer[d] = d == 0 ? left : s.b.CreateURem(left, extents[d]);
    if (d > 0) left = s.b.CreateUDiv(left, extents[d]);
  }
  emit_nests(s, kernel, options);
  Value* next = s.b.CreateNSWAdd(point, s.b.getInt64(1));
  point->addIncoming(next, s.b.GetInsertBlock());
  s.b.CreateCondBr(s.b.CreateICmpSLT(next, s.end), inside, behind);
  s.b.SetInsertPoint(behind);
}

}  // namespace

void emit_kernel(llvm::Module& module, const Kernel& kernel, const std::string& name, const EmitOptions& options) {
  llvm::LLVMContext& context = module.getContext();
  llvm::Type* i64 = llvm::Type::getInt64Ty(context);
  llvm::Type* pointer = llvm::PointerType::get(context, 0);
  auto* type = llvm::FunctionType::get(i64, {pointer, pointer, pointer, i64, i64}, false);
  auto* function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module);
  add_attributes(function, options);
  FunctionState s(module, function);
  s.b.SetInsertPoint(BasicBlock::Create(context, "entry", function));
  s.begin = function->getArg(3);
  s.end = function->getArg(4);
  s.failed = BasicBlock::Create(context, "failed", function);
  emit_arguments(s, kernel);
  kernel.is_flat ? emit_nests(s, kernel, options) : emit_outer(s, kernel, options);
  s.b.CreateRet(s.b.getInt64(0));
  s.b.SetInsertPoint(s.failed);
  s.b.CreateRet(s.b.getInt64(1));
}

}  // namespace framejit::inductor
