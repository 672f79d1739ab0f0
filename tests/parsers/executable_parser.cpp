#include "tests/parsers/executable_parser.h"

#include <charconv>
#include <limits>

#include "tests/parsers/reader.h"

namespace framejit::runtime {
namespace {

class PlanParser {
 public:
  explicit PlanParser(text::Reader& in) : in_(in) {}

  Result<CallPlan> plan() {
    FJ_TRY_VOID(in_.expect("plan"));
    FJ_TRY_VOID(in_.expect("@"));
    FJ_TRY(plan_.name, name());
    FJ_TRY_VOID(in_.expect("inputs"));
    FJ_TRY(plan_.input_count, number<uint32_t>());
    FJ_TRY_VOID(in_.expect("symbols"));
    FJ_TRY(plan_.symbol_count, number<uint32_t>());
    FJ_TRY_VOID(in_.expect("{"));
    while (!in_.peek_is("return")) {
      if (in_.at_end()) return in_.error("expected 'return'");
      FJ_TRY_VOID(line());
    }
    FJ_TRY_VOID(in_.expect("return"));
    while (!in_.accept("}")) {
      if (!plan_.outputs.empty()) FJ_TRY_VOID(in_.expect(","));
      FJ_TRY(const Output output, read_output());
      plan_.outputs.push_back(output);
    }
    return std::move(plan_);
  }

  Result<Buffer> buffer() {
    Buffer b;
    FJ_TRY_VOID(storage(b));
    FJ_TRY_VOID(dtype(b));
    FJ_TRY_VOID(in_.expect("["));
    while (!in_.peek_is("]") && !in_.peek_is(";")) {
      if (!b.sizes.empty()) FJ_TRY_VOID(in_.expect(","));
      FJ_TRY(const Size s, size());
      b.sizes.push_back(s);
    }
    if (in_.accept(";")) {
      while (!in_.peek_is("]")) {
        if (!b.strides.empty()) FJ_TRY_VOID(in_.expect(","));
        FJ_TRY(const Size s, size());
        b.strides.push_back(s);
      }
    } else {
      b.strides.resize(b.sizes.size());
      int64_t stride = 1;
      for (size_t i = b.sizes.size(); i-- > 0;) {
        b.strides[i] = {stride};
        if (i > 0 && __builtin_mul_overflow(stride, b.sizes[i].constant, &stride))
          return in_.error("a size beyond 64 bits");
      }
    }
    FJ_TRY_VOID(in_.expect("]"));
    if (in_.accept("+")) {
      FJ_TRY(b.offset, size());
    }
    FJ_TRY(b.device, device());
    return b;
  }

  Result<std::string> name() {
    if (in_.peek() == '"') return in_.quoted();
    const std::string_view word = in_.word();
    if (word.empty()) return in_.error("expected a name");
    return std::string(word);
  }

  // `prefix` and a number in one word: b12.
  Result<uint32_t> numbered(char prefix) {
    const size_t start = in_.position();
    const std::string_view word = in_.word();
    uint32_t value = 0;
    bool fits = word.size() > 1 && word[0] == prefix && word.size() < 9;
    for (size_t i = 1; fits && i < word.size(); ++i) {
      fits = word[i] >= '0' && word[i] <= '9';
      value = value * 10 + static_cast<uint32_t>(word[i] - '0');
    }
    if (fits) return value;
    in_.rewind(start);
    return in_.error(std::string("expected ") + prefix + " and a number");
  }

  template <class Int> Result<Int> number() {
    FJ_TRY(const int64_t value, in_.integer());
    if (value < std::numeric_limits<Int>::min() || value > static_cast<int64_t>(std::numeric_limits<Int>::max()))
      return in_.error("a number out of range");
    return static_cast<Int>(value);
  }

 private:
  Result<Size> size() {
    if (in_.peek() != 'z') {
      FJ_TRY(const int64_t constant, in_.integer());
      return Size{constant, -1};
    }
    FJ_TRY(const uint32_t slot, numbered('z'));
    return Size{0, static_cast<int32_t>(slot)};
  }

  Result<BufferId> buffer_id() {
    if (in_.accept("none")) return kNoBuffer;
    return numbered('b');
  }

