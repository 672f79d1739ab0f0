#include "inductor/buffer_placement.h"

#include <algorithm>

#include "inductor/lowering/lower.h"

namespace framejit::inductor {
namespace {

struct ScratchRow {
  std::string_view op;
  OutForm out;
  int copied;
};
constexpr ScratchRow kRows[] = {
#define SCRATCH_OP(op, out, arguments, copied) {op, {out, arguments}, copied},
#include "inductor/scratch_ops.def"
#undef SCRATCH_OP
};

struct OverwritingRow {
  std::string_view op;
  OverForm over;
};
constexpr OverwritingRow kOverwriting[] = {
#define OVERWRITING_OP(op, over, operand) {op, {over, operand}},
#include "inductor/overwriting_ops.def"
#undef OVERWRITING_OP
};

const ScratchRow* find_row(const graph::Node& node) {
  const auto row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const ScratchRow& r) { return r.op == node.op->name; });
  return row == std::end(kRows) ? nullptr : row;
}

// The allocator has memory for smaller tensors at hand. Tensors of unknown size share the arena badly.
bool is_large(const LoopBuffer& buffer, const Costs& costs) {
  int64_t bytes = row_of(buffer.dtype).bytes;
  for (const SymExpr& size : buffer.sizes) {
    if (!size.is_constant()) return false;
    bytes *= size.constant();
  }
  return bytes >= costs.arena_tensor;
}

}  // namespace

std::optional<OutForm> out_form(const graph::Node& node) {
  const ScratchRow* row = find_row(node);
  if (row == nullptr || row->out.op.empty() || node.args.size() > row->out.arguments) return std::nullopt;
  return row->out;
}

std::optional<OverForm> over_form(const graph::Node& node) {
  for (const OverwritingRow& row : kOverwriting)
    if (row.op == node.op->name) return row.over;
  return std::nullopt;
}

bool makes_its_memory(const graph::Node& node) { return find_row(node) != nullptr; }

SymExpr workspace_bytes(const graph::Graph& graph, const graph::Node& node) {
  const ScratchRow* row = find_row(node);
  if (row == nullptr || row->copied < 0) return 0;
  const graph::TensorMeta& meta = graph.meta(*node.args[static_cast<size_t>(row->copied)].get<graph::ValueId>());
  SymExpr bytes = row_of(meta.dtype).bytes;
  for (const SymExpr& size : meta.sizes) bytes = bytes * size;
  return bytes;
}

SymExpr bytes_of(const LoopBuffer& buffer) {
  SymExpr span = 1;
  for (size_t k = 0; k < buffer.sizes.size(); ++k) {
    if (buffer.sizes[k] == SymExpr(0)) return 0;
    span = span + (buffer.sizes[k] - SymExpr(1)) * buffer.strides[k];
  }
  return span * SymExpr(row_of(buffer.dtype).bytes);
}

std::vector<bool> arena_buffers(const graph::Graph& graph, const Schedule& schedule, const TargetInfo& target) {
  const std::vector<LoopBuffer>& buffers = schedule.program.buffers;
  const auto may_hold = [&](LoopBufferId b) {
    return target.traits.library_memory_is_known && is_large(buffers[b], target.costs);
  };
  std::vector<bool> fits(buffers.size());
  for (size_t b = 0; b < buffers.size(); ++b) fits[b] = buffers[b].role == BufferRole::kTemp && !buffers[b].is_output;
  for (const auto& step : schedule.steps) {
    const auto* call = std::get_if<ExternCall>(&step);
    if (call == nullptr) continue;
    const graph::Node& node = graph.nodes[call->node];
    const ScratchRow* row = find_row(node);
    for (LoopBufferId b : call->reads) fits[b] = fits[b] && row != nullptr && may_hold(b);
    for (LoopBufferId b : call->writes) fits[b] = fits[b] && out_form(node) && may_hold(b);
  }
  return fits;
}

bool is_written_output(const graph::Node& node, const LoopBuffer& result, const TargetInfo& target) {
  return target.traits.library_memory_is_known && out_form(node) && result.role == BufferRole::kTemp &&
         result.is_output && is_large(result, target.costs);
}

}  // namespace framejit::inductor
