// inductor/cpu/plan/nest_plan_text.cpp — a plan in words, one line per decision.
//
// Dimensions and instructions have the names of the kernel's text. Lines about the usual case are left out.
#include "inductor/cpu/plan/nest_plan.h"
#include "inductor/kernel/loop_shape.h"
#include "inductor/loop/number_text.h"

namespace framejit::inductor {
namespace {

const char* text_of(Access access) {
  switch (access) {
    case Access::kNone: break;
    case Access::kOne: return "one element";
    case Access::kContiguous: return "lanes side by side";
    case Access::kOfLane: return "scratch per lane";
    case Access::kScattered: return "an address per lane";
    case Access::kTile: return "transposed from a tile";
  }
  return "";
}

const char* text_of(MaskKind mask) {
  switch (mask) {
    case MaskKind::kNone: break;
    case MaskKind::kShared: return ", where one condition holds";
    case MaskKind::kBorder: return ", on its side of a border";
    case MaskKind::kLanes: return ", under a mask";
  }
  return "";
}

const char* text_of(Bf16Rounding bf16) {
  return bf16 == Bf16Rounding::kExact      ? "nothing to round"
         : bf16 == Bf16Rounding::kShortNan ? "rounded as a number"
                                           : "rounded, NaN apart";
}

std::string blocks_text(const SumBlocks& blocks) {
  if (blocks.depth == 0) return "";
  return ", sums in blocks of " + number(blocks.steps) + " turns" +
         (blocks.depth == 2 ? ", each " + number(kFanOut) + " into a middle total, compensated" : "");
}

class NestText {
 public:
  NestText(const KernelPlan& plan, const Kernel& kernel, size_t k)
      : whole_(plan), plan_(plan.nests[k]), kernel_(kernel), nest_(kernel.nests[k].nest) {}

  std::string run() {
    for (const LoopPlan& loop : plan_.loops) loop_line(loop);
    if (plan_.has_outer_lanes) line("lanes along " + dim(plan_.lanes.dim) + ": outer points");
    for (size_t level = 0; level <= plan_.loops.size(); ++level) level_line(level);
    for (size_t i = 0; i < nest_.body.size(); ++i) inst_line(i);
    for (const RowAhead& row : plan_.rows_ahead)
      line("next row: %" + number(row.load) + " of the first nest, " + row.elements.text() + " elements ahead");
    return std::move(text_);
  }

 private:
  std::string dim(size_t d) const {
    return d < nest_.ranges.size() ? "i" + number(static_cast<int64_t>(d))
                                   : "r" + number(static_cast<int64_t>(d - nest_.ranges.size()));
  }
  void line(const std::string& what) { text_ += "  " + what + "\n"; }

  void loop_line(const LoopPlan& loop) {
    const bool is_tile = kernel_.in_tiles && &loop == &plan_.loops.back();
    if (loop.dim == plan_.lanes.dim) return lanes_lines(loop);
    line("loop " + dim(loop.dim) + (is_tile ? ": points of a tile" : ": points") +
         (loop.points > 1 ? ", " + number(loop.points) + " a turn" : "") + blocks_text(loop.blocks));
  }

  std::string main_text(const LanesPlan& lanes) const {
    const std::string wide = number(lanes.wide());
    switch (lanes.main) {
      case MainLoop::kNone: return "none";
      case MainLoop::kTurns: return wide + " lanes a turn";
      case MainLoop::kStreams:
        return number(lanes.unroll) + " streams of " + number(lanes.main_lanes) + " lanes, neighbours below " +
               number(lanes.part_points) + " points each";
      case MainLoop::kSearch: return "a search by blocks of " + wide + " lanes";
      case MainLoop::kSlabs:
        return "slabs of " + number(plan_.slabs.rows) + " rows, " + number(plan_.slabs.columns) +
               " columns at once on the stack, " + wide + " lanes a turn";
    }
    return "";
  }

  void lanes_lines(const LoopPlan& loop) {
    const LanesPlan& lanes = plan_.lanes;
    line("loop " + dim(loop.dim) + ": lanes" + (lanes.is_part ? ", of the requested part" : "") +
         blocks_text(loop.blocks));
    line("  body: " + std::string(plan_.is_light ? "light" : "heavy") +
         ", registers of each value: " + number(lanes.unroll));
    line("  main loop: " + main_text(lanes) + (lanes.is_split ? ", even lanes first" : "") +
         (lanes.main != MainLoop::kNone && lanes.main_end ? ", up to " + number(*lanes.main_end) : ""));
    line("  tail: " + (lanes.has_tail ? number(lanes.width) + " lanes, masked" : std::string("none")));
  }

