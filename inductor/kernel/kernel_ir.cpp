// inductor/kernel/kernel_ir.cpp — from a group of nests to a kernel: scratch, addresses, loop shapes, lanes, grain.
#include "inductor/kernel/kernel_ir.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "inductor/kernel/loop_shape.h"
#include "inductor/loop/op_costs.h"
#include "inductor/schedule/attention_nests.h"
#include "runtime/base/config.h"

namespace framejit::inductor {
namespace {

class KernelMaker {
 public:
  KernelMaker(const LoopProgram& program, const Group& group, const std::vector<bool>& is_private,
              const SizeHints& hints, const TargetInfo& target, KernelTuning tuning)
      : program_(program),
        group_(group),
        is_private_(is_private),
        hints_(hints),
        traits_(target.traits),
        costs_(target.costs),
        tuning_(tuning),
        symbols_(program.symbol_count) {}

  Kernel run() {
    kernel_.symbol_count = program_.symbol_count;
    kernel_.unroll = tuning_.unroll;
    kernel_.is_attention = group_.is_attention;
    find_buffers();
    if (group_.is_product) {
      shape_product();
      return std::move(kernel_);
    }
    const std::vector<const Nest*> nests = nests_that_run();
    const bool single = nests.size() == 1 && (group_.nests.size() == 1 || is_empty_inside(*nests[0]));
    for (const Nest* from : nests) {
      const Nest& nest = *from;
      // Divided dimensions are split while indices still have components; linear addresses would hide them.
      Nest split = keeps_dims(nest) ? nest : split_divided_dims(nest, program_.symbol_count, single ? 0 : group_.outer);
      Nest flat = merge_dims(drop_unit_dims(linear(split), program_.symbol_count, single ? 0 : group_.outer),
                             program_.symbol_count, single ? 0 : group_.outer);
      kernel_.nests.push_back({std::move(flat), {}, SIZE_MAX});
    }
    if (single) {
      shape_single(kernel_.nests[0]);
    } else {
      merge_outer();
      const auto& leader = kernel_.nests[0].nest.ranges;
      kernel_.outer.assign(leader.begin(), leader.begin() + static_cast<long>(outer_));
      for (KernelNest& n : kernel_.nests) shape_inner(n);
      if (outer_ > 0 && outer_lanes_pay()) take_outer_lanes();
    }
    if (!kernel_.is_flat)
      for (const SymExpr& e : kernel_.outer) kernel_.extent = kernel_.extent * e;
    choose_grain();
    collect_symbols();
    return std::move(kernel_);
  }

 private:
  struct Access {
    const LoopInst* inst;
    const Nest* nest;
  };

  // Inner loops are emitted to run at least once. So nests that are known to be empty inside are left out of the
  // kernel, except one if all are. Their buffers stay arguments, so that they are allocated.
  std::vector<const Nest*> nests_that_run() const {
    std::vector<const Nest*> nests;
    for (const Nest& nest : group_.nests)
      if (!is_empty_inside(nest)) nests.push_back(&nest);
    if (nests.empty()) nests.push_back(&group_.nests[0]);
    return nests;
  }
  // The nests of an attention are recognized by their dimensions.
  bool keeps_dims(const Nest& nest) const {
    return group_.is_attention && static_cast<size_t>(&group_.nests.back() - &nest) < kAttentionNests;
  }
  bool is_empty_inside(const Nest& nest) const {
    return std::find(nest.ranges.begin() + static_cast<std::ptrdiff_t>(group_.outer), nest.ranges.end(), SymExpr(0)) !=
           nest.ranges.end();
  }

