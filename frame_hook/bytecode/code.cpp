// frame_hook/bytecode/code.cpp — queries on a decoded Code: handlers, liveness, spans, text.
#include "frame_hook/bytecode/code.h"

#include <algorithm>

#include "guards/cpython/names.h"

namespace framejit::frame_hook {

uint8_t Code::local_kind(int slot) const {
  return static_cast<uint8_t>(PyBytes_AS_STRING(code->co_localspluskinds)[slot]);
}

const ExceptionRange* Code::find_handler(int opcode_index) const {
  auto after = std::upper_bound(exception_table.begin(), exception_table.end(), opcode_index,
                                [](int index, const ExceptionRange& range) { return index < range.start; });
  if (after == exception_table.begin()) return nullptr;
  const ExceptionRange& range = *(after - 1);
  return opcode_index < range.end ? &range : nullptr;
}

SourceSpan Code::span(const Instruction& instruction) const {
  SourceSpan span;
  PyCode_Addr2Location(code, instruction.opcode_index * 2, &span.line, &span.column, &span.end_line, &span.end_column);
  return span;
}

bool Code::is_live(int position, int slot) const {
  if (local_kind(slot) & (kCellSlot | kFreeSlot)) return true;
  if (live_.empty()) compute_liveness();
  return (live_[position * live_words_ + slot / 64] >> (slot % 64)) & 1;
}

std::string file_name(PyCodeObject* code) {
  const std::string text = text_of(code->co_filename);
  size_t slash = text.rfind('/');
  if (slash != std::string::npos && slash > 0 && text.compare(slash, std::string::npos, "/__init__.py") == 0)
    slash = text.rfind('/', slash - 1);
  return text.substr(slash + 1);
}

std::string place_of(PyCodeObject* code, int line) {
  return file_name(code) + ":" + std::to_string(line) + " " + text_of(code->co_qualname);
}

bool ends_flow(Op op) {
  return op == Op::jump || op == Op::return_value || op == Op::return_const || op == Op::reraise ||
         op == Op::raise_varargs;
}

// Backward to a fixed point over rows of bits. A handler may be entered from any instruction of its range, so what it
// reads is live throughout the range, even after a store.
void Code::compute_liveness() const {
  live_words_ = static_cast<size_t>(local_count + 63) / 64 + 1;
  live_.assign(instructions.size() * live_words_, 0);
  auto row = [&](size_t position) { return live_.data() + position * live_words_; };
  std::vector<uint64_t> now(live_words_);
  auto merge = [&](int position) {
    if (position < 0) return;
    for (size_t w = 0; w < live_words_; w++) now[w] |= row(position)[w];
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t position = instructions.size(); position-- > 0;) {
      const Instruction& instruction = instructions[position];
      std::fill(now.begin(), now.end(), 0);
      if (!ends_flow(instruction.op) && position + 1 < instructions.size()) merge(static_cast<int>(position) + 1);
      merge(instruction.target_position);
      if (arg_kind_of(instruction.op) == ArgKind::local) {
        const uint64_t bit = uint64_t{1} << (instruction.arg % 64);
        if (instruction.op == Op::store_fast) now[instruction.arg / 64] &= ~bit;
        else now[instruction.arg / 64] |= bit;
      }
      if (const ExceptionRange* range = find_handler(instruction.opcode_index)) merge(range->target_position);
      if (std::equal(now.begin(), now.end(), row(position))) continue;
      std::copy(now.begin(), now.end(), row(position));
      changed = true;
    }
  }
}

namespace {

std::string operand_text(const Code& code, const Instruction& instruction) {
  auto utf8 = [](PyObject* text) {
    const char* bytes = find_text(text);
    return std::string(bytes ? bytes : Py_TYPE(text)->tp_name);
  };
  switch (arg_kind_of(instruction.op)) {
    case ArgKind::none: return "";
    case ArgKind::local: return " " + utf8(code.local_name(instruction.arg));
    case ArgKind::name: return " " + utf8(instruction.object);
    case ArgKind::constant: return " " + std::to_string(instruction.arg) + " " + utf8(instruction.object);
    case ArgKind::jump: return " to " + std::to_string(instruction.target);
    case ArgKind::count:
    case ArgKind::other: return " " + std::to_string(instruction.arg);
  }
  return "";
}

}  // namespace

std::string to_text(const Code& code) {
  std::string text;
  int line = -1;
  for (const Instruction& instruction : code.instructions) {
    text += instruction.line == line ? "     " : "L" + std::to_string(instruction.line) + " ";
    line = instruction.line;
    text += std::to_string(instruction.index) + " " + name_of(instruction.op) + operand_text(code, instruction) + "\n";
  }
  for (const ExceptionRange& range : code.exception_table)
    text += "handler " + std::to_string(range.start) + ".." + std::to_string(range.end) + " to " +
            std::to_string(range.target) + " depth " + std::to_string(range.depth) +
            (range.push_lasti ? " lasti" : "") + "\n";
  return text;
}

}  // namespace framejit::frame_hook
