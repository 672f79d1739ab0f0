// inductor/schedule/split.cpp — one long reduction becomes two short ones.
//
// A reduced dimension of extent n is cut into `parts` pieces. The first nest keeps the piece as a dimension and stores
// a partial result for each. The second reduces the partial results and does what came after the reduction. If n is a
// symbol or not divisible, a third nest in between reduces the remaining n mod parts elements. It pays if the kept
// dimensions alone do not occupy the threads: for whole sums, and for columns, where each thread then takes whole rows.
#include <algorithm>

#include "graph/tensor_meta.h"
#include "inductor/schedule/body_copy.h"
#include "inductor/schedule/fusion.h"

namespace framejit::inductor {
namespace {

// Positions are not split, and ordered instructions are not cut.
bool is_whole(const LoopInst& inst) {
  return is_ordered(inst) || (inst.op == LoopOp::kReduce && is_position(inst.reduce));
}

bool mentions_reduced(const Nest& nest, const SymExpr& e, const NestSymbols& symbols) {
  for (size_t d = nest.ranges.size(); d < nest.dim_count(); ++d)
    if (mentions(e, static_cast<graph::SymbolId>(symbols.sizes + d))) return true;
  return false;
}

// Every large operand has a kept dimension innermost.
bool is_over_columns(const Nest& nest, const NestSymbols& symbols) {
  bool found = false;
  for (const LoopInst& inst : nest.body) {
    if (inst.op != LoopOp::kLoad || inst.index.empty()) continue;
    const bool reads_all = std::any_of(inst.index.begin(), inst.index.end(),
                                       [&](const SymExpr& e) { return mentions_reduced(nest, e, symbols); });
    if (!reads_all) continue;
    if (mentions_reduced(nest, inst.index.back(), symbols)) return false;
    found = true;
  }
  return found;
}

// Whether something that the nest reads is contiguous along a dimension.
bool is_contiguous_along(const LoopProgram& program, const Nest& nest, size_t dim) {
  const graph::SymbolId id = NestSymbols(program.symbol_count).id_of_dim(dim);
  for (const LoopInst& inst : nest.body) {
    if (inst.op != LoopOp::kLoad) continue;
    const SymSizes& strides = program.buffers[inst.buffer].strides;
    for (size_t k = 0; k < inst.index.size(); ++k)
      if (strides[k] == SymExpr(1) && mentions(inst.index[k], id)) return true;
  }
  return false;
}

struct Cut {
  size_t dim = 0;  // of the nest
  int64_t parts = 0;
  bool has_rest = false;
};

constexpr int64_t kFewestParts = 4;  // fewer are not worth a second nest

// The largest number of parts up to `most` that divides n; 0 if there is none.
int64_t parts_of(int64_t n, int64_t most) {
  for (int64_t parts = std::min(n, most); parts >= kFewestParts; --parts)
    if (n % parts == 0) return parts;
  return 0;
}

std::optional<Cut> find_cut(const LoopProgram& program, const Nest& nest, const SizeHints& hints, const Costs& costs) {
  if (!nest.is_reduction() || nest.dim_count() + 1 > kMaxDims ||
      std::any_of(nest.body.begin(), nest.body.end(), is_whole))
    return std::nullopt;
  const int64_t results = hints.numel(nest.ranges), length = hints.numel(nest.reduced);
  const bool is_lonely = results <= costs.split_results && length >= costs.split_length;
  const bool is_columns = results > costs.split_few_columns && results * length >= costs.split_columns &&
                          length >= kFewestParts * costs.split_rows &&
                          is_over_columns(nest, NestSymbols(program.symbol_count));
  if (!is_lonely && !is_columns) return std::nullopt;
  // The outermost dimension that gives enough parts, otherwise the one that gives most. Parts of equal size are
  // preferred.
  Cut best;
  for (size_t d = nest.ranges.size(); d < nest.dim_count(); ++d) {
    const int64_t extent = nest.extent(d).eval(hints.symbols);
    const int64_t least = !is_lonely                              ? costs.split_rows
                          : is_contiguous_along(program, nest, d) ? costs.split_run
                                                                  : costs.split_scattered;
    const int64_t most = std::min(costs.most_parts, extent / least);
    const int64_t even = nest.extent(d).is_constant() ? parts_of(extent, most) : 0;
    const auto counted = [&](int64_t parts) { return std::min(parts, costs.enough_parts); };
    const Cut cut = even >= counted(most) ? Cut{d, even} : Cut{d, most, true};
    if (cut.parts >= kFewestParts && counted(cut.parts) > counted(best.parts)) best = cut;
  }
  return best.parts != 0 ? std::optional(best) : std::nullopt;
}

class Splitter {
 public:
  Splitter(LoopProgram& program, const Nest& nest, Cut cut)
      : program_(program), nest_(nest), cut_(cut), symbols_(program.symbol_count) {
    inner_ = inner_insts(nest, symbols_);
    after_ = after_reduction(nest, symbols_);
    partial_.assign(nest.body.size(), 0);
    rest_.assign(nest.body.size(), 0);
    for (size_t i = 0; i < nest.body.size(); ++i) {
      if (nest.body[i].op != LoopOp::kReduce) continue;
      partial_[i] = add_buffer(nest.body[i].dtype, with_parts(nest.ranges));
      if (cut.has_rest) rest_[i] = add_buffer(nest.body[i].dtype, nest.ranges);
    }
  }

