// frame_hook/trace/torch/modes.cpp — modes of torch that the program enters: inference mode runs for real in a trace; a
// mode under which nothing can be recorded is a break.
#include <algorithm>

#include "frame_hook/trace/protocol/made_values.h"
#include "frame_hook/trace/torch/called_by_rows.h"
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/c_arguments.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/library_files.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/originals.h"
#include "guards/cpython/interrupts.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook::rows {

namespace {

PyObject* inference_mode_type() { return original("torch._C", "_InferenceMode"); }

ModeGuard& mode_guard(Shadows& shadows, Value* v) {
  auto it = shadows.tables().mode_guards.find(v);
  if (it == shadows.tables().mode_guards.end())
    graph_break(Reason::outside_effect, "leaving inference mode that was entered outside of the trace");
  return it->second;
}

void call_real(PyObject* object, const char* method, std::initializer_list<PyObject*> args) {
  PyRef bound = PyRef::steal(PyObject_GetAttrString(object, method));
  const PyRef done =
      bound ? PyRef::steal(PyObject_Vectorcall(bound.get(), args.begin(), args.size(), nullptr)) : PyRef();
  FJ_ASSERT(done, std::string("_InferenceMode.") + method);
}

}  // namespace

// The dispatch keys guard None: a run of the tracer of TorchScript includes one. Its state is a new object in each run.
Value* tracing_state(Heap& heap, const Arguments&) {
  const PyRef state = PyRef::steal(PyObject_CallNoArgs(original("torch._C", "_get_tracing_state")));
  drop_error();
  if (state.get() != Py_None) graph_break(Reason::modes_unsupported, "tracing of torch.jit");
  return heap.none();
}

// Ops that run plainly, between two segments, cache the casts of weights. Without this call they would find casts of
// weights that have since changed.
Value* clear_autocast_cache(Shadows& shadows, const Arguments&) {
  PyObject* callable = original("torch", "clear_autocast_cache");
  auto& calls = shadows.tables().calls_at_exit;
  const bool is_known =
      std::any_of(calls.begin(), calls.end(), [&](const auto& call) { return call.first->object.get() == callable; });
  if (!is_known) calls.emplace_back(shadows.heap.constant_value(callable), Arguments{});
  return shadows.heap.none();
}

namespace {

// The break is at the instruction of the innermost frame outside of torch: torch's code around the mode runs plainly
// too.
[[noreturn]] void enters_mode(CallStack& stack, const char* mode) {
  const auto& frames = stack.frames();
  auto outside = std::find_if(frames.rbegin(), frames.rend(),
                              [](const auto& frame) { return !is_torch_file(frame->code->code->co_filename); });
  if (outside != frames.rend()) (*outside)->on_return = OnReturn::not_resumable;
  graph_break(Reason::mode_entered, mode);
}

}  // namespace

Value* enter_function_mode(CallStack& stack, const Arguments&) { enters_mode(stack, "a torch-function mode"); }
Value* enter_dispatch_mode(CallStack& stack, const Arguments&) { enters_mode(stack, "a torch-dispatch mode"); }
Value* enter_forward_ad(CallStack& stack, const Arguments&) { enters_mode(stack, "forward-mode AD"); }
Value* enter_transform(CallStack& stack, const Arguments&) { enters_mode(stack, "a functorch transform"); }

// torch.cond() and others. One break names the op.
Value* higher_order_op(NoPart&, const Arguments& args) {
  PyObject* const op = args.positional.empty() ? nullptr : args.positional[0]->object.get();
  PyObject** const members = op ? _PyObject_GetDictPtr(op) : nullptr;
  PyObject* const name = members && *members ? PyDict_GetItemWithError(*members, interned("_name")) : nullptr;
  graph_break(Reason::unknown_callable,
              std::string("torch.ops.higher_order.") + (name && PyUnicode_Check(name) ? text_of(name) : "*"));
}

Value* inference_mode_new(Shadows& shadows, const Arguments& args) {
  Value* mode = parse(shadows.errors, args, "_InferenceMode", {"mode"}, 1)[0];
  if (shadows.facts.type_of(mode) != &PyBool_Type)
    graph_break(Reason::inference_mode, "inference mode of " + describe(mode));
  constant_of(shadows, mode);
  InstanceValue* v = make_instance(shadows.heap, reinterpret_cast<PyTypeObject*>(inference_mode_type()));
  shadows.tables().mode_guards[v].argument = mode;
  return v;
}

// Enters a real guard to see which modes it sets, and leaves it at once. The trace keeps these modes.
Value* inference_mode_enter(TracedTensors& tensors, const Arguments& args) {
  Shadows& shadows = tensors.numbers.shadows;
  ModeGuard& guard = mode_guard(shadows, args.positional.at(0));
  if (guard.before) graph_break(Reason::inference_mode, "inference mode that is entered twice");
  guard.before = tensors.frontend.save_modes();
  const PyRef real = PyRef::steal(PyObject_CallOneArg(inference_mode_type(), constant_of(shadows, guard.argument)));
  FJ_ASSERT(real, "_InferenceMode");
  call_real(real.get(), "__enter__", {});
  guard.inside = tensors.frontend.save_modes();
  call_real(real.get(), "__exit__", {Py_None, Py_None, Py_None});
  tensors.frontend.restore_modes(guard.inside);
  return shadows.heap.none();
}

Value* inference_mode_exit(TracedTensors& tensors, const Arguments& args) {
  Shadows& shadows = tensors.numbers.shadows;
  ModeGuard& guard = mode_guard(shadows, args.positional.at(0));
  if (!guard.before) graph_break(Reason::inference_mode, "inference mode that is left twice");
  if (!tensors.frontend.same_modes(guard.inside, tensors.frontend.save_modes()))
    graph_break(Reason::inference_mode, "a mode that was changed inside inference mode and not restored");
  tensors.frontend.restore_modes(guard.before);
  guard.before = guard.inside = nullptr;
  return shadows.heap.none();
}

}  // namespace framejit::frame_hook::rows
