#include "tests/parsers/loop_parser.h"

#include <map>

#include "graph/tensor_meta.h"
#include "tests/parsers/sym_parser.h"

namespace framejit::inductor {
namespace {

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
    if (auto found = text::find_dtype(word)) return *found;
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

  // Symbols are numbered as NestSymbols does: sizes, dimensions, then values.
  std::optional<graph::SymbolId> read_symbol() {
    if (cursor_.accept("$")) {
      const Result<int64_t> inst = cursor_.integer();
      if (!inst) return std::nullopt;
      return program_.symbol_count + kMaxDims + static_cast<uint32_t>(inst.value());
    }
    const size_t start = cursor_.position();
    if (const auto size = graph::read_size_symbol(cursor_)) return size;
    cursor_.rewind(start);
    if (const auto dim = graph::numbered_word(cursor_, 'i')) return program_.symbol_count + *dim;
    cursor_.rewind(start);
    if (const auto dim = graph::numbered_word(cursor_, 'r'))
      return program_.symbol_count + static_cast<uint32_t>(range_count_) + *dim;
    return std::nullopt;
  }

  Result<SymExpr> expr() {
    return graph::parse_sym_expr(cursor_, [this](text::Reader&) { return read_symbol(); });
  }

  Result<std::vector<SymExpr>> expr_list(std::string_view ends) {
    std::vector<SymExpr> list;
    while (ends.find(cursor_.peek()) == std::string_view::npos) {
      FJ_TRY(SymExpr e, expr());
      list.push_back(std::move(e));
      if (!cursor_.accept(",")) break;
    }
    return list;
  }

  Result<void> dims(SymSizes& extents, char letter) {
    while (cursor_.peek() == letter) {
      cursor_.word();
      FJ_TRY_VOID(cursor_.expect(":"));
      FJ_TRY(SymExpr e, expr());
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
    const size_t start = (cursor_.peek(), cursor_.position());
    const std::string word(cursor_.word());
    if (word == "store") return true;
    if (word == "store_last") {
      inst.mode = StoreMode::kLast;
      return true;
    }
    if (const auto joined = word.starts_with("store_") ? find_reduce_op(word.substr(6)) : std::nullopt) {
      inst.mode = StoreMode::kJoin;
      inst.reduce = *joined;
      return true;
    }
    cursor_.rewind(start);
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
      text::Reader c(constant);
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

  text::Reader cursor_;
  std::string_view text_;
  LoopProgram program_;
  std::map<std::string, LoopBufferId> names_;
  size_t range_count_ = 0;
};

}  // namespace

Result<LoopProgram> parse_loops(std::string_view text) { return Parser(text).program(); }

}  // namespace framejit::inductor
