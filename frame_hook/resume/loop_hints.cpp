#include "frame_hook/resume/loop_hints.h"

#include <algorithm>

#include "guards/cpython/names.h"

namespace framejit::frame_hook {

namespace {

void add(std::vector<std::string>& texts, std::string text) {
  if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(std::move(text));
}

// Whether a local takes an index or a count: what an iterator gives, or what is computed. If it only takes the value of
// another local, it need not be a number that changes each time.
bool counts(const Code& code, int position) {
  const Instruction& store = code.instructions[position];
  if (store.op != Op::store_fast || !(code.local_kind(store.arg) & kLocalSlot)) return false;
  const Op before = code.instructions[position - 1].op;
  return before == Op::binary_op || before == Op::for_iter || before == Op::unpack_sequence;
}

}  // namespace

void add_loop_hints(const Code& code, int index, std::vector<std::string>& dynamic_sources) {
  const int position = code.position_at(index);
  std::vector<int> loops;  // where they begin; continue jumps there, too
  for (int end = position; end < static_cast<int>(code.instructions.size()); ++end) {
    const Instruction& jump = code.instructions[end];
    const int begin = jump.target_position;
    if (!jump.has(Instruction::kBackward) || begin < 0 || begin > position) continue;
    if (std::find(loops.begin(), loops.end(), begin) == loops.end()) {
      add(dynamic_sources, "next(stack[" + std::to_string(loops.size()) + "], 0)");
      loops.push_back(begin);
    }
    for (int at = std::max(begin, 1); at <= end; ++at)
      if (counts(code, at))
        add(dynamic_sources, std::string("L['") + text_of(code.local_name(code.instructions[at].arg)) + "']");
  }
}

}  // namespace framejit::frame_hook
