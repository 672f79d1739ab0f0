// inductor/gpu/hip_emitter.cpp — chooses the shape of a kernel:
// - points (hip_points.cpp): one nest without a reduction; each thread takes a few adjacent points;
// - tiles (hip_tiles.cpp): the same, with loads that are contiguous along another dimension; a block takes a square;
// - columns (hip_columns.cpp): one nest whose kept dimensions are contiguous and whose reduced ones are not;
// - products (hip_products.cpp): one nest that reduces a few rows and many columns over the same points;
// - attention (hip_attention.cpp): the last nests are attention of one query;
// - rows (hip_rows.cpp): all nests run over the same points of a row, and each thread keeps its own in registers;
// - mixed rows (hip_mixed_rows.cpp): everything else.
// Sums are added in an order that depends on the kernel alone.
#include "inductor/gpu/hip_emitter.h"

#include <algorithm>

#include "inductor/gpu/hip_writer.h"
#include "inductor/kernel/loop_shape.h"

namespace framejit::inductor {

std::string_view hip_prelude() {
  static constexpr std::string_view text =
#include "inductor/gpu/prelude.hip"
      ;
  return text.substr(1);
}

namespace {

std::string head(const Kernel& kernel, const HipProgram& program, const TargetInfo& target) {
  const Costs& costs = target.costs;
  const int64_t over_the_end = costs.row_blocks * costs.most_row_threads * costs.row_values;  // no row goes further
  std::string text = fits_in_32_bits(kernel, over_the_end) ? "typedef int index;\n" : "typedef i64 index;\n";
  text += "KERNEL(" + std::to_string(program.threads) +
          (program.residents > 0 ? " RESIDENT(" + std::to_string(program.residents) + ")" : "") +
          (program.together > 1 ? ", CLUSTER(" + std::to_string(program.together) + ")" : "") + ")(";
  for (size_t k = 0; k < kernel.buffers.size(); ++k) {
    const KernelBuffer& b = kernel.buffers[k];
    if (b.is_local) continue;
    text += (b.is_written ? "" : "const ") + memory_type_text(b.dtype) + (b.is_written ? "* b" : "* __restrict__ b") +
            std::to_string(k) + ", ";
  }
  for (graph::SymbolId s : kernel.symbols) text += "i64 s" + std::to_string(s) + ", ";
  text += "i64 extent) {\n";
  return target.traits.launches_overlap && !program.waits ? text + "  after_previous();\n" : text;
}

HipProgram shaped(const Kernel& kernel, const TargetInfo& target) {
  const Costs& costs = target.costs;
  const KernelNest& first = kernel.nests[0];
  if (kernel.nests.size() == 1 && !first.nest.is_reduction()) {
    if (auto tiles = kernel.in_tiles ? emit_tiles(kernel, costs) : std::nullopt) return std::move(*tiles);
    return emit_points(kernel, costs);
  }
  if (kernel.nests.size() == 1 && first.vector_dim < first.nest.ranges.size()) return emit_columns(kernel, costs);
  FJ_ASSERT(!kernel.is_flat, "a flat kernel is one nest");
  if (auto products = emit_products(kernel, target)) return std::move(*products);
  if (auto attention = emit_attention(kernel, target)) return std::move(*attention);
  if (auto rows = emit_rows(kernel, target)) return std::move(*rows);
  return emit_mixed_rows(kernel, costs);
}

// Turns nests that run in order over a single reduced point into nests of points.
Result<Kernel> without_walks(Kernel kernel) {
  const NestSymbols symbols(kernel.symbol_count);
  for (KernelNest& n : kernel.nests) {
    if (!is_ordered(n.nest)) continue;
    const size_t ranges = n.nest.ranges.size();
    std::vector<SymExpr> dims;
    for (size_t d = 0; d < n.nest.dim_count(); ++d) {
      if (d >= ranges && !(n.nest.extent(d) == SymExpr(1)))
        return Error{Reason::gpu, "a nest that runs in order has no GPU form"};
      dims.push_back(d < ranges ? symbols.dim(d) : SymExpr(0));
    }
    n.nest = with_dims(n.nest, kernel.symbol_count, n.nest.ranges, {}, dims);
    for (LoopInst& inst : n.nest.body) {
      if (inst.op == LoopOp::kScan || inst.mode == StoreMode::kJoin)
        return Error{Reason::gpu, "a nest that runs in order has no GPU form"};
      inst.mode = StoreMode::kPlain;
    }
    std::erase_if(n.order, [&](size_t d) { return d >= ranges; });
    if (n.vector_dim != SIZE_MAX && n.vector_dim >= ranges) n.vector_dim = SIZE_MAX;
  }
  return kernel;
}

}  // namespace

Result<HipProgram> emit_hip(const Kernel& kernel, const TargetInfo& target) {
  if (std::any_of(kernel.nests.begin(), kernel.nests.end(), [](const KernelNest& n) { return is_ordered(n.nest); })) {
    FJ_TRY(const Kernel plain, without_walks(kernel));
    return emit_hip(plain, target);
  }
  HipProgram program = shaped(kernel, target);
  program.text = head(kernel, program, target) + program.text + "}\n";
  return program;
}

}  // namespace framejit::inductor