  // Arguments in order of first use, then the scratch buffers.
  void find_buffers() {
    std::map<LoopBufferId, std::vector<Access>> accesses;
    std::vector<LoopBufferId> order;
    std::set<LoopBufferId> written;
    for (const Nest& nest : group_.nests)
      for (const LoopInst& inst : nest.body) {
        if (!is_address(inst)) continue;
        if (accesses.find(inst.buffer) == accesses.end()) order.push_back(inst.buffer);
        accesses[inst.buffer].push_back({&inst, &nest});
        if (inst.op == LoopOp::kStore) written.insert(inst.buffer);
      }
    std::vector<KernelBuffer> locals;
    int64_t scratch = 0;
    for (LoopBufferId id : order) {
      KernelBuffer b{id, program_.buffers[id].dtype, written.count(id) != 0, false, 0};
      if (is_private_[id] && make_local(b, accesses[id], scratch)) {
        locals.push_back(b);
      } else {
        strides_[id] = program_.buffers[id].strides;
        b.is_private = is_private_[id] && traits_.launches_follow_sizes;
        kernel_.buffers.push_back(b);
      }
    }
    kernel_.buffers.insert(kernel_.buffers.end(), locals.begin(), locals.end());
    for (size_t k = 0; k < kernel_.buffers.size(); ++k)
      number_[kernel_.buffers[k].source] = static_cast<LoopBufferId>(k);
  }

  // Scratch holds what one outer point needs: index components that are outer dimensions everywhere are dropped.
  bool make_local(KernelBuffer& b, const std::vector<Access>& accesses, int64_t& scratch) {
    const LoopBuffer& buffer = program_.buffers[b.source];
    SymSizes strides(buffer.sizes.size(), SymExpr(0));
    int64_t elements = 1;
    for (size_t k = buffer.sizes.size(); k-- > 0;) {
      bool is_outer = false;
      for (size_t d = 0; d < group_.outer && !is_outer; ++d)
        is_outer = std::all_of(accesses.begin(), accesses.end(),
                               [&](const Access& a) { return a.inst->index[k] == symbols_.dim(d); });
      if (is_outer) continue;
      if (!buffer.sizes[k].is_constant()) return false;
      strides[k] = elements;
      elements *= std::max<int64_t>(buffer.sizes[k].constant(), 1);
      if (elements > costs_.scratch_elements) return false;
    }
    const int64_t bytes = elements * row_of(value_dtype(buffer.dtype)).bytes;
    if (scratch + bytes > costs_.scratch_bytes) return false;
    scratch += bytes;
    b.is_local = true;
    b.local_elements = elements;
    b.dtype = value_dtype(buffer.dtype);  // no other kernel sees it, so it need not be rounded
    strides_[b.source] = std::move(strides);
    return true;
  }

  Nest linear(const Nest& nest) const {
    Nest out = nest;
    const DimBounds bounds = bounds_of(nest, symbols_);
    for (LoopInst& inst : out.body) {
      if (!is_address(inst)) continue;
      inst.index = {linear_index(inst.index, strides_.at(inst.buffer), bounds)};
      inst.buffer = number_.at(inst.buffer);
    }
    return out;
  }

  std::vector<int64_t> extents(const Nest& nest) const {
    std::vector<int64_t> out;
    for (size_t d = 0; d < nest.dim_count(); ++d) out.push_back(nest.extent(d).eval(hints_.symbols));
    return out;
  }

  // Threads share the columns, lanes lie along the sums.
  void shape_product() {
    kernel_.is_product = true;
    kernel_.nests.push_back({linear(group_.nests[0]), {1, 2}, 2});
    kernel_.outer = {group_.nests[0].ranges[0]};
    kernel_.extent = kernel_.outer[0];
    choose_grain();
    collect_symbols();
  }

  // One nest: every kept dimension except the one of the lanes is outer.
  void shape_single(KernelNest& n) {
    size_t range_count = n.nest.ranges.size();
    size_t lanes = choose_lanes(n.nest, 0);
    if (lanes < range_count && lanes + 1 != range_count) {
      move_range(n.nest, lanes, range_count - 1);
      n.nest = merge_dims(std::move(n.nest), program_.symbol_count, 0);  // neighbours now, as in rows of channels_last
      range_count = n.nest.ranges.size();
      lanes = range_count - 1;
    }
    if (lanes < range_count && move_tile_dim(n.nest, lanes)) kernel_.in_tiles = true;
    n.vector_dim = lanes;
    const bool range_lanes = lanes < range_count;
    const size_t outer = range_lanes ? range_count - 1 : range_count;
    SymSizes outer_sizes(n.nest.ranges.begin(), n.nest.ranges.begin() + static_cast<long>(outer));
    kernel_.is_flat = range_lanes && !kernel_.in_tiles && hints_.numel(outer_sizes) < costs_.flat_points;
    if (kernel_.is_flat) {
      kernel_.extent = n.nest.extent(lanes);
      for (size_t d = 0; d < outer; ++d) n.order.push_back(d);
    } else {
      kernel_.outer = std::move(outer_sizes);
    }
    append_lanes_and_reduced(n);
  }

