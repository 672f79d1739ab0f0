#include "inductor/gpu/hip_runs.h"

#include <algorithm>

#include "inductor/kernel/loop_shape.h"
#include "inductor/loop/number_text.h"

namespace framejit::inductor {

bool is_side_by_side(const LoopInst& inst, const NestSymbols& symbols, size_t dim) {
  SymExpr coefficient, rest;
  return is_address(inst) && !inst.is_masked() && inst.mode == StoreMode::kPlain &&
         !mentions_values(inst.index[0], symbols) &&
         split_linear(inst.index[0], symbols.dim(dim), coefficient, rest) && coefficient == SymExpr(1);
}

int64_t run_width(const Kernel& kernel, const std::vector<const Nest*>& nests, size_t dim, bool is_divided) {
  constexpr int64_t kMost = 8;
  const NestSymbols symbols(kernel.symbol_count);
  int64_t least = kWordBytes;
  std::optional<int64_t> extent;
  for (const Nest* nest : nests) {
    if (dim >= nest->dim_count()) continue;
    extent = nest->extent(dim).as_constant();
    for (const LoopInst& inst : nest->body)
      if (is_side_by_side(inst, symbols, dim) && !kernel.buffers[inst.buffer].is_local)
        least = std::min<int64_t>(least, row_of(kernel.buffers[inst.buffer].dtype).bytes);
  }
  int64_t width = std::min(kWordBytes / least, kMost);
  while (width > 1 && extent && is_divided && *extent % width != 0) width /= 2;
  return width;
}

std::string run_type_text(DType dtype, int64_t width) {
  return "Run<" + memory_type_text(dtype) + ", " + number(width) + "> ";
}

bool WideAccess::add(const NestText& t, const NestSymbols& symbols, const Nest& nest, const LoopInst& inst,
                     size_t dim) {
  if (width_ == 1) return true;
  std::set<std::string> conditions;
  const auto divides = [&](const SymExpr& e) {
    const SymExpr rest = SymExpr::mod(e, width_);
    if (rest.is_constant()) return rest.constant() == 0;
    conditions.insert(t.expr(rest) + " == 0");
    return true;
  };
  SymExpr step, rest, next;
  if (!split_linear(inst.index[0], symbols.dim(dim), step, rest)) return false;
  for (size_t d = 0; d < nest.dim_count(); ++d) {
    if (d == dim) continue;
    if (!split_linear(rest, symbols.dim(d), step, next) || !divides(step)) return false;
    rest = next;
  }
  if (!divides(rest)) return false;
  buffers_.insert(inst.buffer);
  conditions_.insert(conditions.begin(), conditions.end());
  return true;
}

std::string WideAccess::declaration() const {
  if (width_ == 1) return "";
  std::string text;
  for (LoopBufferId b : buffers_) text += (text.empty() ? "" : " | ") + ("(u64)b" + std::to_string(b));
  text = "const bool wide = " + (text.empty() ? "true" : "((" + text + ") & 15) == 0");
  for (const std::string& condition : conditions_) text += " && " + condition;
  return text + ";";
}

}  // namespace framejit::inductor
