// inductor/loop/loop_text.cpp — print and parse of loop programs.
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
#include <map>

#include "graph/sym_text.h"
#include "graph/tensor_meta.h"
#include "inductor/loop/loop_program.h"
#include "runtime/base/text.h"

namespace framejit::inductor {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Replaces every symbol name by the result of `rename`.
template <class Rename>
std::string translate(std::string_view text, Rename rename) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (!is_word(text[i]) && text[i] != '$') {
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

std::string number(int64_t n) { return std::to_string(n); }

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

class Parser {
 public:
  explicit Parser(std::string_view text) : cursor_(text), text_(text) {}

  Result<LoopProgram> program() {
    FJ_TRY_VOID(cursor_.expect("loops"));
    FJ_TRY_VOID(cursor_.expect("@"));
    program_.name = cursor_.word();
    FJ_TRY_VOID(cursor_.expect("symbols"));
    FJ_TRY(const int64_t count, cursor_.integer());
    program_.symbol_count = static_cast<uint32_t>(count);
    FJ_TRY_VOID(cursor_.expect("{"));
    while (!cursor_.accept("}")) FJ_TRY_VOID(item());
    if (!cursor_.at_end()) return cursor_.error("text after the program");
    FJ_TRY_VOID(verify(program_, {}));
    return std::move(program_);
  }

 private:
  Result<void> item() {
    if (cursor_.accept("extern")) return extern_call();
    if (cursor_.accept("nest")) return nest();
    LoopBuffer buffer;
    if (cursor_.accept("input")) {
      buffer.role = BufferRole::kInput;
    } else if (cursor_.accept("constant")) {
      buffer.role = BufferRole::kConstant;
    } else if (cursor_.accept("output")) {
      buffer.is_output = true;
    } else if (!cursor_.accept("temp")) {
      return cursor_.error("expected input, constant, temp, output, extern or nest");
    }
    buffer.name = cursor_.word();
    FJ_TRY_VOID(cursor_.expect(":"));
    FJ_TRY(buffer.dtype, dtype());
    FJ_TRY_VOID(cursor_.expect("["));
    FJ_TRY(buffer.sizes, expr_list("];"));
    if (cursor_.accept(";")) {
      FJ_TRY(buffer.strides, expr_list("]"));
    } else {
      buffer.strides = graph::contiguous_strides(buffer.sizes);
    }
    FJ_TRY_VOID(cursor_.expect("]"));
    names_[buffer.name] = static_cast<LoopBufferId>(program_.buffers.size());
    program_.buffers.push_back(std::move(buffer));
    return {};
  }

  Result<DType> dtype() {
    const std::string_view word = cursor_.word();
    if (auto found = find_dtype(word)) return *found;
    return cursor_.error("unknown dtype " + std::string(word));
  }

  Result<LoopBufferId> buffer() {
    const std::string name(cursor_.word());
    auto at = names_.find(name);
    if (at == names_.end()) return cursor_.error("unknown buffer " + name);
    return at->second;
  }

  Result<std::vector<LoopBufferId>> buffer_list() {
    std::vector<LoopBufferId> list;
    FJ_TRY_VOID(cursor_.expect("("));
    while (!cursor_.accept(")")) {
      FJ_TRY(const LoopBufferId id, buffer());
      list.push_back(id);
      cursor_.accept(",");
    }
    return list;
  }

  Result<void> extern_call() {
    ExternCall call;
    FJ_TRY(const int64_t node, cursor_.integer());
    call.node = static_cast<uint32_t>(node);
    call.op = cursor_.dotted_word();
    FJ_TRY(call.reads, buffer_list());
    FJ_TRY_VOID(cursor_.expect("->"));
    FJ_TRY(call.writes, buffer_list());
    program_.items.emplace_back(std::in_place_type<ExternCall>, std::move(call));
    return {};
  }

  // One expression up to any of `ends` (or a comma) outside parentheses, its names translated to symbol numbers.
  Result<SymExpr> expr(std::string_view ends) {
    cursor_.peek();
    const size_t start = cursor_.position();
    size_t end = start;
    int depth = 0;
    for (; end < text_.size(); ++end) {
      const char c = text_[end];
      if (depth == 0 && (c == ',' || c == '\n' || ends.find(c) != std::string_view::npos)) break;
      depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    }
    const std::string plain = translate(text_.substr(start, end - start), [&](std::string_view word) -> std::string {
      if (word[0] != 'i' && word[0] != 'r' && word[0] != '$') return std::string(word);
      if (word.size() < 2 || !std::isdigit(static_cast<unsigned char>(word[1]))) {
        return std::string(word);
      }
      const uint32_t n = static_cast<uint32_t>(std::stoul(std::string(word.substr(1))));
      const uint32_t base = program_.symbol_count + (word[0] == '$'   ? kMaxDims
                                                     : word[0] == 'r' ? static_cast<uint32_t>(range_count_)
                                                                      : 0);
      return "s" + std::to_string(base + n);
    });
    text::Cursor inner(plain);
    auto parsed = graph::parse_sym_expr(inner);
    if (!parsed || !inner.at_end()) return cursor_.error("expected an index expression");
    cursor_.rewind(end);
    return parsed.take();
  }

  Result<std::vector<SymExpr>> expr_list(std::string_view ends) {
    std::vector<SymExpr> list;
    while (ends.find(cursor_.peek()) == std::string_view::npos) {
      FJ_TRY(SymExpr e, expr(ends));
      list.push_back(std::move(e));
      if (!cursor_.accept(",")) break;
    }
    return list;
  }

  Result<void> dims(SymSizes& extents, char letter) {
    while (cursor_.peek() == letter) {
      cursor_.word();
      FJ_TRY_VOID(cursor_.expect(":"));
      FJ_TRY(SymExpr e, expr("|)"));
      extents.push_back(std::move(e));
      cursor_.accept(",");
    }
    return {};
  }

  Result<void> nest() {
    Nest nest;
    nest.name = cursor_.word();
    FJ_TRY_VOID(cursor_.expect("("));
    FJ_TRY_VOID(dims(nest.ranges, 'i'));
    range_count_ = nest.ranges.size();
    if (cursor_.accept("|")) FJ_TRY_VOID(dims(nest.reduced, 'r'));
    FJ_TRY_VOID(cursor_.expect(")"));
    FJ_TRY_VOID(cursor_.expect("{"));
    while (!cursor_.accept("}")) FJ_TRY_VOID(inst(nest));
    program_.items.emplace_back(std::in_place_type<Nest>, std::move(nest));
    return {};
  }

  Result<InstId> value() {
    FJ_TRY_VOID(cursor_.expect("%"));
    FJ_TRY(const int64_t id, cursor_.integer());
    return static_cast<InstId>(id);
  }

  Result<void> access(LoopInst& inst) {
    FJ_TRY(inst.buffer, buffer());
    FJ_TRY_VOID(cursor_.expect("["));
    FJ_TRY(inst.index, expr_list("]"));
    return cursor_.expect("]");
  }

  bool accept_store(LoopInst& inst) {
    for (const StoreMode mode : {StoreMode::kPlain, StoreMode::kLast, StoreMode::kJoin})
      for (int k = 0; k <= static_cast<int>(mode == StoreMode::kJoin ? ReduceOp::kAll : ReduceOp::kSum); ++k) {
        inst.mode = mode;
        inst.reduce = static_cast<ReduceOp>(k);
        if (cursor_.accept(store_word(inst.mode, inst.reduce))) return true;
      }
    inst = {};
    return false;
  }

  Result<void> inst(Nest& nest) {
    LoopInst inst;
    if (accept_store(inst)) {
      inst.op = LoopOp::kStore;
      FJ_TRY_VOID(access(inst));
      FJ_TRY_VOID(cursor_.expect(","));
      FJ_TRY(inst.operands[0], value());
      nest.body.push_back(std::move(inst));
      return {};
    }
    FJ_TRY(const InstId id, value());
    if (id != nest.body.size()) return cursor_.error("values are numbered in order");
    FJ_TRY_VOID(cursor_.expect("="));
    std::string constant;
    FJ_TRY_VOID(operation(inst, constant));
    FJ_TRY_VOID(cursor_.expect(":"));
    FJ_TRY(inst.dtype, dtype());
    if (inst.op == LoopOp::kConstant) {
      text::Cursor c(constant);
      if (is_float(inst.dtype)) {
        FJ_TRY(inst.constant.f, c.floating());
      } else {
        FJ_TRY(inst.constant.i, c.integer());
      }
    }
    nest.body.push_back(std::move(inst));
    return {};
  }

  Result<void> operation(LoopInst& inst, std::string& constant) {
    const std::string word(cursor_.word());
    if (word == "constant") {
      inst.op = LoopOp::kConstant;
      cursor_.peek();
      const size_t start = cursor_.position(), end = text_.find(" : ", start);
      if (end == std::string_view::npos) return cursor_.error("expected a number");
      constant = text_.substr(start, end - start);
      cursor_.rewind(end);
      return {};
    }
    if (word == "index") {
      inst.op = LoopOp::kIndex;
      FJ_TRY(inst.index, expr_list(":"));
      return {};
    }
    if (word == "load") {
      inst.op = LoopOp::kLoad;
      FJ_TRY_VOID(access(inst));
      if (!cursor_.accept("if")) return {};
      FJ_TRY(inst.operands[0], value());
      FJ_TRY_VOID(cursor_.expect("else"));
      FJ_TRY(inst.operands[1], value());
      return {};
    }
    if (word == "check" || word == "check_wrap") {
      inst.op = LoopOp::kCheck;
      inst.wrap = word == "check_wrap";
      FJ_TRY(inst.operands[0], value());
      FJ_TRY_VOID(cursor_.expect(","));
      FJ_TRY(inst.index, expr_list(":"));
      return {};
    }
    if (word == "cast") {
      inst.op = LoopOp::kCast;
    } else if (word.rfind("reduce_", 0) == 0 || word.rfind("scan_", 0) == 0) {
      inst.op = word[0] == 'r' ? LoopOp::kReduce : LoopOp::kScan;
      const auto found = find_reduce_op(word.substr(word.find('_') + 1));
      if (!found) return cursor_.error("unknown reduction " + word);
      inst.reduce = *found;
    } else if (auto scalar = graph::find_scalar_op(word)) {
      inst.op = LoopOp::kScalar;
      inst.scalar = *scalar;
    } else {
      return cursor_.error("unknown operation " + word);
    }
    for (int k = 0; k < inst.operand_count(); ++k) {
      if (k > 0) FJ_TRY_VOID(cursor_.expect(","));
      FJ_TRY(inst.operands[k], value());
    }
    return {};
  }

  static std::optional<ReduceOp> find_reduce_op(std::string_view name) {
    for (int k = 0; k <= static_cast<int>(ReduceOp::kArgmin); ++k)
      if (name == name_of(static_cast<ReduceOp>(k))) return static_cast<ReduceOp>(k);
    return std::nullopt;
  }

  text::Cursor cursor_;
  std::string_view text_;
  LoopProgram program_;
  std::map<std::string, LoopBufferId> names_;
  size_t range_count_ = 0;
};

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

Result<LoopProgram> parse_loops(std::string_view text) { return Parser(text).program(); }

}  // namespace framejit::inductor
