// frame_hook/bytecode/opcode_rows.h — rows of opcodes.def that hold for the CPython version of this build.
#pragma once

#include "frame_hook/bytecode/code.h"

namespace framejit::frame_hook {

inline constexpr int kPythonVersion = PY_MAJOR_VERSION * 100 + PY_MINOR_VERSION;  // 311

struct OpcodeRow {
  const char* name;
  int number;  // -1: not an opcode of this version
  int since, until;
  Op op;
  uint16_t flags;
};

const OpcodeRow* row_of(uint8_t opcode);           // null: no row
const OpcodeRow* find_row(std::string_view name);  // pseudo opcodes (numbers above 255) too; for tests

}  // namespace framejit::frame_hook