  Result<DeviceId> device() {
    if (!in_.accept("device")) return DeviceId{};
    return device_numbers();
  }
  Result<DeviceId> device_numbers() {
    DeviceId id;
    FJ_TRY(id.type, number<int8_t>());
    FJ_TRY_VOID(in_.expect(":"));
    FJ_TRY(id.index, number<int8_t>());
    return id;
  }
  Result<Place> place() {
    Place place;
    FJ_TRY(place.device, device());
    if (in_.accept("stream")) {
      FJ_TRY(place.stream, number<uint8_t>());
    }
    return place;
  }

  Result<void> storage(Buffer& b) {
    static constexpr std::pair<const char*, Storage> kNumbered[] = {{"input", Storage::kInput},
                                                                    {"constant", Storage::kConstant},
                                                                    {"derived", Storage::kDerived},
                                                                    {"saved", Storage::kSaved}};
    for (const auto& [word, storage] : kNumbered) {
      if (!in_.accept(word)) continue;
      b.storage = storage;
      FJ_TRY(b.index, number<uint32_t>());
      return {};
    }
    b.storage = Storage::kTensor;
    if (in_.accept("tensor")) return {};
    b.storage = Storage::kArena;
    FJ_TRY_VOID(in_.expect("arena"));
    FJ_TRY(b.offset, size());
    if (in_.accept(":")) {
      b.index = static_cast<uint32_t>(b.offset.constant);
      FJ_TRY(b.offset, size());
    }
    return {};
  }

  Result<void> dtype(Buffer& b) {
    b.is_packed = in_.accept("packed");
    const std::string_view word = in_.word();
    if (const auto known = text::find_dtype(word)) {
      b.dtype = *known;
      b.torch_dtype = row_of(*known).torch_scalar_type;
      return {};
    }
    b.dtype = DType::kOther;
    FJ_TRY(b.torch_dtype, other_dtype(word));
    return {};
  }
  Result<int32_t> other_dtype(std::string_view word) {
    if (!word.starts_with("dtype") || word.size() < 6 || word.size() > 8) return in_.error("expected a dtype");
    int32_t value = 0;
    for (char c : word.substr(5)) {
      if (c < '0' || c > '9') return in_.error("expected a dtype");
      value = value * 10 + (c - '0');
    }
    return value;
  }

  Result<void> line() {
    if (in_.peek_is("arena")) return arena_line();
    if (in_.accept("update")) return update_line();
    if (in_.accept("save")) return save_line();
    if (in_.accept("kernel")) return kernel_line();
    if (in_.accept("call")) return extern_line({});
    if (in_.accept("allocate")) return allocate_line();
    if (in_.accept("free")) return buffer_step<FreeStep>();
    if (in_.accept("take")) return block_step<TakeStep>();
    if (in_.accept("give")) return block_step<GiveStep>();
    const size_t start = in_.position();
    if (in_.peek() == 'z') return size_line();
    if (in_.peek() == 'b' && !in_.word().empty() && in_.accept(":")) {
      in_.rewind(start);
      FJ_TRY(const uint32_t id, numbered('b'));
      FJ_TRY_VOID(in_.expect(":"));
      if (id != plan_.buffers.size()) return in_.error("buffers are numbered in order");
      FJ_TRY(Buffer b, buffer());
      plan_.buffers.push_back(std::move(b));
      return {};
    }
    in_.rewind(start);
    return results_line();
  }

  Result<void> size_line() {
    FJ_TRY(const uint32_t slot, numbered('z'));
    if (slot != plan_.size_program.size()) return in_.error("size slots are numbered in order");
    FJ_TRY_VOID(in_.expect("="));
    SizeOp op{SizeOpcode::kConstant};
    if (in_.peek() == 's') {
      FJ_TRY(op.constant, numbered('s'));
      op.opcode = SizeOpcode::kSymbol;
    } else if (in_.peek_is("min") || in_.peek_is("max")) {
      op.opcode = in_.word() == "min" ? SizeOpcode::kMin : SizeOpcode::kMax;
      FJ_TRY_VOID(in_.expect("("));
      FJ_TRY(op.left, numbered('z'));
      FJ_TRY_VOID(in_.expect(","));
      FJ_TRY(op.right, numbered('z'));
      FJ_TRY_VOID(in_.expect(")"));
    } else if (in_.peek() == 'z') {
      static constexpr std::pair<const char*, SizeOpcode> kSigns[] = {
          {"+", SizeOpcode::kAdd}, {"*", SizeOpcode::kMul}, {"//", SizeOpcode::kFloorDiv}, {"%", SizeOpcode::kMod}};
      FJ_TRY(op.left, numbered('z'));
      for (const auto& [sign, opcode] : kSigns)
        if (op.opcode == SizeOpcode::kConstant && in_.accept(sign)) op.opcode = opcode;
      if (op.opcode == SizeOpcode::kConstant) return in_.error("expected + * // or %");
      FJ_TRY(op.right, numbered('z'));
    } else {
      FJ_TRY(op.constant, in_.integer());
    }
    plan_.size_program.push_back(op);
    return {};
  }

