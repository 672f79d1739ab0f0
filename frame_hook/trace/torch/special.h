// frame_hook/trace/torch/special.h — what the tracer must know about individual torch functions beyond calling them.
// The handlers of special.def are declared in builtins.h; this part recognises functions by their own marks, not by
// identity.
#pragma once

#include "frame_hook/trace/machine/tracer.h"

namespace framejit::frame_hook {

enum class SpecialFunction : uint8_t {
  none,
  graph_break,   // a call that asks for one
  disabled,      // the user disabled compilation of it
  unwrap,  // torch's own disable wrapper around one of its functions, or the result of torch.compile: the wrapped
           // function is traced
  compiling,  // answers True inside a trace
  constant,  // the user says that it always returns the same
  health_check,  // an optimizer's check of its device's state: traced, as if the answer were known
  tag_module,  // torch.compile notes, weakly and by id(), that a module was made; there is nothing to note about one
               // that the trace makes
};
SpecialFunction classify_function(TensorFrontend& frontend, PyFunctionObject* function);

// Calls a Python function that must not simply be inlined; null: inline it.
Value* call_special_function(Tracer& t, FunctionValue* function, const Arguments& args);

// Whether the calling code is torch.optim's.
bool is_optimizer_calling(const CallStack& stack);

// Calls a torch function, with its floats as float_operands.def says.
Value* call_torch(Tracer& t, PyObject* callable, Arguments args);

// Called when a call of `callable` breaks. Logs once, if the program has given torch's compiler a replacement for it
// (torch.compiler.substitute_in_graph).
void warn_if_substituted(PyObject* callable);

}  // namespace framejit::frame_hook
