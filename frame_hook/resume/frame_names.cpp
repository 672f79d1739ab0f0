#include "frame_hook/resume/frame_names.h"

#include <algorithm>
#include <vector>

#include "frame_hook/resume/entries.h"
#include "frame_hook/resume/source_text.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "guards/describe.h"

namespace framejit::frame_hook {

namespace {

std::string name_of_slot(PyCodeObject* code, int slot) {
  if (slot < 0 || slot >= PyTuple_GET_SIZE(code->co_localsplusnames)) return "";
  return guards::text_of_str(PyTuple_GET_ITEM(code->co_localsplusnames, slot));
}

// The loop over an iterator is the instruction for_iter. Returns those around a position, the outermost first.
std::vector<int> loops_around(const Code& code, int position) {
  std::vector<int> loops;
  for (int at = 0; at < position; ++at) {
    const Instruction& i = code.instructions[static_cast<size_t>(at)];
    if (i.op == Op::for_iter && i.target_position > position) loops.push_back(at);
  }
  return loops;
}

bool is_iterator(PyObject* object) { return object && Py_TYPE(object)->tp_iternext; }

}  // namespace

PyCodeObject* forward_of(const LiveFrame& frame) {
  static PyObject* const name = PyUnicode_InternFromString("forward");
  PyObject* const self = self_of(frame);
  PyObject* const forward = self && calls_forward(frame.code()) ? _PyType_Lookup(Py_TYPE(self), name) : nullptr;
  if (!forward || !PyFunction_Check(forward)) return nullptr;
  return reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyFunctionObject*>(forward)->func_code);
}

int FrameNames::positional_slot() const {
  const PyCodeObject* code = frame_.code();
  return code->co_flags & CO_VARARGS ? code->co_argcount + code->co_kwonlyargcount : -1;
}

int FrameNames::keyword_slot() const {
  const PyCodeObject* code = frame_.code();
  const int after = code->co_argcount + code->co_kwonlyargcount;
  return code->co_flags & CO_VARKEYWORDS ? after + (code->co_flags & CO_VARARGS ? 1 : 0) : -1;
}

std::string FrameNames::local(int slot) const {
  if (forward_of(frame_) && slot == positional_slot()) return "the arguments";
  if (forward_of(frame_) && slot == keyword_slot()) return "the keyword arguments";
  const std::string name = name_of_slot(frame_.code(), slot);
  return name.starts_with('.') ? "the iterator of the comprehension" : name;
}

bool FrameNames::are_arguments(int slot) const {
  return forward_of(frame_) && (slot == positional_slot() || slot == keyword_slot());
}

std::string FrameNames::item(int slot, int index, PyObject* key) const {
  PyCodeObject* const forward = forward_of(frame_);
  if (!forward) return "";
  if (!key && slot == positional_slot()) {
    const int rest = index + 1 - forward->co_argcount;  // after `self` and the parameters that have names
    if (rest < 0) return name_of_slot(forward, index + 1);
    if (!(forward->co_flags & CO_VARARGS)) return "";
    return name_of_slot(forward, forward->co_argcount + forward->co_kwonlyargcount) + "[" + std::to_string(rest) + "]";
  }
  return key && PyUnicode_Check(key) && slot == keyword_slot() ? guards::text_of_str(key) : "";
}

std::string FrameNames::pushed(int index) const {
  const Code* const code = frame_.decoded().get();
  const guards::FrameAccess access = frame_.access();
  const int position = code ? code->position_at(frame_.next_index()) : -1;
  if (position < 0 || index >= access.stack_size) return "a value of the interpreter";
  PyObject* const file = frame_.code()->co_filename;
  const auto text_at = [&](int at) {
    return text_of_span(file, code->span(code->instructions[static_cast<size_t>(at)]));
  };
  if (is_iterator(access.stack[index])) {
    const auto below = static_cast<size_t>(std::count_if(access.stack, access.stack + index, is_iterator));
    const std::vector<int> loops = loops_around(*code, position);
    const int begins = below < loops.size() ? loops[below] : 0;
    // The instruction before get_iter computes what the loop runs over.
    const bool is_known = begins > 1 && code->instructions[static_cast<size_t>(begins) - 1].op == Op::get_iter;
    const std::string text = is_known ? text_at(begins - 2) : "";
    if (!text.empty()) return "the loop over " + text;
  }
  if (index + 1 == access.stack_size && position > 0)
    if (const std::string text = text_at(position - 1); !text.empty()) return text;
  const int line = code->instructions[static_cast<size_t>(position)].line;
  return "a value that line " + std::to_string(line) + " computes with";
}

std::string FrameNames::captured(int index) const {
  PyCodeObject* const code = frame_.code();
  return name_of_slot(code, code->co_nlocalsplus - code->co_nfreevars + index);
}

}  // namespace framejit::frame_hook