  Result<void> arena_line() {
    FJ_TRY_VOID(in_.expect("arena"));
    FJ_TRY(const uint32_t index, number<uint32_t>());
    if (index != plan_.arena.size()) return in_.error("blocks are numbered in order");
    FJ_TRY_VOID(in_.expect(":"));
    ArenaBlock block;
    FJ_TRY(block.bytes, size());
    FJ_TRY_VOID(in_.expect("bytes"));
    FJ_TRY(block.device, device());
    plan_.arena.push_back(block);
    return {};
  }

  Result<void> update_line() {
    FJ_TRY_VOID(in_.expect("input"));
    FJ_TRY(const uint32_t input, number<uint32_t>());
    FJ_TRY_VOID(in_.expect("from"));
    FJ_TRY(const BufferId from, buffer_id());
    plan_.updates.emplace_back(input, from);
    return {};
  }

  Result<void> save_line() {
    do {
      FJ_TRY(const BufferId b, buffer_id());
      plan_.saves.push_back(b);
    } while (in_.accept(","));
    return {};
  }

  Result<void> kernel_line() {
    KernelStep step;
    FJ_TRY(step.name, name());
    FJ_TRY_VOID(in_.expect("("));
    while (!in_.accept(")")) {
      if (!step.buffers.empty()) FJ_TRY_VOID(in_.expect(","));
      FJ_TRY(const BufferId b, buffer_id());
      step.buffers.push_back(b);
    }
    FJ_TRY_VOID(in_.expect("runs"));
    FJ_TRY(step.kernel, numbered('c'));
    if (in_.accept("offsets")) {
      FJ_TRY_VOID(in_.expect("["));
      while (!in_.accept("]")) {
        if (!step.offsets.empty()) FJ_TRY_VOID(in_.expect(","));
        FJ_TRY(const uint32_t argument, number<uint32_t>());
        FJ_TRY_VOID(in_.expect(":"));
        FJ_TRY(const int64_t bytes, in_.integer());
        step.offsets.emplace_back(argument, bytes);
      }
    }
    if (in_.accept("sizes")) {
      FJ_TRY(const PlanArg sizes, list_argument());
      const auto* list = std::get_if<std::vector<Size>>(&sizes.payload);
      if (list == nullptr) return in_.error("expected sizes");
      step.sizes = *list;
    }
    FJ_TRY_VOID(in_.expect("extent"));
    FJ_TRY(step.extent, size());
    if (in_.accept("grain")) {
      FJ_TRY(step.grain, in_.integer());
    }
    if (in_.accept("unit")) {
      FJ_TRY(step.unit, in_.integer());
    }
    if (in_.accept("together")) {
      FJ_TRY(const int64_t together, in_.integer());
      step.together = static_cast<uint32_t>(together);
    }
    FJ_TRY(step.place, place());
    plan_.steps.emplace_back(std::move(step));
    return {};
  }

  Result<void> results_line() {
    std::vector<BufferId> results;
    do {
      FJ_TRY(const BufferId b, buffer_id());
      results.push_back(b);
    } while (in_.accept(","));
    FJ_TRY_VOID(in_.expect("="));
    if (results.size() == 1 && in_.accept("view")) {
      FJ_TRY(const BufferId base, buffer_id());
      plan_.steps.emplace_back(ViewStep{base, results[0]});
      return {};
    }
    return extern_line(std::move(results));
  }

  Result<void> extern_line(std::vector<BufferId> results) {
    ExternStep step;
    step.results = std::move(results);
    step.op = std::string(in_.dotted_word());
    if (step.op.empty()) return in_.error("expected an op");
    FJ_TRY_VOID(in_.expect("("));
    while (!in_.accept(")")) {
      if (!step.args.empty()) FJ_TRY_VOID(in_.expect(","));
      FJ_TRY(PlanArg arg, argument());
      step.args.push_back(std::move(arg));
    }
    if (in_.accept("lists")) {
      FJ_TRY_VOID(in_.expect("["));
      while (!in_.accept("]")) {
        if (!step.result_lists.empty()) FJ_TRY_VOID(in_.expect(","));
        FJ_TRY(const int16_t n, number<int16_t>());
        step.result_lists.push_back(n);
      }
    }
    if (in_.accept("line")) {
      FJ_TRY(step.line, number<uint32_t>());
    }
    FJ_TRY(step.place, place());
    plan_.steps.emplace_back(std::move(step));
    return {};
  }

