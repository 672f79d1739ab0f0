// inductor/loop/bounds_verify.cpp — evaluates indices at the corners of a nest. Corners are points of the nest, so an
// index outside its buffer is never a false alarm. If an index is linear in the dimensions, its corners find every one.
#include "inductor/loop/bounds_verify.h"

#include <algorithm>

#include "graph/int64_range.h"

namespace framejit::inductor {
namespace {

constexpr int kMostEvaluations = 200;  // of a nest

// A symbol of an index with its largest value.
struct Place {
  graph::SymbolId id;
  int64_t last;
};

class BoundsVerifier {
 public:
  BoundsVerifier(const LoopProgram& program, const Nest& nest, std::span<const int64_t> hints)
      : program_(program), nest_(nest), symbols_(program.symbol_count), values_(hints.begin(), hints.end()) {
    values_.resize(program.symbol_count + kMaxDims + nest.body.size());
  }

  Result<void> run() {
    if (has_none(nest_.ranges)) return {};
    const std::vector<bool> never =
        has_none(nest_.reduced) ? inner_insts(nest_, symbols_) : std::vector<bool>(nest_.body.size(), false);
    for (size_t i = 0; i < nest_.body.size(); ++i) {
      const LoopInst& inst = nest_.body[i];
      const bool is_access = inst.op == LoopOp::kStore || (inst.op == LoopOp::kLoad && !inst.is_masked());
      for (size_t k = 0; is_access && !never[i] && k < inst.index.size(); ++k) FJ_TRY_VOID(verify_index(i, k));
    }
    return {};
  }

 private:
  bool has_none(const SymSizes& sizes) const {
    return std::any_of(sizes.begin(), sizes.end(), [&](const SymExpr& size) { return size.eval(values_) <= 0; });
  }

  // The dimensions and checked values that the index depends on; nothing if it depends on other data.
  std::optional<std::vector<Place>> places_of(const SymExpr& index) const {
    std::vector<graph::SymbolId> ids;
    index.collect_symbols(ids);
    std::vector<Place> places;
    for (const graph::SymbolId id : ids) {
      if (id < program_.symbol_count) continue;
      const SymExpr* extent = nullptr;
      if (symbols_.is_dim(id)) extent = &nest_.extent(symbols_.dim_of(id));
      else if (nest_.body[symbols_.inst_of(id)].op == LoopOp::kCheck)
        extent = nest_.body[symbols_.inst_of(id)].index.data();
      if (extent == nullptr || !is_of_sizes(*extent)) return std::nullopt;
      const int64_t last = extent->eval(values_) - 1;
      if (last < 0) return std::nullopt;  // the check always fails
      places.push_back({id, last});
    }
    return places;
  }

  bool is_of_sizes(const SymExpr& e) const {
    std::vector<graph::SymbolId> ids;
    e.collect_symbols(ids);
    return ids.empty() || ids.back() < program_.symbol_count;
  }

  bool is_whole_dimension(const SymExpr& index, const SymExpr& size) const {
    graph::SymbolId id = 0;
    return index.is_symbol(&id) && symbols_.is_dim(id) && nest_.extent(symbols_.dim_of(id)) == size;
  }

  Result<void> verify_index(size_t i, size_t k) {
    const SymExpr &index = nest_.body[i].index[k], &size = program_.buffers[nest_.body[i].buffer].sizes[k];
    if (is_whole_dimension(index, size)) return {};
    const auto places = places_of(index);
    if (!places) return {};
    const int64_t below = size.eval(values_);
    const size_t corners = size_t{1} << std::min<size_t>(places->size(), kMaxDims);
    for (size_t c = 0; c < corners && evaluations_ < kMostEvaluations; ++c, ++evaluations_) {
      const size_t chosen = c % 2 == 0 ? c / 2 : ~(c / 2);  // the first and the last point come first
      for (size_t p = 0; p < places->size(); ++p)
        values_[(*places)[p].id] = (chosen >> p & 1) != 0 ? (*places)[p].last : 0;
      const std::optional<int64_t> at = graph::value_of(index, values_);
      if (!at || *at < 0 || *at >= below) return outside(i, k, at, below);
    }
    return {};
  }

  Error outside(size_t i, size_t k, std::optional<int64_t> at, int64_t size) const {
    return {Reason::not_verified, "nest " + nest_.name + ": index " + std::to_string(k) + " of \"" +
                                      print(program_, nest_, static_cast<InstId>(i)) + "\" is " +
                                      (at ? std::to_string(*at) : "no int64") + ", and the buffer has " +
                                      std::to_string(size) + " there"};
  }

  const LoopProgram& program_;
  const Nest& nest_;
  const NestSymbols symbols_;
  std::vector<int64_t> values_;  // by symbol
  int evaluations_ = 0;
};

}  // namespace

Result<void> verify_bounds(const LoopProgram& program, const Nest& nest, std::span<const int64_t> hints) {
  return hints.size() < program.symbol_count ? Result<void>() : BoundsVerifier(program, nest, hints).run();
}

}  // namespace framejit::inductor
