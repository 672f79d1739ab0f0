// inductor/loop/loop_program.h — loop nests over buffers: lowering writes them, fusion rewrites them, and the
// interpreter defines them.
//
// A program is a list of items in execution order: nests and extern calls. A nest runs its body for every point of
// `ranges` x `reduced`; instructions that depend on reduced dimensions run in the inner loop, those that depend on a
// reduction after it. Bodies are flat SSA; an instruction is named by its position. Loads and stores name a buffer and
// one index expression per dimension of it.
// An ordered nest (see is_ordered) walks its reduced points one after another, row-major and ascending; its ranges stay
// independent.
// Symbols in a nest's expressions: sizes first, then the nest's dimensions, then values (int64 instructions): see
// NestSymbols. An index from data goes through a check; one that is computed only from dimensions needs none.
// Values are bool, integers, f32 or f64; half-precision buffers are converted by loads and stores.
// A load may have a mask: it reads only where the mask holds, and its index must be in range only there. Elsewhere it
// has the value of another instruction.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "graph/scalar_op.h"
#include "graph/sym_expr.h"
#include "runtime/base/result.h"
#include "runtime/dtype.h"

namespace framejit::inductor {

using graph::ScalarOp;
using graph::SymExpr;
using graph::SymSizes;

using InstId = uint32_t;
using LoopBufferId = uint32_t;
inline constexpr InstId kNoInst = UINT32_MAX;
inline constexpr uint32_t kMaxDims = 24;

enum class LoopOp : uint8_t { kConstant,
                              kIndex,
                              kLoad,
                              kStore,
                              kCheck,
                              kScalar,
                              kCast,
                              kReduce,
                              kScan };
// kPlain: each element at most once, at an index of dimensions only. The others run at every reduced point, in order,
// at any index:
// kLast: later points win; kJoin: `reduce` combines the value with the stored one.
enum class StoreMode : uint8_t { kPlain,
                                 kLast,
                                 kJoin };
enum class ReduceOp : uint8_t { kSum, kProd, kMax, kMin, kAny, kAll, kArgmax, kArgmin };

struct LoopInst {
  LoopOp op = LoopOp::kConstant;
  ScalarOp scalar = ScalarOp::k_add;      // kScalar
  // kReduce: over all reduced points; kArgmax: the first one, NaN wins. kScan: over those up to and including this one,
  // combined in order and in the value's dtype; kArgmax: the last one, NaN wins. For a kStore that joins: how.
  ReduceOp reduce = ReduceOp::kSum;
  StoreMode mode = StoreMode::kPlain;     // kStore
  DType dtype = DType::kFloat32;          // of the value; kStore: unused
  bool wrap = false;                      // kCheck: negative indices count from the end
  std::array<InstId, 3> operands{kNoInst, kNoInst,
                                 kNoInst};  // kLoad: none, or a mask and the value where it does not hold
  LoopBufferId buffer = 0;                // kLoad, kStore
  std::vector<SymExpr> index;             // kLoad, kStore: one per dimension; kIndex: the value; kCheck: the extent
  graph::ScalarValue constant{};          // kConstant
  friend bool operator==(const LoopInst& a, const LoopInst& b);
  int operand_count() const;
  bool is_masked() const { return op == LoopOp::kLoad && operands[0] != kNoInst; }
};

struct Nest {
  std::string name;
  SymSizes ranges, reduced;
  std::vector<LoopInst> body;
  std::vector<uint32_t> origins;  // nodes of the graph that it computes, sorted; not part of its text
  size_t dim_count() const { return ranges.size() + reduced.size(); }
  const SymExpr& extent(size_t dim) const { return dim < ranges.size() ? ranges[dim] : reduced[dim - ranges.size()]; }
  bool is_reduction() const { return !reduced.empty(); }
};

struct ExternCall {
  uint32_t node = 0;  // index into the graph's nodes
  std::string op;
  std::vector<LoopBufferId> reads, writes;
};

enum class BufferRole : uint8_t { kInput, kConstant, kTemp };
struct LoopBuffer {
  std::string name;
  BufferRole role = BufferRole::kTemp;
  DType dtype = DType::kFloat32;
  SymSizes sizes, strides;
  uint32_t value = UINT32_MAX;  // the graph's value, if any
  bool is_output = false;       // must still exist after the last item
};

struct LoopProgram {
  std::string name = "f";
  uint32_t symbol_count = 0;
  std::vector<LoopBuffer> buffers;
  std::vector<std::variant<Nest, ExternCall>> items;
};

// How the symbols of a nest's expressions are numbered.
struct NestSymbols {
  uint32_t sizes;
  explicit NestSymbols(uint32_t symbol_count) : sizes(symbol_count) {}
  graph::SymbolId id_of_dim(size_t d) const { return static_cast<graph::SymbolId>(sizes + d); }
  SymExpr dim(size_t d) const { return SymExpr::symbol(id_of_dim(d)); }
  std::optional<graph::SymbolId> id_of_last_dim(const Nest& nest) const {  // nothing: the nest has no dimensions
    return nest.dim_count() == 0 ? std::nullopt : std::optional(id_of_dim(nest.dim_count() - 1));
  }
  SymExpr value(InstId inst) const { return SymExpr::symbol(sizes + kMaxDims + inst); }
  bool is_dim(graph::SymbolId id) const { return id >= sizes && id < sizes + kMaxDims; }
  bool is_value(graph::SymbolId id) const { return id >= sizes + kMaxDims; }
  size_t dim_of(graph::SymbolId id) const { return id - sizes; }
  InstId inst_of(graph::SymbolId id) const { return id - sizes - kMaxDims; }
};

// The dtype in which values of a buffer are computed: f32 for half precision, else the dtype itself.
DType value_dtype(DType dtype);
const char* name_of(ReduceOp op);
bool is_position(ReduceOp op);  // argmax, argmin
// Whether a value is carried from one reduced point to the next.
inline bool is_carried(const LoopInst& inst) { return inst.op == LoopOp::kReduce || inst.op == LoopOp::kScan; }
// Whether it must run at every reduced point, in order.
bool is_ordered(const LoopInst& inst);
bool is_ordered(const Nest& nest);
// The operation that combines two results of a reduction, positions aside.
ScalarOp joining(ReduceOp op);
// Which instructions run per point of the reduced dimensions. The others run once per point of `ranges`: before the
// loop if no reduction feeds them, otherwise after it.
std::vector<bool> inner_insts(const Nest& nest, const NestSymbols& symbols);
std::vector<bool> after_reduction(const Nest& nest, const NestSymbols& symbols);
// Instructions that an instruction reads: operands and values in index expressions.
void collect_uses(const LoopInst& inst, const NestSymbols& symbols, std::vector<InstId>& out);

std::string print(const LoopProgram& program);
std::string print(const LoopProgram& program, const Nest& nest);
std::string print(const LoopProgram& program, const Nest& nest, InstId inst);
// `hints`: values of the program's symbols, for which indices must lie inside their buffers (bounds_verify.h). Without
// hints, only programs without symbols have their indices tested.
Result<void> verify(const LoopProgram& program, std::span<const int64_t> hints);
Result<void> verify(const LoopProgram& program, const Nest& nest, std::span<const int64_t> hints);

}  // namespace framejit::inductor
