// frame_hook/bytecode/code.h — a code object decoded into version-neutral instructions.
//
// In: a PyCodeObject of CPython 3.11 to 3.13. Out: Code: instructions with resolved operands, jumps and lines, the
// exception table, liveness.
// A position is an index into Code::instructions. An index is a code unit of CPython (f_lasti / 2), at which a frame
// can be resumed.
// Where raw and neutral instructions differ in number:
//   EXTENDED_ARG        belongs to the instruction after it: `index` is the first EXTENDED_ARG, `opcode_index` is the
//                       opcode (f_lasti)
//   KW_NAMES PRECALL CALL   are one `call`: `index` is the first unit of the three, `opcode_index` that of CALL
//   LOAD_FAST_LOAD_FAST, STORE_FAST_LOAD_FAST, STORE_FAST_STORE_FAST   are two instructions of one index; the second
//                       has kSecondHalf: a frame cannot be resumed at it
//   CALL_INTRINSIC_1/2  become the neutral opcode of the intrinsic; CACHE units vanish
// A Code borrows from its code object, which must outlive it. Immutable, except that liveness is computed lazily (under
// the GIL).
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace framejit::frame_hook {

enum class Op : uint8_t {
#define NEUTRAL(name, arg, native, effect) name,
#include "frame_hook/bytecode/opcodes.def"
  kCount
};

enum class ArgKind : uint8_t { none, local, name, constant, count, jump, other };

struct Instruction {
  enum Flag : uint16_t {
    kMethod = 1,             // load_attr, load_super_attr: for a call that follows
    kPushNull = 2,           // load_global: a NULL goes with the value
    kNullAbove = 4,          // that NULL, or the one of kMethod, is pushed above the value
    kNamesOnStack = 8,       // call: tuple of keyword names on top
    kHasKwargs = 16,         // call_function_ex
    kHasSpec = 32,           // format_value
    kToBool = 64,            // compare_op
    kExactBool = 128,        // conditional jumps: the value is True or False
    kBackward = 256,         // jumps
    kPolls = 512,            // the interpreter polls the eval breaker here
    kReplacesReceiver = 1024,  // send
    kTwoArgSuper = 2048,     // load_super_attr
    kSecondHalf = 4096,      // of a super-instruction
  };
  Op op = Op::unknown;
  uint8_t raw = 0;           // CPython's opcode
  uint16_t flags = 0;
  int32_t arg = 0;
  int32_t extra = 0;         // unpack_ex only
  int32_t index = 0;         // code unit to resume at in order to execute it
  int32_t opcode_index = 0;  // code unit while it executes: f_lasti, lines, exception table
  int32_t next_index = 0;    // code unit of the instruction after it
  int32_t target = -1;       // jumps: code unit
  int32_t target_position = -1;
  int32_t line = 0;          // 0: none
  PyObject* object = nullptr;  // borrowed: the name, the constant, the keyword names of a call

  bool has(Flag flag) const { return (flags & flag) != 0; }
};

struct ExceptionRange {      // code units; sorted, not overlapping
  int start, end, target, depth;
  bool push_lasti;
  int target_position;
};

struct SourceSpan {
  int line = 0, end_line = 0, column = -1, end_column = -1;
};  // -1: unknown; columns are UTF-8 bytes

// What a localsplus slot is.
enum SlotKind : uint8_t { kLocalSlot = 0x20, kCellSlot = 0x40, kFreeSlot = 0x80 };

class Code {
 public:
  // Null with a Python error set when out of memory. Unknown opcodes become Op::unknown.
  static std::shared_ptr<const Code> decode(PyCodeObject* code);

  PyCodeObject* code = nullptr;
  std::vector<Instruction> instructions;
  std::vector<ExceptionRange> exception_table;
  int unit_count = 0;
  int local_count = 0;       // co_nlocalsplus: locals, then cells that are not arguments, then free variables
  int free_count = 0;
  int stack_size = 0;

  int flags() const { return code->co_flags; }
  bool is_generator_like() const { return (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0; }
  PyObject* local_name(int slot) const { return PyTuple_GET_ITEM(code->co_localsplusnames, slot); }  // borrowed
  uint8_t local_kind(int slot) const;                       // SlotKind bits

  // The instruction that starts at this code unit; -1 if none does (cache units, second units of a merged call).
  int position_at(int unit) const { return unit >= 0 && unit < unit_count ? position_of_unit_[unit] : -1; }
  const ExceptionRange* find_handler(int opcode_index) const;
  SourceSpan span(const Instruction& instruction) const;    // slow: for messages

  // Slots that may be read from `position` on, handlers included; cell slots always count as read.
  bool is_live(int position, int slot) const;

 private:
  friend class Decoder;
  void compute_liveness() const;
  std::vector<int32_t> position_of_unit_;
  mutable std::vector<uint64_t> live_;  // rows of live_words_ words, one per instruction; empty until asked for
  mutable size_t live_words_ = 0;
};

const char* name_of(Op op);                    // "load_fast"
const char* effect_of(Op op);  // the row's stack effect; for tests
ArgKind arg_kind_of(Op op);
bool runs_natively(Op op);  // hook/evaluator has it; for tests
std::string_view raw_name_of(uint8_t opcode);  // "LOAD_FAST" on the running version; empty: no row
bool ends_flow(Op op);                         // the next instruction is not reached: jump, returns, raises

std::string file_name(PyCodeObject* code);            // without its folder, except "logging/__init__.py"
std::string place_of(PyCodeObject* code, int line);   // "model.py:31 Net.forward"

// "  12 LOAD_FAST 0 (x)" lines, one per instruction, for the bytecode log.
std::string to_text(const Code& code);

}  // namespace framejit::frame_hook