  Result<PlanArg> argument() {
    const char next = in_.peek();
    if (next == '[') return list_argument();
    if (next == '"') {
      FJ_TRY(std::string words, in_.quoted());
      return PlanArg{std::move(words)};
    }
    if (in_.accept("@")) return torch_argument();
    if (in_.next_is_float()) {
      FJ_TRY(const double value, in_.floating());
      return PlanArg{value};
    }
    if (in_.accept("true")) return PlanArg{true};
    if (in_.accept("false")) return PlanArg{false};
    if (in_.accept("none")) return PlanArg{None{}};
    if (in_.accept("no_buffer")) return PlanArg{kNoBuffer};
    if (next == 'b') {
      FJ_TRY(const BufferId b, buffer_id());
      return PlanArg{b};
    }
    FJ_TRY(const Size s, size());
    return PlanArg{s};
  }

  Result<PlanArg> torch_argument() {
    if (in_.peek_is("device")) {
      in_.word();
      FJ_TRY(const DeviceId id, device_numbers());
      return PlanArg{TorchDevice{id.type, id.index}};
    }
    const size_t start = in_.position();
    const std::string_view word = in_.word();
    if (const auto known = text::find_dtype(word)) return PlanArg{TorchDType{row_of(*known).torch_scalar_type}};
    if (word.starts_with("dtype")) {
      FJ_TRY(const int32_t other, other_dtype(word));
      return PlanArg{TorchDType{other}};
    }
    in_.rewind(start);
    const char kind = in_.peek();
    if (kind == 'o') {
      FJ_TRY(const uint32_t slot, numbered('o'));
      return PlanArg{OpaqueSlot{slot}};
    }
    if (std::string_view("lmqx").find(kind) == std::string_view::npos)
      return in_.error("expected a dtype, a device or an enumerator");
    FJ_TRY(const uint32_t value, numbered(kind));
    if (value > 127) return in_.error("an enumerator out of range");
    return PlanArg{TorchEnum{kind, static_cast<int8_t>(value)}};
  }

  template <class T, class Read> Result<PlanArg> items(Read read) {
    std::vector<T> list;
    while (!in_.accept("]")) {
      if (!list.empty()) FJ_TRY_VOID(in_.expect(","));
      FJ_TRY(const T item, read());
      list.push_back(item);
    }
    return PlanArg{std::move(list)};
  }

  // An empty list names the type of its items.
  Result<PlanArg> list_argument() {
    FJ_TRY_VOID(in_.expect("["));
    if (in_.accept("buffers")) return items<BufferId>([&] { return buffer_id(); });
    if (in_.accept("sizes")) return items<Size>([&] { return size(); });
    if (in_.accept("floats")) return items<double>([&] { return in_.floating(); });
    if (in_.accept("bools")) return items<bool>([&] { return boolean(); });
    if (in_.peek_is("true") || in_.peek_is("false")) return items<bool>([&] { return boolean(); });
    if (in_.next_is_float()) return items<double>([&] { return in_.floating(); });
    if (in_.peek() == 'b' || in_.peek_is("none")) return items<BufferId>([&] { return buffer_id(); });
    return items<Size>([&] { return size(); });
  }

  Result<bool> boolean() {
    if (in_.accept("true")) return true;
    FJ_TRY_VOID(in_.expect("false"));
    return false;
  }

  Result<void> allocate_line() {
    AllocateStep step;
    FJ_TRY(step.buffer, buffer_id());
    if (in_.accept("over")) { FJ_TRY(step.over, buffer_id()); }
    plan_.steps.emplace_back(step);
    return {};
  }
  template <class S> Result<void> buffer_step() {
    FJ_TRY(const BufferId b, buffer_id());
    plan_.steps.emplace_back(S{b});
    return {};
  }
  template <class S> Result<void> block_step() {
    FJ_TRY_VOID(in_.expect("arena"));
    FJ_TRY(const uint32_t block, number<uint32_t>());
    plan_.steps.emplace_back(S{block});
    return {};
  }

