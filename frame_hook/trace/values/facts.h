// frame_hook/trace/values/facts.h — what a trace relies on: asking for a fact about a value adds the guard that keeps
// it true.
//
// Each fact is guarded once per value, with the user's line that asked. Nothing here makes a value or runs code: if a
// type answers in Python, the object protocol inlines that code.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "frame_hook/trace/machine/call_stack.h"
#include "frame_hook/trace/machine/frame_trace.h"

namespace framejit::frame_hook {

struct GuardLine {  // of a code object
  int number;
  PyCodeObject* program;  // its line led there; null: the trace began in library code
  int program_line;
  bool in_torch;          // torch's own code asks, which the line calls
  guards::LineId id;
};

class Facts {
 public:
  Facts(FrameTrace& trace, CallStack& of_frames) : stack(of_frames), trace_(trace) {}
  void reset();                                            // a new attempt begins

  CallStack& stack;

  const guards::GuardSet& guards() const { return trace_.guards; }
  guards::SourceTable& sources() { return trace_.guards.sources; }
  guards::SourceId source_of(Value* v);                    // its source, or the constant source of its object
  guards::SourceId type_source(Value* v);
  bool is_computed(guards::SourceId source) const {
    if (source == guards::kNoSource) return false;
    const guards::SourceKind kind = trace_.guards.sources[source].kind;
    return kind == guards::SourceKind::computed || kind == guards::SourceKind::tensor_number;
  }

  void add_guard(guards::Guard guard);                     // with the user's line
  void add_guard(guards::GuardKind kind, guards::SourceId source, PyObject* object = nullptr, int64_t number = 0);
  // The same for a real value; nothing for one without a source, which the trace made.
  void guard_if_real(guards::GuardKind kind, guards::SourceId source, PyObject* object = nullptr, int64_t number = 0);
  void guard_order(std::vector<DictValue*>& dicts);  // the keys of these real dicts have the order of the trace
  void rely_on_mode(std::shared_ptr<const guards::ModeFacts> mode);
  template <typename Mode>
  bool relies_on_mode() const;
  guards::LineId user_line();  // of the innermost frame outside of torch

  PyTypeObject* type_of(Value* v);
  PyTypeObject* known_type(Value* v);                      // the type object that v stands for, or null
  void guard_value(Value* v);     // for a value with an object: by value if its type is compared that way, otherwise by
                                  // identity
  void guard_identity(Value* v);
  void guard_type_unchanged(PyTypeObject* type, guards::SourceId type_source);  // type_unchanged
  // The trace depends on a variable being bound, or not bound.
  void relies_on_binding(guards::SourceId source, bool bound);
  void relies_on_binding(const SymbolicFrame& frame, int slot);
  bool relies_on_nothing_handled();  // guards that no exception is being handled where the segment begins; false: one
                                     // is

 private:
  FrameTrace& trace_;
  PointerMap<PyTypeObject, bool> unchanged_types_;         // a type_unchanged guard exists
  PointerMap<PyCodeObject, std::vector<GuardLine>> guard_lines_;  // that guards of this trace name
  void guard_operands(Value* v);
};

template <typename Mode>
bool Facts::relies_on_mode() const {
  return std::ranges::any_of(guards().modes,
                             [](const auto& mode) { return dynamic_cast<const Mode*>(mode.get()) != nullptr; });
}

// type_of(), if the answer also depends on what the class holds: its special methods, its bases.
PyTypeObject* unchanged_type_of(Facts& facts, Value* v);
PyRef keys_of(PyObject* dict);  // a tuple
// Facts::guard_order() where a trace has become a recipe: the lines are those that the dicts remember.
void guard_order(guards::GuardSet& guards, std::vector<DictValue*>& dicts);
void guard_keyword_order(Facts& facts, const Arguments& args);  // for a callee that looks at it
void guard_parts(Facts& facts, IteratorValue* it);  // of a real zip, enumerate, map, filter: it has exactly these parts

}  // namespace framejit::frame_hook
