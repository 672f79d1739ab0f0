// inductor/lowering/lower.h — a functional graph becomes a loop program: one nest per op, views as index maps, the rest
// extern.
//
// In: a functional graph.  Out: a LoopProgram whose buffers have the layouts in the graph's metas, so that an output is
// laid out as in eager. An op without a lowering, or whose lowering does not cover the arguments, is an extern call;
// nothing is refused.
#pragma once

#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "inductor/loop/nest_builder.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

// How to reach a graph value: in its own buffer, or as a view of another value.
struct ValueForm {
  enum Kind : uint8_t { kAbsent, kBuffer, kView } kind = kAbsent;
  LoopBufferId buffer = 0;
  graph::ValueId base{};   // kView
  uint32_t node = 0;       // kView: the view op
  uint32_t result = 0;     // kView: which result of it
};

// The buffer that a value, or what it is a view of, lies in.
LoopBufferId root_buffer(const std::vector<ValueForm>& forms, graph::ValueId v);

struct LoweredGraph {
  LoopProgram program;
  std::vector<ValueForm> forms;  // per graph value
};

LoweredGraph lower(const graph::Graph& graph, const TargetInfo& target);
// The one device on which kernels of the graph run: that of its first tensor that is not on the host. Ops on other
// devices are extern calls.
graph::Device kernel_device(const graph::Graph& graph);
// Whether a size is 1, as a constant or by a guarded fact: such a dimension is broadcast.
bool is_size_one(const graph::Graph& graph, const SymExpr& size);

// One element of a graph value; views on the way become index arithmetic. With a mask: see LowerContext::load_masked.
InstId load_value(const graph::Graph& graph, const std::vector<ValueForm>& forms, const LoopProgram& program,
                  NestBuilder& builder, graph::ValueId v, std::vector<SymExpr> index, InstId mask = kNoInst,
                  InstId other = kNoInst);

// A nest that goes along one dimension of `sizes` in order, and through the others in any order; `index` is the current
// element.
struct Walk {
  NestBuilder builder;
  std::vector<SymExpr> index;
};

class LowerContext;
// False: the arguments are not covered, and nothing was added.
using LowerFn = bool (*)(LowerContext&);

// What a lowering works with. The arguments are those of the node, in schema order; trailing ones may be missing.
class LowerContext {
 public:
  LowerContext(const graph::Graph& graph, const TargetInfo& target)
      : graph_(graph), target_(target), device_(kernel_device(graph)) {}

  const graph::Graph& graph() const { return graph_; }
  const TargetInfo& target() const { return target_; }
  const graph::TensorMeta& meta(graph::ValueId v) const { return graph_.meta(v); }
  const graph::Node& node() const { return *node_; }
  const graph::TensorMeta& result_meta(size_t k = 0) const { return meta(node_->results[k]); }

  bool given(size_t i) const;
  const graph::Arg* arg(size_t i) const { return i < node_->args.size() ? &node_->args[i] : nullptr; }
  std::optional<graph::ValueId> tensor(size_t i) const;
  std::optional<SymExpr> size(size_t i) const;
  std::optional<int64_t> integer(size_t i) const;
  // Counted from the front; none if there is no such dimension: torch has the error text.
  std::optional<int64_t> dimension(size_t i, size_t ndim) const;
  std::optional<double> number(size_t i) const;       // int, float or bool constants
  bool flag(size_t i, bool otherwise) const;
  std::optional<SymSizes> sizes(size_t i) const;      // a list, or one int
  std::optional<std::vector<int64_t>> integers(size_t i) const;
  std::optional<std::string> text(size_t i) const;

  // A nest over the sizes of a result; store with add_nest.
  NestBuilder nest(SymSizes ranges, SymSizes reduced = {});
  NestBuilder result_nest(size_t k = 0) { return nest(result_meta(k).sizes); }
  Walk walk(SymSizes sizes, int64_t dim);
  LoopBufferId result_buffer(size_t k = 0);
  LoopBufferId temp(DType dtype, SymSizes sizes);
  DType buffer_dtype(LoopBufferId b) const { return program_.buffers[b].dtype; }
  // Stores `value`, cast to the buffer's dtype, at `index` and appends the nest.
  void add_nest(NestBuilder builder, LoopBufferId buffer, std::vector<SymExpr> index, InstId value);
  void add_nest(NestBuilder builder);
  void store_result(NestBuilder builder, InstId value, size_t k = 0);

  // One element of a graph value; views on the way become index arithmetic.
  InstId load(NestBuilder& builder, graph::ValueId v, std::vector<SymExpr> index);
  // The same where `mask` holds; elsewhere the index need not be in range, and the value is `other`.
  InstId load_masked(NestBuilder& builder, graph::ValueId v, std::vector<SymExpr> index, InstId mask, InstId other);
  // The same where the value is broadcast to a result of index.size() dimensions.
  InstId load_broadcast(NestBuilder& builder, graph::ValueId v, const std::vector<SymExpr>& index);
  InstId load_temp(NestBuilder& builder, LoopBufferId b, std::vector<SymExpr> index);
  LoopBufferId root_buffer(graph::ValueId v);

  LoweredGraph run();

 private:
  void add_inputs();
  void lower_node(uint32_t index);
  void lower_extern(uint32_t index);
  bool try_row(LowerFn row);
  LowerFn row_of_node() const;
  bool is_supported(const graph::Node& node) const;
  bool is_copied_over(const graph::Node& node) const;
  LoopBufferId add_buffer(BufferRole role, graph::ValueId v, const std::string& name);

  const graph::Graph& graph_;
  const TargetInfo& target_;
  const graph::Device device_;
  LoopProgram program_;
  std::vector<ValueForm> forms_;
  const graph::Node* node_ = nullptr;
  uint32_t next_nest_ = 0, next_temp_ = 0;
};

void add_lowering(std::string_view op, LowerFn function);
LowerFn find_lowering(std::string_view op);
// The op that a row names. "framejit::x" is x with a 0-dim tensor in place of a number.
std::string_view row_name(const graph::Node& node);
std::vector<std::string> lowered_ops();  // sorted; for tests

void register_pointwise_lowerings();
void register_reduction_lowerings();
void register_index_lowerings();
void register_loss_lowerings();
void register_copy_lowerings();
void register_factory_lowerings();
void register_resample_lowerings();
void register_pool_lowerings();
void register_scan_lowerings();
void register_scatter_lowerings();

// True for view ops that are index maps; fills the index into the base of the element at `index` of result `result`.
bool is_mapped_view(std::string_view op);
std::optional<std::vector<SymExpr>> map_view(const graph::Graph& graph, const graph::Node& node, uint32_t result,
                                             const std::vector<SymExpr>& index, const DimBounds& bounds);
int64_t wrap_dim(int64_t dim, size_t ndim);
// Whether a two-dimensional pooling is a kernel, as far as its window and the use of its results decide.
bool is_pool_kernel(const graph::Graph& graph, const TargetInfo& target, const graph::Node& node);

}  // namespace framejit::inductor