  // Chooses among the dimensions from `first` on. In an ordered nest only the ranges count, because their points are
  // independent, and no lanes are better than lanes along a bad dimension.
  size_t choose_lanes(const Nest& nest, size_t first) const {
    const bool ordered = is_ordered(nest);
    std::vector<size_t> candidates;
    for (size_t d = first; d < (ordered ? nest.ranges.size() : nest.dim_count()); ++d) candidates.push_back(d);
    const std::vector<int64_t> sizes = extents(nest);
    const size_t lanes = choose_vector_dim(nest, program_.symbol_count, candidates, sizes);
    return ordered && lanes != SIZE_MAX && vector_score(nest, program_.symbol_count, lanes, sizes[lanes]) <= 0
               ? SIZE_MAX
               : lanes;
  }

  // Carried values stay in registers inside the lanes' loop. If nothing is carried, rows are read and written along the
  // lanes.
  void append_lanes_and_reduced(KernelNest& n) const {
    const bool range_lanes = n.vector_dim < n.nest.ranges.size();
    const bool has_rows =
        range_lanes && is_ordered(n.nest) && std::none_of(n.nest.body.begin(), n.nest.body.end(), is_carried);
    if (range_lanes && !has_rows) n.order.push_back(n.vector_dim);
    for (size_t d = n.nest.ranges.size(); d < n.nest.dim_count(); ++d)
      if (d != n.vector_dim) n.order.push_back(d);
    if (has_rows || (!range_lanes && n.vector_dim != SIZE_MAX)) n.order.push_back(n.vector_dim);
  }

  // If loads that are strided along the lanes are contiguous along some dimension, that dimension goes before the
  // lanes'.
  bool move_tile_dim(Nest& nest, size_t lanes) const {
    if (nest.is_reduction()) return false;
    size_t tile = SIZE_MAX;
    for (const LoopInst& inst : nest.body)
      for (size_t d = 0; inst.op == LoopOp::kLoad && d < lanes && tile == SIZE_MAX; ++d)
        if (is_tiled_load(inst, symbols_, d, lanes)) tile = d;
    const auto is_short = [&](size_t d) { return nest.extent(d).eval(hints_.symbols) < costs_.tile_extent; };
    if (tile == SIZE_MAX || is_short(tile) || is_short(lanes)) return false;
    move_range(nest, tile, lanes - 1);
    return true;
  }

  void move_range(Nest& nest, size_t from, size_t to) const {
    if (from == to) return;
    SymSizes ranges = nest.ranges;
    std::rotate(ranges.begin() + static_cast<long>(from), ranges.begin() + static_cast<long>(from) + 1,
                ranges.begin() + static_cast<long>(to) + 1);
    std::vector<SymExpr> dims;
    for (size_t d = 0; d < nest.ranges.size(); ++d)
      dims.push_back(symbols_.dim(d == from ? to : d > from && d <= to ? d - 1 : d));
    for (size_t d = nest.ranges.size(); d < nest.dim_count(); ++d) dims.push_back(symbols_.dim(d));
    nest = with_dims(nest, program_.symbol_count, std::move(ranges), nest.reduced, std::move(dims));
  }

  // Outer dimensions that step together in all nests become one.
  void merge_outer() {
    outer_ = group_.outer;
    for (size_t d = 0; d + 1 < outer_;) {
      const bool merges = std::all_of(kernel_.nests.begin(), kernel_.nests.end(),
                                      [&](const KernelNest& n) { return can_merge(n.nest, program_.symbol_count, d); });
      if (!merges) {
        ++d;
        continue;
      }
      for (KernelNest& n : kernel_.nests) n.nest = merge_two(n.nest, program_.symbol_count, d);
      --outer_;
    }
  }