  // Stores at every reduced point stay here; those of results go to the second.
  Nest first() const {
    SymSizes reduced = nest_.reduced;
    reduced[cut_.dim - nest_.ranges.size()] = piece();
    NestBuilder b(program_.symbol_count, nest_.name + "_parts", with_parts(nest_.ranges), std::move(reduced));
    std::vector<SymExpr> dims;
    for (size_t d = 0; d < nest_.dim_count(); ++d) {
      dims.push_back(b.dim(d + 1));
      if (d == cut_.dim) dims.back() = b.dim(0) * piece() + dims.back();
    }
    return partial_results(b, std::move(dims), partial_);
  }

  // The elements that the parts leave over, as one more piece.
  Nest rest() const {
    const SymExpr begin = piece() * SymExpr(cut_.parts);
    SymSizes reduced = nest_.reduced;
    reduced[cut_.dim - nest_.ranges.size()] = SymExpr::mod(nest_.extent(cut_.dim), cut_.parts);
    NestBuilder b(program_.symbol_count, nest_.name + "_rest", nest_.ranges, std::move(reduced));
    std::vector<SymExpr> dims;
    for (size_t d = 0; d < nest_.dim_count(); ++d) dims.push_back(d == cut_.dim ? begin + b.dim(d) : b.dim(d));
    return partial_results(b, std::move(dims), rest_);
  }

  Nest second() const {
    NestBuilder b(program_.symbol_count, nest_.name, nest_.ranges, {SymExpr(cut_.parts)});
    std::vector<SymExpr> dims = b.range_dims();
    dims.resize(nest_.dim_count(), SymExpr(0));  // never used: inner instructions are left out
    std::vector<SymExpr> at = b.range_dims();
    at.insert(at.begin(), b.dim(nest_.ranges.size()));
    BodyCopy copy(b, nest_, std::move(dims));
    copy.leave_out = [&](InstId i) { return inner_[i]; };
    copy.replace_reduction = [&](InstId i) {
      const LoopInst& inst = nest_.body[i];
      const InstId joined = b.reduce(inst.reduce, b.load(partial_[i], inst.dtype, at));
      return cut_.has_rest ? b.scalar(joining(inst.reduce), {joined, b.load(rest_[i], inst.dtype, b.range_dims())})
                           : joined;
    };
    copy.run();
    return b.build();
  }

 private:
  SymExpr piece() const { return SymExpr::floor_div(nest_.extent(cut_.dim), cut_.parts); }

  Nest partial_results(NestBuilder& b, std::vector<SymExpr> dims, const std::vector<LoopBufferId>& into) const {
    BodyCopy copy(b, nest_, std::move(dims));
    copy.leave_out = [&](InstId i) {
      const LoopInst& inst = nest_.body[i];
      return (after_[i] && inst.op != LoopOp::kReduce) || (inst.op == LoopOp::kStore && !inner_[i]);
    };
    copy.run();
    for (size_t i = 0; i < nest_.body.size(); ++i)
      if (nest_.body[i].op == LoopOp::kReduce) b.store(into[i], b.range_dims(), copy.map()[i]);
    return b.build();
  }

  // The parts come first: neighbouring results are contiguous, and no group takes both nests only because of their kept
  // points.
  SymSizes with_parts(SymSizes sizes) const {
    sizes.insert(sizes.begin(), SymExpr(cut_.parts));
    return sizes;
  }

  LoopBufferId add_buffer(DType dtype, SymSizes sizes) const {
    SymSizes strides = graph::contiguous_strides(sizes);
    program_.buffers.push_back({"p" + std::to_string(program_.buffers.size()), BufferRole::kTemp, dtype,
                                std::move(sizes), std::move(strides), UINT32_MAX, false});
    return static_cast<LoopBufferId>(program_.buffers.size() - 1);
  }

  LoopProgram& program_;
  const Nest& nest_;
  const Cut cut_;
  NestSymbols symbols_;
  std::vector<bool> inner_, after_;
  std::vector<LoopBufferId> partial_, rest_;  // per reduction of the nest
};

}  // namespace

LoopProgram split_reductions(LoopProgram program, const SizeHints& hints, const Costs& costs) {
  std::vector<std::variant<Nest, ExternCall>> items = std::move(program.items);
  program.items.clear();
  for (auto& item : items) {
    const Nest* nest = std::get_if<Nest>(&item);
    const auto cut = nest == nullptr ? std::nullopt : find_cut(program, *nest, hints, costs);
    if (!cut) {
      program.items.push_back(std::move(item));
      continue;
    }
    const Splitter splitter(program, *nest, *cut);
    program.items.emplace_back(splitter.first());
    if (cut->has_rest) program.items.emplace_back(splitter.rest());
    program.items.emplace_back(splitter.second());
  }
  return program;
}

}  // namespace framejit::inductor