  void level_line(size_t level) {
    std::string before, after;
    for (size_t i = 0; i < plan_.insts.size(); ++i)
      if (plan_.insts[i].level == level)
        (plan_.insts[i].is_after ? after : before) += " %" + number(static_cast<int64_t>(i));
    const std::string where = "inside " + number(static_cast<int64_t>(level)) + (level == 1 ? " loop" : " loops");
    if (!before.empty()) line(where + ":" + before);
    if (!after.empty()) line(where + ", after reductions:" + after);
  }

  std::string access_text(size_t i) const {
    const LoopInst& inst = nest_.body[i];
    const InstPlan& of = plan_.insts[i];
    const KernelBuffer& buffer = kernel_.buffers[inst.buffer];
    std::string text = std::string(inst.op == LoopOp::kLoad ? "load" : "store") + " b" + number(inst.buffer) + ": " +
                       text_of(of.access) + text_of(of.mask);
    if (of.access == Access::kTile)
      text += plan_.register_tile ? ", which stays in registers" : ", which lies on the stack";
    if (whole_.split_scratch[inst.buffer]) text += ", even lanes first";
    if (inst.op == LoopOp::kStore && buffer.dtype == DType::kBFloat16)
      text += std::string(", ") +
              text_of(inst.mode == StoreMode::kJoin ? Bf16Rounding::kAny : plan_.insts[inst.operands[0]].bf16);
    if (of.elements_ahead != 0) text += ", prefetched " + number(of.elements_ahead) + " elements ahead";
    if (whole_.tiles.lanes_ahead != 0 && (of.access == Access::kTile || of.access == Access::kContiguous) &&
        inst.op == LoopOp::kLoad)
      text += ", prefetched " + number(whole_.tiles.lanes_ahead) + " turns ahead";
    return text;
  }

  std::string carried_text(size_t i) const {
    const LoopInst& inst = nest_.body[i];
    const InstPlan& of = plan_.insts[i];
    std::string text = std::string(inst.op == LoopOp::kScan ? "scan " : "reduce ") + name_of(inst.reduce) + ": " +
                       row_of(of.accumulator).text +
                       (plan_.lanes.is_reduced ? ", one for each lane"
                        : of.has_lanes         ? ", lanes apart"
                                               : ", one");
    if (is_position(inst.reduce))
      text += std::string(", positions of ") + (plan_.has_short_positions ? "32" : "64") + " bits" +
              (plan_.positions_count_up ? " that count up" : "");
    if (plan_.is_compensated && inst.op == LoopOp::kReduce && inst.reduce == ReduceOp::kSum && is_float(inst.dtype))
      text += ", with the rounding errors";
    if (of.twin != kNoInst) text += ", as one with %" + number(of.twin);
    return text;
  }

  void inst_line(size_t i) {
    const std::string name = "%" + number(static_cast<int64_t>(i)) + " ";
    if (is_address(nest_.body[i])) line(name + access_text(i));
    if (is_carried(nest_.body[i])) line(name + carried_text(i));
    if (plan_.insts[i].is_place) line(name + "mask: which lane is at a place");
    else if (plan_.insts[i].is_border) line(name + "mask: which side of a border the lanes are on");
  }

  const KernelPlan& whole_;
  const NestPlan& plan_;
  const Kernel& kernel_;
  const Nest& nest_;
  std::string text_;
};

}  // namespace

std::string print(const KernelPlan& plan, const Kernel& kernel, const TargetInfo& target) {
  std::string text =
      "plan for " + number(target.registers.count) + " registers of " + number(target.registers.lanes) + " lanes\n";
  if (kernel.lanes_outer) text += number(plan.outer_lanes) + " outer points side by side\n";
  if (kernel.in_tiles) text += "tiles of " + number(plan.tiles.points) + " points\n";
  if (kernel.is_product)
    text += "product: tiles of " + number(plan.product.rows) + " rows and " + number(plan.product.columns) +
            " columns, " + (plan.product.has_whole_columns ? "nothing" : "columns") + " beside them, " +
            number(plan.product.columns_at_once) + " columns at once\n" + "sums: " + number(plan.product.blocks) +
            (plan.product.blocks == 1 ? " block" : " blocks") + " of " + number(plan.product.terms) + " terms\n";
  for (size_t k = 0; k < plan.nests.size(); ++k)
    text += "nest " + number(static_cast<int64_t>(k)) + "\n" + NestText(plan, kernel, k).run();
  return text;
}

}  // namespace framejit::inductor
