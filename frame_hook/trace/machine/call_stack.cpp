// frame_hook/trace/machine/call_stack.cpp — the places of frames, and the exceptions that they handle.
#include "frame_hook/trace/machine/call_stack.h"

#include <algorithm>

#include "frame_hook/trace/values/library_files.h"
#include "frame_hook/trace/values/object_kinds.h"

namespace framejit::frame_hook {

namespace {

// Cleanup that CPython's compiler adds has no line; it lies after the statement that it belongs to.
int line_of_position(const Code& code, int position) {
  for (; position >= 0; --position)
    if (const int line = code.instructions[static_cast<size_t>(position)].line; line > 0) return line;
  return code.code->co_firstlineno;
}

}  // namespace

std::string text_of_position(const SymbolicFrame& frame) {
  return place_of(frame.code->code, line_of_position(*frame.code, static_cast<int>(frame.position)));
}

std::string CallStack::here() const {
  if (frames_.empty()) return "";
  const auto user = std::find_if(frames_.rbegin(), frames_.rend(),
                                 [](const auto& f) { return !is_library_file(f->code->code->co_filename); });
  const std::string place = text_of_position(*frames_.back());
  return user == frames_.rend() || user == frames_.rbegin() ? place : text_of_position(**user) + ", in " + place;
}

bool CallStack::is_torch_code(PyCodeObject* code) {
  auto [known, fresh] = torch_codes_.try_emplace(code, false);
  if (fresh) *known = is_torch_file(code->co_filename);
  return *known;
}

const SymbolicFrame& CallStack::user_frame() {
  for (auto f = frames_.rbegin(); f != frames_.rend(); ++f)
    if (!is_torch_code((*f)->code->code)) return **f;
  return *frames_.front();
}

Value* CallStack::handled_exception(bool* known) const {
  *known = true;
  for (auto frame = frames_.rbegin(); frame != frames_.rend(); ++frame) {
    if ((*frame)->handled.empty()) continue;
    if (Value* v = (*frame)->handled.back()) return v;
    if (!(*frame)->generator) return nullptr;
  }
  *known = false;
  return nullptr;
}

}  // namespace framejit::frame_hook