  // Whether more accesses are contiguous along the last outer dimension than along the nests' own ones, and the scratch
  // is small enough to exist once per lane.
  bool outer_lanes_pay() const {
    constexpr int64_t kMostLanes = 16;  // of any target
    const size_t last = outer_ - 1;
    int along_outer = 0, along_inner = 0;
    for (const KernelNest& n : kernel_.nests) {
      const std::vector<int64_t> sizes = extents(n.nest);
      along_outer += vector_score(n.nest, program_.symbol_count, last, sizes[last]);
      if (n.vector_dim != SIZE_MAX)
        along_inner += vector_score(n.nest, program_.symbol_count, n.vector_dim, sizes[n.vector_dim]);
      for (const LoopInst& inst : n.nest.body)
        if (is_address(inst) && kernel_.buffers[inst.buffer].is_local && mentions_lanes(inst.index[0], last))
          return false;
    }
    int64_t scratch = 0;
    for (const KernelBuffer& b : kernel_.buffers) scratch += b.local_elements * row_of(b.dtype).bytes;
    return along_outer > along_inner && scratch * kMostLanes <= costs_.scratch_bytes;
  }

  bool mentions_lanes(const SymExpr& e, size_t dim) const {
    std::vector<graph::SymbolId> ids;
    e.collect_symbols(ids);
    return std::any_of(ids.begin(), ids.end(), [&](graph::SymbolId id) {
      return symbols_.is_value(id) || (symbols_.is_dim(id) && symbols_.dim_of(id) == dim);
    });
  }

  void take_outer_lanes() {
    kernel_.lanes_outer = true;
    for (KernelNest& n : kernel_.nests) {
      n.vector_dim = outer_ - 1;
      n.order.clear();
      for (size_t d = outer_; d < n.nest.dim_count(); ++d) n.order.push_back(d);
    }
  }

  // One of several nests: its own dimensions after the outer ones.
  void shape_inner(KernelNest& n) {
    n.vector_dim = choose_lanes(n.nest, outer_);
    for (size_t d = outer_; d < n.nest.ranges.size(); ++d)
      if (d != n.vector_dim) n.order.push_back(d);
    append_lanes_and_reduced(n);
  }

  static constexpr int64_t kOfAPoint = 8;  // the cost of reading and writing a point, in additions
  void choose_grain() {
    const int64_t worthwhile =
        tuning_.grain >= 0 ? costs_.grain_points << tuning_.grain : costs_.grain_points >> -tuning_.grain;
    int64_t work = 0;
    for (const KernelNest& n : kernel_.nests) {
      int64_t points = 1;
      for (size_t d = kernel_.is_flat ? 0 : kernel_.outer.size(); d < n.nest.dim_count(); ++d)
        if (!kernel_.is_flat || d != n.vector_dim)
          points *= std::max<int64_t>(n.nest.extent(d).eval(hints_.symbols), 1);
      int64_t cost = 0;
      for (const LoopInst& inst : n.nest.body) cost += cost_of(inst);
      work += points * (1 + cost / kOfAPoint);
    }
    const int64_t extent = kernel_.extent.eval(hints_.symbols);
    kernel_.grain = std::max<int64_t>(worthwhile / std::max<int64_t>(work, 1), 1);
    if (kernel_.is_flat || kernel_.in_tiles || kernel_.lanes_outer)
      kernel_.grain = (kernel_.grain + kFlatUnit - 1) / kFlatUnit * kFlatUnit;
    if (kernel_.is_product) kernel_.grain = std::max(kernel_.grain, costs_.product_columns);
    if (kernel_.extent.is_constant() && extent < 2 * kernel_.grain) kernel_.grain = kernel_.is_flat ? -1 : 0;
  }

  void collect_symbols() {
    std::set<graph::SymbolId> used;
    const auto add = [&](const SymExpr& e) {
      std::vector<graph::SymbolId> ids;
      e.collect_symbols(ids);
      for (graph::SymbolId id : ids)
        if (id < program_.symbol_count) used.insert(id);
    };
    for (const KernelNest& n : kernel_.nests) {
      for (size_t d = 0; d < n.nest.dim_count(); ++d) add(n.nest.extent(d));
      for (const LoopInst& inst : n.nest.body)
        for (const SymExpr& e : inst.index) add(e);
    }
    kernel_.symbols.assign(used.begin(), used.end());
    if (!traits_.launches_follow_sizes || used.empty()) return;
    kernel_.size_hints.assign(program_.symbol_count, 1);
    for (graph::SymbolId s : used)
      kernel_.size_hints[s] = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(hints_.symbols.at(s))));
  }

