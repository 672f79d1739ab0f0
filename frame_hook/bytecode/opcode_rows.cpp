// frame_hook/bytecode/opcode_rows.cpp — the tables of opcodes.def as arrays: neutral opcodes by Op, raw opcodes by
// number.
#include "frame_hook/bytecode/opcode_rows.h"

#include <opcode.h>

#include <array>

namespace framejit::frame_hook {
namespace {

// opcode.h defines a macro for each opcode of the running version: the argument of OPCODE becomes its digits, or stays
// a word.
#define FJ_AS_TEXT(x) #x
#define FJ_EXPANDED(x) FJ_AS_TEXT(x)

constexpr int number_of(const char* text) {
  int number = 0;
  for (; *text; text++) {
    if (*text == '(' || *text == ')') continue;
    if (*text < '0' || *text > '9') return -1;
    number = number * 10 + (*text - '0');
  }
  return number;
}

using enum Instruction::Flag;

constexpr OpcodeRow kRows[] = {
#define OPCODE(name, since, until, neutral, flags) \
  {#name, number_of(FJ_EXPANDED(name)), since, until, Op::neutral, flags},
#include "frame_hook/bytecode/opcodes.def"
};

struct NeutralRow {
  const char* name;
  ArgKind arg;
  bool native;
  const char* effect;
};

constexpr bool run = true, leave = false;
constexpr NeutralRow kNeutral[] = {
#define NEUTRAL(name, arg, native, effect) {#name, ArgKind::arg, native, effect},
#include "frame_hook/bytecode/opcodes.def"
};

constexpr bool is_here(const OpcodeRow& row) {
  return row.number >= 0 && row.since <= kPythonVersion && (row.until == 0 || kPythonVersion <= row.until);
}

constexpr std::array<const OpcodeRow*, 256> rows_by_number() {
  std::array<const OpcodeRow*, 256> table{};
  for (const OpcodeRow& row : kRows)
    if (is_here(row) && row.number < 256) table[row.number] = &row;
  return table;
}
constexpr std::array<const OpcodeRow*, 256> kByNumber = rows_by_number();

}  // namespace

const OpcodeRow* row_of(uint8_t opcode) { return kByNumber[opcode]; }

const OpcodeRow* find_row(std::string_view name) {
  for (const OpcodeRow& row : kRows)
    if (is_here(row) && name == row.name) return &row;
  return nullptr;
}

const char* name_of(Op op) { return kNeutral[static_cast<size_t>(op)].name; }
const char* effect_of(Op op) { return kNeutral[static_cast<size_t>(op)].effect; }
ArgKind arg_kind_of(Op op) { return kNeutral[static_cast<size_t>(op)].arg; }
bool runs_natively(Op op) { return kNeutral[static_cast<size_t>(op)].native; }

std::string_view raw_name_of(uint8_t opcode) {
  const OpcodeRow* row = kByNumber[opcode];
  return row ? row->name : "";
}

}  // namespace framejit::frame_hook
