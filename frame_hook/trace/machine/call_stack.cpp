// frame_hook/trace/machine/call_stack.cpp — the places of frames, and the exceptions that they handle.
#include "frame_hook/trace/machine/call_stack.h"

#include "frame_hook/trace/values/library_files.h"
#include "frame_hook/trace/values/object_kinds.h"

namespace framejit::frame_hook {

// Cleanup that CPython's compiler adds has no line; it lies after the statement that it belongs to.
int line_of_position(const SymbolicFrame& frame) {
  for (auto position = static_cast<int>(frame.position); position >= 0; --position)
    if (const int line = frame.code->instructions[static_cast<size_t>(position)].line; line > 0) return line;
  return frame.code->code->co_firstlineno;
}

std::string text_of_position(const SymbolicFrame& frame) { return place_of(frame.code->code, line_of_position(frame)); }

std::string CallStack::way_to(const SymbolicFrame& frame) {
  const SymbolicFrame* const of_program = program_frame();
  if (of_program) return of_program == &frame ? "" : text_of_position(*of_program) + ", in ";
  // A trace that begins in library code, as after a break in an inlined call, has no line of the program.
  if (!way_to_trace_) way_to_trace_ = place_of_caller();
  return *way_to_trace_;
}

const CodeOrigin& CallStack::origin_of(PyCodeObject* code) {
  auto [known, fresh] = origins_.try_emplace(code, CodeOrigin{});
  if (fresh) *known = {is_torch_file(code->co_filename), is_library_file(code->co_filename)};
  return *known;
}

const SymbolicFrame& CallStack::user_frame() {
  for (auto f = frames_.rbegin(); f != frames_.rend(); ++f)
    if (!origin_of((*f)->code->code).is_torch) return **f;
  return *frames_.front();
}

const SymbolicFrame* CallStack::program_frame() {
  for (auto f = frames_.rbegin(); f != frames_.rend(); ++f)
    if (!origin_of((*f)->code->code).is_library) return f->get();
  return nullptr;
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