  const LoopProgram& program_;
  const Group& group_;
  const std::vector<bool>& is_private_;
  const SizeHints& hints_;
  const TargetTraits& traits_;
  const Costs& costs_;
  const KernelTuning tuning_;
  size_t outer_ = 0;  // outer dimensions of a kernel of several nests
  NestSymbols symbols_;
  Kernel kernel_;
  std::map<LoopBufferId, SymSizes> strides_;
  std::map<LoopBufferId, LoopBufferId> number_;
};

}  // namespace

Kernel make_kernel(const LoopProgram& program, const Group& group, const std::vector<bool>& is_private,
                   const SizeHints& hints, const TargetInfo& target, KernelTuning tuning) {
  Kernel kernel = KernelMaker(program, group, is_private, hints, target, tuning).run();
  if (config().strict) {
    const Result<void> valid = verify(kernel, program, hints.symbols);
    FJ_ASSERT(valid.ok(), "kernel: " + valid.error().message);
  }
  return kernel;
}

namespace {
const char* points_at_once(const Kernel& kernel) {
  if (kernel.is_product) return " product";
  if (kernel.is_attention) return " attention";
  return kernel.in_tiles ? " tiles" : kernel.lanes_outer ? " lanes" : "";
}

// A program that has the kernel's buffers, each of one dimension.
LoopProgram frame_of(const Kernel& kernel) {
  LoopProgram frame;
  frame.symbol_count = kernel.symbol_count;
  for (size_t k = 0; k < kernel.buffers.size(); ++k)
    frame.buffers.push_back({"b" + std::to_string(k),
                             BufferRole::kTemp,
                             kernel.buffers[k].dtype,
                             {SymExpr(kernel.buffers[k].local_elements)},
                             {SymExpr(1)},
                             UINT32_MAX,
                             false});
  return frame;
}

// From the first element to after the last.
SymExpr span_of(const LoopBuffer& buffer) {
  SymExpr last = 0;
  for (size_t k = 0; k < buffer.sizes.size(); ++k) last = last + (buffer.sizes[k] - SymExpr(1)) * buffer.strides[k];
  return last + SymExpr(1);
}

}  // namespace

Result<void> verify(const Kernel& kernel, const LoopProgram& program, std::span<const int64_t> hints) {
  LoopProgram frame = frame_of(kernel);
  for (size_t k = 0; k < kernel.buffers.size(); ++k)
    if (!kernel.buffers[k].is_local) frame.buffers[k].sizes = {span_of(program.buffers[kernel.buffers[k].source])};
  for (const KernelNest& n : kernel.nests) FJ_TRY_VOID(verify(frame, n.nest, hints));
  return {};
}

std::string print(const Kernel& kernel) {
  const LoopProgram frame = frame_of(kernel);
  std::string out = "kernel (";
  for (size_t k = 0; k < kernel.buffers.size(); ++k) {
    const KernelBuffer& b = kernel.buffers[k];
    out += (k ? ", " : "") +
           std::string(b.is_local     ? "local "
                       : b.is_private ? "private "
                       : b.is_settled ? "settled "
                       : b.is_written ? "out "
                                      : "in ") +
           frame.buffers[k].name + ": " + row_of(b.dtype).text;
    if (b.is_local) out += "[" + std::to_string(b.local_elements) + "]";
  }
  out += ") symbols";
  for (graph::SymbolId s : kernel.symbols) {
    out += " s" + std::to_string(s);
    if (!kernel.size_hints.empty()) out += " about " + std::to_string(kernel.size_hints[s]);
  }
  if (kernel.is_whole()) out += " whole";
  out +=
      kernel.is_flat ? " flat {\n" : " outer " + std::to_string(kernel.outer.size()) + points_at_once(kernel) + " {\n";
  if (kernel.unroll != 0) out += "  unroll " + std::to_string(kernel.unroll) + "\n";
  for (const KernelNest& n : kernel.nests) {
    Nest unnamed = n.nest;
    unnamed.name = "n";
    out += print(frame, unnamed) + "    loops";
    for (size_t d : n.order) out += " " + std::to_string(d) + (d == n.vector_dim ? "v" : "");
    out += "\n";
  }
  return out + "}\n";
}

}  // namespace framejit::inductor
