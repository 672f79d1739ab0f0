// inductor/gpu/hip_tiles.cpp — one nest without a reduction in which some loads are contiguous along another dimension
// than the stores.
//
// A block has a square of points. Neighbouring threads first read along the square's height, where these loads are
// contiguous, into shared memory. Then they compute along its width. A row in shared memory is one element longer than
// the square, so neither direction has bank conflicts.
#include "inductor/gpu/hip_writer.h"
#include "inductor/kernel/loop_shape.h"
#include "inductor/loop/number_text.h"

namespace framejit::inductor {
namespace {

class Tiles {
 public:
  Tiles(const Kernel& kernel, const Costs& costs)
      : kernel_(kernel),
        n_(kernel.nests[0]),
        text_(kernel, n_.nest),
        w_(kernel, costs),
        dims_(outer_dims(kernel)),
        edge_(costs.column_lanes),
        threads_(costs.block_threads) {
    for (size_t d : kept_dims(n_)) dims_.push_back(d);
  }

  std::optional<HipProgram> run() {
    if (dims_.size() < 2) return std::nullopt;
    width_ = dims_.back();
    height_ = dims_[dims_.size() - 2];
    find_loads();
    if (loads_.empty() || loads_.size() > kMostTiles) return std::nullopt;
    const std::vector<size_t> others(dims_.begin(), dims_.end() - 2);
    const SymExpr across = squares(width_), down = squares(height_);
    const std::string many_across = text_.factor(across), many_down = text_.factor(down);
    for (InstId i : loads_)
      w_.line("__shared__ " + memory_type_text(kernel_.buffers[n_.nest.body[i].buffer].dtype) + " " + tile(i) + "[" +
              number(edge_ * (edge_ + 1)) + "];");
    w_.line("const index block = (index)blockIdx.x, x = (index)threadIdx.x % " + number(edge_) +
            ", y = (index)threadIdx.x / " + number(edge_) + ";");
    w_.line("const index right = block % " + many_across + " * " + number(edge_) + ", below = block / " + many_across +
            " % " + many_down + " * " + number(edge_) + ";");
    w_.take_apart(text_, n_.nest, others, "(block / " + many_across + " / " + many_down + ")");
    open_square("x", "y + k");
    for (InstId i : loads_)
      w_.line(tile(i) + "[(y + k) * " + number(edge_ + 1) + " + x] = " + text_.access(n_.nest.body[i]) + ";");
    close_square();
    w_.line("__syncthreads();");
    open_square("y + k", "x");
    for (InstId i : loads_) text_.stand_in(i, tile(i) + "[x * " + number(edge_ + 1) + " + y + k]");
    w_.part(text_, n_.nest, Part::kBefore, "");
    close_square();
    HipProgram program;
    program.extent = count(n_.nest, others) * down * across;
    program.threads = threads_;
    program.text = w_.text();
    return program;
  }

 private:
  static constexpr size_t kMostTiles = 4;  // all of them fit into any GPU's shared memory
  static std::string tile(InstId i) { return "tile" + std::to_string(i); }
  SymExpr squares(size_t dim) const {
    return SymExpr::floor_div(n_.nest.extent(dim) + SymExpr(edge_ - 1), SymExpr(edge_));
  }

  void find_loads() {
    const NestSymbols symbols(kernel_.symbol_count);
    for (InstId i = 0; i < n_.nest.body.size(); ++i)
      if (is_tiled_load(n_.nest.body[i], symbols, height_, width_) &&
          !kernel_.buffers[n_.nest.body[i].buffer].is_written)
        loads_.push_back(i);
  }

  void open_square(const std::string& down, const std::string& right) {
    w_.line("#pragma unroll");
    w_.open("for (int k = 0; k < " + number(edge_) + "; k += " + number(threads_ / edge_) + ")");
    const std::string i = text_.dim(height_), j = text_.dim(width_);
    w_.line("const index " + i + " = below + " + down + ", " + j + " = right + " + right + ";");
    w_.open("if (" + i + " < " + text_.expr(n_.nest.extent(height_)) + " && " + j + " < " +
            text_.expr(n_.nest.extent(width_)) + ")");
  }
  void close_square() {
    w_.close();
    w_.close();
  }

  const Kernel& kernel_;
  const KernelNest& n_;
  NestText text_;
  HipWriter w_;
  std::vector<size_t> dims_;
  const int64_t edge_, threads_;
  size_t width_ = 0, height_ = 0;
  std::vector<InstId> loads_;
};

}  // namespace

std::optional<HipProgram> emit_tiles(const Kernel& kernel, const Costs& costs) { return Tiles(kernel, costs).run(); }

}  // namespace framejit::inductor