  Result<Output> read_output() {
    if (!in_.accept("input")) {
      FJ_TRY(const BufferId b, buffer_id());
      return Output{Output::kBuffer, b};
    }
    FJ_TRY(const uint32_t input, number<uint32_t>());
    return Output{Output::kInput, input};
  }

  text::Reader& in_;
  CallPlan plan_;
};

Result<void> read_code(text::Reader& in, Executable& executable) {
  FJ_TRY(const uint32_t index, PlanParser(in).numbered('c'));
  if (index != executable.kernels.size()) return in.error("kernels are numbered in order");
  FJ_TRY_VOID(in.expect("="));
  FJ_TRY(const std::string id, in.quoted());
  auto code = std::make_shared<KernelCode>();
  const auto known = parse_kernel_id(id);
  if (!known) return in.error("expected 32 hexadecimal digits");
  code->id = *known;
  FJ_TRY_VOID(in.expect("for"));
  FJ_TRY(code->target, in.quoted());
  FJ_TRY_VOID(in.expect("named"));
  FJ_TRY(code->name, in.quoted());
  executable.kernels.push_back(std::move(code));
  return {};
}

Result<void> read_derivation(text::Reader& in, DerivedValue& value) {
  FJ_TRY_VOID(in.expect("by"));
  FJ_TRY(value.derivation, PlanParser(in).number<uint32_t>());
  FJ_TRY_VOID(in.expect("from"));
  FJ_TRY_VOID(in.expect("["));
  while (!in.accept("]")) {
    if (!value.operands.empty()) FJ_TRY_VOID(in.expect(","));
    FJ_TRY(const uint32_t operand, PlanParser(in).number<uint32_t>());
    value.operands.push_back(operand);
  }
  return {};
}

Result<void> read_value(text::Reader& in, Executable& executable) {
  const bool is_derived = in.peek() == 'd';
  const size_t next = is_derived ? executable.derived.size() : executable.saved.size();
  FJ_TRY(const uint32_t index, PlanParser(in).numbered(is_derived ? 'd' : 'v'));
  if (index != next) return in.error("values are numbered in order");
  FJ_TRY_VOID(in.expect(":"));
  FJ_TRY(Buffer buffer, PlanParser(in).buffer());
  if (!is_derived) return executable.saved.push_back(std::move(buffer)), Result<void>();
  DerivedValue value{.buffer = std::move(buffer)};
  FJ_TRY_VOID(read_derivation(in, value));
  executable.derived.push_back(std::move(value));
  return {};
}

}  // namespace

std::optional<KernelId> parse_kernel_id(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  KernelId id;
  const char* const begin = text.data();
  const auto first = std::from_chars(begin, begin + 16, id.high, 16);
  const auto second = std::from_chars(begin + 16, begin + 32, id.low, 16);
  if (first.ptr != begin + 16 || second.ptr != begin + 32) return std::nullopt;
  if (id.text() != text) return std::nullopt;  // capitals, signs
  return id;
}

Result<Executable> parse_executable(std::string_view printed) {
  text::Reader in(printed);
  Executable executable;
  FJ_TRY_VOID(in.expect("executable"));
  FJ_TRY_VOID(in.expect("@"));
  FJ_TRY(executable.name, PlanParser(in).name());
  FJ_TRY_VOID(in.expect("{"));
  bool has_forward = false;
  while (!in.accept("}")) {
    if (in.accept("code")) {
      FJ_TRY_VOID(read_code(in, executable));
    } else if (in.accept("value")) {
      FJ_TRY_VOID(read_value(in, executable));
    } else if (in.accept("derive")) {
      FJ_TRY(CallPlan derivation, PlanParser(in).plan());
      executable.derive.push_back(std::move(derivation));
    } else if (in.accept("backward")) {
      FJ_TRY(CallPlan stage, PlanParser(in).plan());
      executable.backward.push_back(std::move(stage));
    } else {
      FJ_TRY_VOID(in.expect("forward"));
      if (has_forward) return in.error("a second plan forward");
      has_forward = true;
      FJ_TRY(executable.forward, PlanParser(in).plan());
    }
  }
  if (!has_forward) return in.error("expected a plan forward");
  if (!in.at_end()) return in.error("expected the end");
  return executable;
}

}  // namespace framejit::runtime
