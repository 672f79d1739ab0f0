#include "inductor/kernel/recomputed_values.h"

#include <algorithm>
#include <set>

#include "inductor/kernel/loop_shape.h"
#include "inductor/loop/op_costs.h"
#include "inductor/schedule/body_copy.h"

namespace framejit::inductor {
namespace {

class Recomputer {
 public:
  Recomputer(const Kernel& kernel, int64_t most_work)
      : kernel_(kernel), symbols_(kernel.symbol_count), most_work_(most_work) {}

  std::optional<Kernel> run() {
    for (size_t k = 1; k < kernel_.nests.size(); ++k) compute_loads(k);
    std::erase_if(replaced_, [&](LoopBufferId b) { return is_loaded(b); });
    if (replaced_.empty()) return std::nullopt;
    for (KernelNest& n : kernel_.nests) drop_stores(n.nest);
    std::erase_if(kernel_.nests, [](const KernelNest& n) {
      return std::ranges::none_of(n.nest.body, [](const LoopInst& inst) { return inst.op == LoopOp::kStore; });
    });
    return std::move(kernel_);
  }

 private:
  struct Maker {
    size_t nest;
    InstId store;
  };

  std::vector<SymExpr> dims_of(const Nest& nest) const {
    std::vector<SymExpr> dims;
    for (size_t d = 0; d < nest.dim_count(); ++d) dims.push_back(symbols_.dim(d));
    return dims;
  }
  NestBuilder builder_like(const Nest& nest) const {
    return {kernel_.symbol_count, nest.name, nest.ranges, nest.reduced};
  }

  void compute_loads(size_t k) {
    const Nest nest = kernel_.nests[k].nest;
    NestBuilder b = builder_like(nest);
    BodyCopy copy(b, nest, dims_of(nest));
    copy.replace_load = [&](const LoopInst& load) -> std::optional<InstId> {
      const auto maker = maker_of(load, k);
      if (!maker) return std::nullopt;
      replaced_.insert(load.buffer);
      const Nest& from = kernel_.nests[maker->nest].nest;
      const std::vector<bool> needed = needed_by(from, maker->store);
      BodyCopy again(b, from, dims_of(from));
      again.with_stores = false;
      again.leave_out = [&](InstId i) { return !needed[i]; };
      again.run();
      return again.map()[from.body[maker->store].operands[0]];
    };
    copy.run();
    kernel_.nests[k].nest = b.build();
  }

  // The only store of what nest k loads, if it can be computed there.
  std::optional<Maker> maker_of(const LoopInst& load, size_t k) const {
    const KernelBuffer& buffer = kernel_.buffers[load.buffer];
    if (!buffer.is_private || load.is_masked()) return std::nullopt;
    std::optional<Maker> found;
    for (size_t n = 0; n < kernel_.nests.size(); ++n) {
      const Nest& nest = kernel_.nests[n].nest;
      for (InstId i = 0; i < nest.body.size(); ++i) {
        if (nest.body[i].op != LoopOp::kStore || nest.body[i].buffer != load.buffer) continue;
        if (found) return std::nullopt;
        found = Maker{n, i};
      }
    }
    if (!found || found->nest >= k) return std::nullopt;
    const Nest &from = kernel_.nests[found->nest].nest, &to = kernel_.nests[k].nest;
    const LoopInst& store = from.body[found->store];
    const bool is_own = store.mode == StoreMode::kPlain && store.index[0] == load.index[0] &&
                        from.body[store.operands[0]].dtype == buffer.dtype && has_extents_of(from, to);
    return is_own && is_cheap(*found, k) ? found : std::nullopt;
  }

  static bool has_extents_of(const Nest& a, const Nest& b) {
    if (a.dim_count() != b.dim_count()) return false;
    for (size_t d = 0; d < a.dim_count(); ++d)
      if (!(a.extent(d) == b.extent(d))) return false;
    return true;
  }

  std::vector<bool> needed_by(const Nest& nest, InstId store) const {
    std::vector<bool> needed(nest.body.size(), false);
    needed[nest.body[store].operands[0]] = true;
    for (InstId i = static_cast<InstId>(nest.body.size()); i-- > 0;) {
      if (!needed[i]) continue;
      std::vector<InstId> uses;
      collect_uses(nest.body[i], symbols_, uses);
      for (InstId use : uses) needed[use] = true;
    }
    return needed;
  }

  bool is_cheap(const Maker& maker, size_t reader) const {
    const Nest& nest = kernel_.nests[maker.nest].nest;
    const std::vector<bool> needed = needed_by(nest, maker.store);
    int64_t work = 0;
    for (InstId i = 0; i < nest.body.size(); ++i) {
      if (!needed[i]) continue;
      const LoopInst& inst = nest.body[i];
      if (inst.op == LoopOp::kReduce || inst.op == LoopOp::kScan || inst.op == LoopOp::kCheck) return false;
      if (inst.op == LoopOp::kLoad && is_stored_between(inst.buffer, maker.nest, reader)) return false;
      work += cost_of(inst);
    }
    return work <= most_work_;
  }

  bool is_stored_between(LoopBufferId b, size_t first, size_t end) const {
    for (size_t n = first; n < end; ++n)
      for (const LoopInst& inst : kernel_.nests[n].nest.body)
        if (inst.op == LoopOp::kStore && inst.buffer == b) return true;
    return false;
  }

  bool is_loaded(LoopBufferId b) const {
    return std::ranges::any_of(kernel_.nests, [&](const KernelNest& n) {
      return std::ranges::any_of(n.nest.body,
                                 [&](const LoopInst& inst) { return inst.op == LoopOp::kLoad && inst.buffer == b; });
    });
  }

  void drop_stores(Nest& nest) const {
    const Nest from = nest;
    NestBuilder b = builder_like(from);
    BodyCopy copy(b, from, dims_of(from));
    copy.leave_out = [&](InstId i) {
      return from.body[i].op == LoopOp::kStore && replaced_.contains(from.body[i].buffer);
    };
    copy.run();
    nest = b.build();
  }

  Kernel kernel_;
  const NestSymbols symbols_;
  const int64_t most_work_;
  std::set<LoopBufferId> replaced_;  // of which at least one load is computed
};

}  // namespace

std::optional<Kernel> with_recomputed_values(const Kernel& kernel, int64_t most_work) {
  return Recomputer(kernel, most_work).run();
}

}  // namespace framejit::inductor
