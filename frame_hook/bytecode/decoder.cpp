// frame_hook/bytecode/decoder.cpp — Code::decode.
//
// In: co_code as PyCode_GetCode gives it (specialisation and instrumentation undone, caches zero), the line and
// exception tables.
// One walk makes the instructions; a second resolves jump targets to positions. Version differences that a row cannot
// carry are the conditions on kPythonVersion below, each with the release that introduced it.
#include <opcode.h>

#include "frame_hook/bytecode/opcode_rows.h"
#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {
namespace {

struct Intrinsic { int number; Op op; };
// Include/internal/pycore_intrinsics.h; the ones not listed concern type parameters.
constexpr Intrinsic kUnaryIntrinsics[] = {{1, Op::print_expr},          {2, Op::import_star},
                                          {3, Op::stopiteration_error}, {4, Op::async_gen_wrap},
                                          {5, Op::unary_positive},      {6, Op::list_to_tuple}};
constexpr Intrinsic kBinaryIntrinsics[] = {{1, Op::prep_reraise_star}};

template <size_t N>
Op intrinsic(const Intrinsic (&table)[N], int number, Op otherwise) {
  for (const Intrinsic& row : table)
    if (row.number == number) return row.op;
  return otherwise;
}

int take_bits(Instruction& instruction, int count) {
  const int bits = instruction.arg & ((1 << count) - 1);
  instruction.arg >>= count;
  return bits;
}

void set_flag(Instruction& instruction, Instruction::Flag flag, bool on) {
  if (on) instruction.flags |= flag;
}

// Reads varints of the two tables. The exception table has the most significant chunk first, the line table the least
// significant one.
struct TableReader {
  const uint8_t* at;
  const uint8_t* end;
  explicit TableReader(PyObject* bytes)
      : at(reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(bytes))), end(at + PyBytes_GET_SIZE(bytes)) {}
  bool more() const { return at < end; }
  int big_endian() {
    int value = *at & 63;
    while (*at++ & 64) value = (value << 6) | (*at & 63);
    return value;
  }
  int little_endian() {
    int value = 0, shift = 0;
    do value |= (*at & 63) << shift, shift += 6;
    while (*at++ & 64);
    return value;
  }
  int signed_little_endian() {
    const int value = little_endian();
    return value & 1 ? -(value >> 1) : value >> 1;
  }
};

// Objects/locations.md: a byte 1kkkklll per entry (kind, length - 1), then the data of the kind.
std::vector<int> lines_of_units(PyCodeObject* code, int unit_count) {
  std::vector<int> lines(unit_count, 0);
  TableReader table(code->co_linetable);
  int line = code->co_firstlineno, unit = 0;
  while (table.more()) {
    const int first = *table.at++, kind = (first >> 3) & 15, length = (first & 7) + 1;
    if (kind <= 9) {
      table.at += 1;
    } else if (kind <= 12) {
      line += kind - 10;
      table.at += 2;
    } else if (kind <= 14) {
      line += table.signed_little_endian();
      if (kind == 14) table.little_endian(), table.little_endian(), table.little_endian();
    }
    for (int i = 0; i < length && unit < unit_count; i++) lines[unit++] = kind == 15 ? 0 : line;
  }
  return lines;
}

}  // namespace

class Decoder {
 public:
  explicit Decoder(PyCodeObject* code) : code_(code), result_(std::make_shared<Code>()) {}

