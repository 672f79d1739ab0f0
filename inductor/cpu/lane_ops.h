// inductor/cpu/lane_ops.h — scalar algebra, conversions and memory accesses as LLVM instructions, on scalars and
// vectors alike.
//
// A value's LLVM type shows how many lanes it has; bool is i1. All operands of one operation have the same number of
// lanes.
#pragma once

#include <span>

#include <llvm/ADT/STLFunctionalExtras.h>

#include "inductor/cpu/plan/bf16_values.h"
#include "inductor/loop/loop_program.h"

namespace llvm {
class IRBuilderBase;
class Instruction;
class Module;
class Type;
class Value;
}  // namespace llvm

namespace framejit::inductor {

class LaneOps {
 public:
  LaneOps(llvm::IRBuilderBase& builder, llvm::Module& module, bool has_avx512)
      : b_(builder), module_(module), has_avx512_(has_avx512) {}

  // Takes as many vectors as they have lanes. Returns the first lanes of all, the second lanes of all, ...
  std::vector<llvm::Value*> transposed(std::vector<llvm::Value*> rows);

  llvm::Type* value_type(DType dtype, unsigned lanes) const;   // lanes 0: scalar
  llvm::Type* memory_type(DType dtype, unsigned lanes) const;  // bool is a byte, bf16 is i16
  static unsigned lanes_of(llvm::Value* value);                // 0: scalar
  llvm::Value* splat(llvm::Value* value, unsigned lanes);      // unchanged if it has lanes or lanes is 0
  llvm::Value* constant(DType dtype, graph::ScalarValue value);
  llvm::Value* iota(unsigned lanes);                           // i64 0, 1, 2, ...
  llvm::Value* lane_numbers(unsigned lanes);  // 0, 1, 2 ... as i32
  llvm::Value* first_lanes(llvm::Value* count,
                           unsigned lanes);  // a mask: lane k is on if k < count (i64, not below -2^31)

  llvm::Value* scalar_op(ScalarOp op, DType dtype, std::span<llvm::Value* const> operands);
  llvm::Value* cast(llvm::Value* value, DType from, DType to);

  // Contiguous lanes at an address; mask null: all. Lanes that are masked off read as zero.
  llvm::Value* load(DType dtype, llvm::Value* address, unsigned lanes, llvm::Value* mask, bool is_invariant);
  void store(DType dtype, llvm::Value* address, llvm::Value* value, llvm::Value* mask, Bf16Rounding rounding);
  llvm::Value* round_bf16(llvm::Value* value, Bf16Rounding rounding);  // to a float32 that bfloat16 can represent
  // Loads bfloat16 from an address as split lanes: the even ones first, then the odd ones.
  llvm::Value* load_split(llvm::Value* address, unsigned lanes, bool is_invariant);
  void store_split(llvm::Value* address, llvm::Value* value, Bf16Rounding rounding);
  llvm::Value* split_lanes(llvm::Value* value);
  llvm::Value* ordered_lanes(llvm::Value* value);
  // The type of values on the stack: half precision widened, all others as in memory.
  llvm::Type* stored_type(DType dtype, unsigned lanes) const;
  llvm::Value* load_stored(DType dtype, llvm::Value* address, unsigned lanes);
  llvm::Value* from_stored(DType dtype, llvm::Value* stored);
  llvm::Value* gather(DType dtype, llvm::Value* base, llvm::Value* offsets, llvm::Value* mask);
  void scatter(DType dtype, llvm::Value* base, llvm::Value* offsets, llvm::Value* value, llvm::Value* mask);

  // Reductions: the neutral element, one step, and the reduction of all lanes to one (a fixed tree).
  llvm::Value* neutral(ReduceOp op, DType dtype, unsigned lanes);
  llvm::Value* combine(ReduceOp op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* halve(ReduceOp op, DType dtype, llvm::Value* value, unsigned lanes);  // to `lanes` lanes; 0: to a scalar
  // Reduces all lanes of each vector to one, by a tree that does not depend on the number of vectors. The result has
  // one lane per vector, and no vector has fewer lanes than that.
  llvm::Value* halve_each(ReduceOp op, DType dtype, std::vector<llvm::Value*> vectors);

 private:
  llvm::Value* shuffled(llvm::Value* a, llvm::Value* b, unsigned lanes, llvm::function_ref<unsigned(unsigned k)> lane);
  void set_invariant(llvm::Instruction* load);
  llvm::Value* to_value(DType dtype, llvm::Value* memory);
  llvm::Value* to_memory(DType dtype, llvm::Value* value, Bf16Rounding rounding = Bf16Rounding::kAny);
  llvm::Value* float_op(ScalarOp op, DType dtype, std::span<llvm::Value* const> v);
  llvm::Value* int_op(ScalarOp op, DType dtype, std::span<llvm::Value* const> v);
  llvm::Value* horizontal_sums(const std::vector<llvm::Value*>& vectors);
  llvm::Value* rounded_bits(llvm::Value* value, Bf16Rounding rounding);
  llvm::Value* larger(llvm::Value* a, llvm::Value* b, bool max);

  llvm::IRBuilderBase& b_;
  llvm::Module& module_;
  const bool has_avx512_;
};

}  // namespace framejit::inductor
