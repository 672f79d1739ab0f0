// inductor/kernel/in_place.cpp — the order of accesses within a nest, among nests and among outer points.
#include "inductor/kernel/in_place.h"

#include <algorithm>

#include "inductor/kernel/loop_shape.h"

namespace framejit::inductor {
namespace {

constexpr const char* kNames[] = {
#define KEPT_APART(name, text) #name,
#include "inductor/kernel/in_place.def"
#undef KEPT_APART
};

class Accesses {
 public:
  Accesses(const Kernel& kernel, LoopBufferId read, LoopBufferId written)
      : kernel_(kernel), read_(read), written_(written), symbols_(kernel.symbol_count) {}

  std::optional<KeptApart> run() const {
    if (row_of(kernel_.buffers[read_].dtype).bytes != row_of(kernel_.buffers[written_].dtype).bytes)
      return KeptApart::element_size;
    if (kernel_.is_attention) return KeptApart::shared_point;
    bool is_begun = false;  // an earlier nest writes
    for (const KernelNest& n : kernel_.nests) {
      if (const auto reason = in_nest(n, is_begun)) return reason;
      is_begun |=
          std::any_of(n.nest.body.begin(), n.nest.body.end(), [&](const LoopInst& inst) { return is_store(inst); });
    }
    if (kernel_.nests.size() > 1 && !is_by_point()) return KeptApart::not_by_point;
    return std::nullopt;
  }

 private:
  bool is_load(const LoopInst& inst) const { return inst.op == LoopOp::kLoad && inst.buffer == read_; }
  bool is_store(const LoopInst& inst) const { return inst.op == LoopOp::kStore && inst.buffer == written_; }

  std::optional<KeptApart> in_nest(const KernelNest& n, bool is_begun) const {
    const std::vector<LoopInst>& body = n.nest.body;
    for (const LoopInst& inst : body) {
      if (inst.op == LoopOp::kStore && inst.buffer == read_) return KeptApart::also_written;
      if (is_store(inst) && inst.mode != StoreMode::kPlain) return KeptApart::placed;
    }
    for (size_t i = 0; i < body.size(); ++i) {
      if (!is_load(body[i])) continue;
      if (is_begun) return KeptApart::read_later;
      if (kernel_.in_tiles && is_tiled_load(body[i], symbols_, kernel_.outer.size() - 1, n.vector_dim))
        return KeptApart::tiled;
      for (size_t k = 0; k < body.size(); ++k)
        if (is_store(body[k]) &&
            (k < i || !(body[k].index == body[i].index) || mentions_values(body[k].index[0], symbols_)))
          return KeptApart::other_element;
    }
    return std::nullopt;
  }

  // Whether each outer point has its own part of the memory: every access has the same combination of the outer
  // dimensions, with factors so far apart that no two points meet, whatever the nests add.
  bool is_by_point() const {
    const size_t outer = kernel_.outer.size();
    std::vector<SymExpr> factors;
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (const KernelNest& n : kernel_.nests)
      for (const LoopInst& inst : n.nest.body) {
        if (!is_load(inst) && !is_store(inst)) continue;
        SymExpr rest = inst.index[0];
        std::vector<SymExpr> own(outer);
        for (size_t d = 0; d < outer; ++d)
          if (!take_factor(rest, d, own[d])) return false;
        if (!factors.empty() && !(own == factors)) return false;
        factors = std::move(own);
        int64_t from = 0, to = 0;
        if (!bounds_within_point(n.nest, rest, from, to)) return false;
        low = std::min(low, from);
        high = std::max(high, to);
      }
    if (outer == 0) return true;
    return are_apart(factors, high - low + 1);
  }

  // e == factor * dimension d + the new e.
  bool take_factor(SymExpr& e, size_t d, SymExpr& factor) const {
    SymExpr rest;
    if (!split_linear(e, symbols_.dim(d), factor, rest)) return false;
    e = std::move(rest);
    return true;
  }

  bool bounds_within_point(const Nest& nest, SymExpr rest, int64_t& from, int64_t& to) const {
    for (size_t d = kernel_.outer.size(); d < nest.dim_count(); ++d) {
      SymExpr factor;
      if (!take_factor(rest, d, factor)) return false;
      if (factor == SymExpr(0)) continue;
      if (!factor.is_constant() || !nest.extent(d).is_constant()) return false;
      const int64_t reach = factor.constant() * (nest.extent(d).constant() - 1);
      (reach < 0 ? from : to) += reach;
    }
    if (!rest.is_constant()) return false;
    from += rest.constant();
    to += rest.constant();
    return true;
  }

  // Mixed radix: each factor is larger than everything that the smaller ones and the point itself reach.
  bool are_apart(const std::vector<SymExpr>& factors, int64_t reach) const {
    std::vector<size_t> order;
    for (size_t d = 0; d < factors.size(); ++d) {
      if (kernel_.outer[d] == SymExpr(1)) continue;
      if (!factors[d].is_constant() || factors[d].constant() <= 0) return false;
      order.push_back(d);
    }
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return factors[a].constant() < factors[b].constant(); });
    for (size_t k = 0; k < order.size(); ++k) {
      const int64_t factor = factors[order[k]].constant();
      if (factor < reach) return false;
      if (k + 1 == order.size()) break;
      const SymExpr& extent = kernel_.outer[order[k]];
      if (!extent.is_constant()) return false;
      reach += factor * (extent.constant() - 1);
    }
    return true;
  }

  const Kernel& kernel_;
  const LoopBufferId read_, written_;
  const NestSymbols symbols_;
};

}  // namespace

const char* name_of(KeptApart reason) { return kNames[static_cast<size_t>(reason)]; }

std::optional<KeptApart> kept_apart(const Kernel& kernel, LoopBufferId read, LoopBufferId written) {
  return Accesses(kernel, read, written).run();
}

}  // namespace framejit::inductor