  std::shared_ptr<const Code> decode() {
    PyRef bytes = PyRef::steal(PyCode_GetCode(code_));
    if (!bytes) return nullptr;
    units_ = reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(bytes.get()));
    unit_count_ = static_cast<int>(PyBytes_GET_SIZE(bytes.get()) / 2);
    result_->code = code_;
    result_->unit_count = unit_count_;
    result_->local_count = code_->co_nlocalsplus;
    result_->free_count = code_->co_nfreevars;
    result_->stack_size = code_->co_stacksize;
    result_->position_of_unit_.assign(unit_count_, -1);
    lines_ = lines_of_units(code_, unit_count_);
    result_->instructions.reserve(unit_count_ / 2 + 1);
    for (int unit = 0; unit < unit_count_;) unit = decode_at(unit);
    read_exception_table();
    for (Instruction& instruction : result_->instructions)
      instruction.target_position = result_->position_at(instruction.target);
    for (ExceptionRange& range : result_->exception_table) range.target_position = result_->position_at(range.target);
    return result_;
  }

 private:
  struct Raw { int opcode, arg, opcode_index, next; };

  Raw read(int unit) const {
    Raw raw{units_[2 * unit], units_[2 * unit + 1], unit, 0};
    while (raw.opcode == EXTENDED_ARG && raw.opcode_index + 1 < unit_count_) {
      raw.opcode_index++;
      raw.opcode = units_[2 * raw.opcode_index];
      raw.arg = (raw.arg << 8) | units_[2 * raw.opcode_index + 1];
    }
    raw.next = raw.opcode_index + 1;
    while (raw.next < unit_count_ && units_[2 * raw.next] == CACHE) raw.next++;
    return raw;
  }

  int decode_at(int unit) {
    const Raw raw = read(unit);
#ifdef KW_NAMES
    if (raw.opcode == KW_NAMES) {
      keyword_names_ = PyTuple_GET_ITEM(code_->co_consts, raw.arg);
      if (call_start_ < 0) call_start_ = unit;
      return raw.next;
    }
#endif
#ifdef PRECALL
    if (raw.opcode == PRECALL && kPythonVersion == 311) {
      if (call_start_ < 0) call_start_ = unit;
      return raw.next;
    }
#endif
    Instruction instruction;
    const OpcodeRow* row = row_of(static_cast<uint8_t>(raw.opcode));
    instruction.op = row ? row->op : Op::unknown;
    instruction.flags = row ? row->flags : 0;
    instruction.raw = static_cast<uint8_t>(raw.opcode);
    instruction.arg = raw.arg;
    instruction.index = unit;
    instruction.opcode_index = raw.opcode_index;
    instruction.next_index = raw.next;
    instruction.line = lines_[raw.opcode_index];
    if (instruction.op == Op::call) resolve_call(instruction);
    if (!split_super_instruction(instruction)) {
      resolve(instruction);
      push(instruction);
    }
    return raw.next;
  }

  void push(const Instruction& instruction) {
    if (!instruction.has(Instruction::kSecondHalf))
      result_->position_of_unit_[instruction.index] = static_cast<int32_t>(result_->instructions.size());
    result_->instructions.push_back(instruction);
  }

  void resolve_call(Instruction& instruction) {
    if (call_start_ >= 0) instruction.index = call_start_;
    instruction.object = keyword_names_;
    call_start_ = -1;
    keyword_names_ = nullptr;
  }

  bool split_super_instruction([[maybe_unused]] Instruction& instruction) {
#ifdef LOAD_FAST_LOAD_FAST
    if (kPythonVersion < 313) return false;
    Op second;
    switch (instruction.raw) {
      case LOAD_FAST_LOAD_FAST:
      case STORE_FAST_LOAD_FAST: second = Op::load_fast; break;
      case STORE_FAST_STORE_FAST: second = Op::store_fast; break;
      default: return false;
    }
    Instruction half = instruction;
    half.op = second;
    half.arg = instruction.arg & 15;
    half.flags |= Instruction::kSecondHalf;
    instruction.arg >>= 4;
    push(instruction);
    push(half);
    return true;
#else
    return false;
#endif
  }

  void resolve(Instruction& i) {
    unpack_flags(i);
    adapt_to_version(i);
    switch (arg_kind_of(i.op)) {
      case ArgKind::name: i.object = PyTuple_GET_ITEM(code_->co_names, i.arg); break;
      case ArgKind::constant: i.object = PyTuple_GET_ITEM(code_->co_consts, i.arg); break;
      case ArgKind::jump: i.target = target_of(i); break;
      case ArgKind::none:
      case ArgKind::local:
      case ArgKind::count:
      case ArgKind::other: break;
    }
  }

  // Flags that CPython keeps in the low bits of the argument.
  void unpack_flags(Instruction& i) const {
    using enum Instruction::Flag;
    switch (i.op) {
      case Op::load_global: set_flag(i, kPushNull, take_bits(i, 1)); break;
      case Op::load_attr:
        if (kPythonVersion >= 312) set_flag(i, kMethod, take_bits(i, 1));
        break;
      case Op::load_super_attr: {
        const int bits = take_bits(i, 2);
        set_flag(i, kMethod, bits & 1);
        set_flag(i, kTwoArgSuper, bits & 2);
        break;
      }
      case Op::compare_op:
        if (kPythonVersion == 312) i.arg >>= 4;
        if (kPythonVersion >= 313) {
          set_flag(i, kToBool, i.arg & 16);
          i.arg >>= 5;
        }
        break;
      case Op::call_function_ex:
        set_flag(i, kHasKwargs, i.arg & 1);
        break;
      case Op::format_value:
        if (kPythonVersion >= 313) i.arg = 0;
        else set_flag(i, kHasSpec, i.arg & 4), i.arg &= 3;
        break;
      case Op::unpack_ex:
        i.extra = i.arg >> 8;
        i.arg &= 0xff;
        break;
      case Op::resume:
        i.arg &= 3;  // 3.13: a higher bit says "at depth 1"
        set_flag(i, kPolls, i.arg < 2);
        break;
      default: break;
    }
  }

  void adapt_to_version(Instruction& i) const {
    switch (i.op) {
      case Op::pop_top: i.arg = kPythonVersion == 312 && raw_name_of(i.raw) == "END_FOR" ? 2 : 1; break;
      case Op::make_function:
        if (kPythonVersion >= 313) i.arg = 0;
        break;
      case Op::typing_intrinsic_1: i.op = intrinsic(kUnaryIntrinsics, i.arg, i.op); break;
      case Op::typing_intrinsic_2: i.op = intrinsic(kBinaryIntrinsics, i.arg, i.op); break;
      default: break;
    }
  }

  int target_of(const Instruction& i) const {
    const int target = i.next_index + (i.has(Instruction::kBackward) ? -i.arg : i.arg);
    // An exhausted loop skips END_FOR (3.12), and the POP_TOP after it (3.13).
    return i.op == Op::for_iter ? target + (kPythonVersion - 311) : target;
  }

  void read_exception_table() {
    TableReader table(code_->co_exceptiontable);
    while (table.more()) {
      ExceptionRange range{};
      range.start = table.big_endian();
      range.end = range.start + table.big_endian();
      range.target = table.big_endian();
      const int depth_and_lasti = table.big_endian();
      range.depth = depth_and_lasti >> 1;
      range.push_lasti = depth_and_lasti & 1;
      result_->exception_table.push_back(range);
    }
  }

  PyCodeObject* code_;
  std::shared_ptr<Code> result_;
  const uint8_t* units_ = nullptr;
  int unit_count_ = 0;
  std::vector<int> lines_;
  int call_start_ = -1;
  PyObject* keyword_names_ = nullptr;
};

std::shared_ptr<const Code> Code::decode(PyCodeObject* code) { return Decoder(code).decode(); }

}  // namespace framejit::frame_hook
