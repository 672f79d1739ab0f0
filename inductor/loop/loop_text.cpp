// inductor/loop/loop_text.cpp — prints a loop program. tests/parsers/loop_parser.cpp reads the same grammar.
//
//   loops @f symbols 1 {
//     input x: f32[s0, 64]    temp m: f32[s0]    output y: f32[s0, 64]
//     extern 3 mm(x, w) -> (m)
//     nest n0 (i0: s0 | r0: 64) {
//       %0 = load x[i0, r0] : f32            or load x[i0, r0] if %3 else %4: read only where %3 holds
//       %1 = exp %0 : f32
//       %2 = reduce_sum %1 : f32             or scan_sum: the running sum, per reduced point
//       store y[i0], %2                      or store_last, store_sum, ...: in order
//     }
//   }
// Dimensions are i<n> and r<n>, sizes s<n>, values %<n>. Expressions are SymExpr's text with the names translated.
#include <cctype>

#include "graph/tensor_meta.h"
#include "inductor/loop/loop_program.h"
#include "inductor/loop/number_text.h"
#include "runtime/base/text.h"

namespace framejit::inductor {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Replaces every symbol name by the result of `rename`.
template <class Rename>
std::string translate(std::string_view text, Rename rename) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (!is_word(text[i])) {
      out += text[i++];
      continue;
    }
    size_t end = i + 1;
    while (end < text.size() && is_word(text[end])) ++end;
    out += rename(text.substr(i, end - i));
    i = end;
  }
  return out;
}

std::string expr_text(const SymExpr& e, const NestSymbols& symbols, size_t range_count) {
  return translate(e.text(), [&](std::string_view word) -> std::string {
    if (word.size() < 2 || word[0] != 's' || !std::isdigit(static_cast<unsigned char>(word[1])))
      return std::string(word);
    const auto id = static_cast<graph::SymbolId>(std::stoul(std::string(word.substr(1))));
    if (symbols.is_value(id)) return "$" + number(symbols.inst_of(id));
    if (!symbols.is_dim(id)) return std::string(word);
    const size_t d = symbols.dim_of(id);
    return d < range_count ? "i" + number(d) : "r" + number(d - range_count);
  });
}

std::string list_text(const std::vector<SymExpr>& list, const NestSymbols& symbols, size_t range_count) {
  std::string out;
  for (size_t k = 0; k < list.size(); ++k) out += (k ? ", " : "") + expr_text(list[k], symbols, range_count);
  return out;
}

std::string store_word(StoreMode mode, ReduceOp op) {
  if (mode == StoreMode::kPlain) return "store";
  return std::string("store_") + (mode == StoreMode::kLast ? "last" : name_of(op));
}

}  // namespace

std::string print(const LoopProgram& program, const Nest& nest, InstId i) {
  const NestSymbols symbols(program.symbol_count);
  const LoopInst& inst = nest.body[i];
  const auto exprs = [&] { return list_text(inst.index, symbols, nest.ranges.size()); };
  const auto operand = [&](int k) { return "%" + number(inst.operands[k]); };
  std::string text;
  switch (inst.op) {
    case LoopOp::kConstant:
      text = "constant " + (is_float(inst.dtype) ? text::float_text(inst.constant.f) : number(inst.constant.i));
      break;
    case LoopOp::kIndex: text = "index " + exprs(); break;
    case LoopOp::kLoad:
      text = "load " + program.buffers[inst.buffer].name + "[" + exprs() + "]";
      if (inst.is_masked()) text += " if " + operand(0) + " else " + operand(1);
      break;
    case LoopOp::kStore:
      return store_word(inst.mode, inst.reduce) + " " + program.buffers[inst.buffer].name + "[" + exprs() + "], " +
             operand(0);
    case LoopOp::kCheck: text = std::string(inst.wrap ? "check_wrap " : "check ") + operand(0) + ", " + exprs(); break;
    case LoopOp::kCast: text = "cast " + operand(0); break;
    case LoopOp::kReduce:
    case LoopOp::kScan:
      text = std::string(inst.op == LoopOp::kScan ? "scan_" : "reduce_") + name_of(inst.reduce) + " " + operand(0);
      break;
    case LoopOp::kScalar:
      text = graph::row_of(inst.scalar).name;
      for (int k = 0; k < inst.operand_count(); ++k) text += (k ? ", " : " ") + operand(k);
      break;
  }
  return "%" + number(static_cast<int64_t>(i)) + " = " + text + " : " + row_of(inst.dtype).text;
}

namespace {

std::string sizes_text(const SymSizes& sizes) {
  std::string out;
  for (size_t k = 0; k < sizes.size(); ++k) out += (k ? ", " : "") + sizes[k].text();
  return out;
}

}  // namespace

std::string print(const LoopProgram& program, const Nest& nest) {
  const NestSymbols symbols(program.symbol_count);
  std::string out = "  nest " + nest.name + " (";
  for (size_t d = 0; d < nest.ranges.size(); ++d) out += (d ? ", i" : "i") + number(d) + ": " + nest.ranges[d].text();
  if (nest.is_reduction()) out += nest.ranges.empty() ? "| " : " | ";
  for (size_t d = 0; d < nest.reduced.size(); ++d) out += (d ? ", r" : "r") + number(d) + ": " + nest.reduced[d].text();
  out += ") {\n";
  for (size_t i = 0; i < nest.body.size(); ++i) out += "    " + print(program, nest, static_cast<InstId>(i)) + "\n";
  return out + "  }\n";
}

std::string print(const LoopProgram& program) {
  std::string out = "loops @" + program.name + " symbols " + number(program.symbol_count) + " {\n";
  for (const LoopBuffer& b : program.buffers) {
    const char* role = b.role == BufferRole::kInput      ? "input"
                       : b.role == BufferRole::kConstant ? "constant"
                       : b.is_output                     ? "output"
                                                         : "temp";
    out += std::string("  ") + role + " " + b.name + ": " + row_of(b.dtype).text + "[" + sizes_text(b.sizes);
    if (!(b.strides == graph::contiguous_strides(b.sizes))) out += "; " + sizes_text(b.strides);
    out += "]\n";
  }
  for (const auto& item : program.items) {
    if (const Nest* nest = std::get_if<Nest>(&item)) {
      out += print(program, *nest);
      continue;
    }
    const ExternCall& call = std::get<ExternCall>(item);
    const auto names = [&](const std::vector<LoopBufferId>& ids) {
      std::string text;
      for (size_t k = 0; k < ids.size(); ++k) text += (k ? ", " : "") + program.buffers[ids[k]].name;
      return text;
    };
    out += "  extern " + number(call.node) + " " + call.op + "(" + names(call.reads) + ") -> (" + names(call.writes) +
           ")\n";
  }
  return out + "}\n";
}

}  // namespace framejit::inductor
