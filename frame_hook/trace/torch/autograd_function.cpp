// frame_hook/trace/torch/autograd_function.cpp — torch.autograd.Function: apply() inlines forward() and, if the call
// records a gradient, backward().
//
// Both are traced where the program calls apply(). Eager runs backward() later, when the state of the program may have
// changed. So the trace breaks if backward() reads or writes such state. Once forward() is done, that includes the
// context.
#include <algorithm>

#include "frame_hook/trace/machine/unresumable.h"
#include "frame_hook/trace/protocol/made_values.h"
#include "frame_hook/trace/torch/called_by_rows.h"
#include "frame_hook/trace/torch/outside_state.h"
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/payloads.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook::rows {

namespace {

[[noreturn]] void refuse_function(const char* why) {
  graph_break(Reason::custom_dispatch, std::string("an autograd.Function ") + why);
}

bool is_tensor(const Value* v) { return v->kind == ValueKind::tensor; }

// A call of apply(), and what it does with and without a gradient.
class Application {
 public:
  Application(Tracer& tracer, Value* function, std::vector<Value*> arguments)
      : t(tracer), cls(function), inputs(std::move(arguments)) {
    Value* type = t.get_attribute(cls, interned("_backward_cls"));
    context = make_instance(t.heap, t.facts.known_type(type));
    std::vector<Value*> needed;
    for (Value* v : inputs)
      needed.push_back(is_tensor(v) ? t.get_attribute(v, interned("requires_grad")) : t.heap.boolean(false));
    context->attrs.emplace_back(PyRef::borrow(interned("needs_input_grad")), t.heap.tuple(std::move(needed)));
    has_setup = overrides("setup_context");
  }

  Tracer& t;
  Value* const cls;
  const std::vector<Value*> inputs;
  InstanceValue* context;  // never leaves the trace, because no recipe can make one
  bool has_setup;  // setup_context() is a method of its own

  Value* get(const char* attribute) const {  // of the context; null: not set
    bool known = false;
    return context->find_attr(interned(attribute), &known);
  }
  bool overrides(const char* name) const {  // a method of torch.autograd.Function
    auto* base = reinterpret_cast<PyTypeObject*>(original("torch.autograd.function", "_SingleLevelFunction"));
    return _PyType_Lookup(t.facts.known_type(cls), interned(name)) != _PyType_Lookup(base, interned(name));
  }
  bool is_input(const Value* v) const { return std::find(inputs.begin(), inputs.end(), v) != inputs.end(); }
  bool needs_gradient() const {
    return std::any_of(inputs.begin(), inputs.end(), [&](Value* v) {
      return is_tensor(v) && t.truth(t.get_attribute(v, interned("requires_grad")));
    });
  }
  std::vector<Value*> listed(Value* output) const {
    return output->kind == ValueKind::tuple ? t.unpack(output) : std::vector<Value*>{output};
  }

  Value* forward() const {
    Value* function = t.get_attribute(cls, interned("forward"));
    const NoGrad no_grad;
    Value* output = nullptr;
    if (has_setup) {
      output = t.call(function, Arguments{inputs, {}});
      t.call(t.get_attribute(cls, interned("setup_context")), {context, t.heap.tuple(inputs), output});
    } else {
      std::vector<Value*> with_context = inputs;
      with_context.insert(with_context.begin(), context);
      output = t.call(function, Arguments{std::move(with_context), {}});
    }
    if (grad_mode()) refuse_function("whose forward() turns grad mode on");
    return output;
  }

  Value* without_gradient() const {
    Value* output = forward();
    if (get("dirty_tensors")) refuse_function("that marks inputs as dirty");
    if (output->kind != ValueKind::tuple) return output_or_refuse(output);
    std::vector<Value*> outputs = t.unpack(output);
    for (Value*& v : outputs) v = output_or_refuse(v);
    return t.heap.tuple(std::move(outputs));
  }

 private:
  // The result of forward(), which autograd's bookkeeping wraps. An input that is returned keeps its history, so the
  // result is a view of it, or detached if the input needs a gradient.
  Value* output_or_refuse(Value* v) const {
    if (!is_tensor(v)) return v;
    const bool needs_one = t.truth(t.get_attribute(v, interned("requires_grad")));
    if (is_input(v)) return needs_one ? method(t, v, "detach", {}) : method(t, v, "view_as", {v});
    if (needs_one) refuse_function("that returns a tensor from outside, which torch detaches in place");
    if (t.truth(method(t, v, "_is_view", {}))) refuse_function("that returns a view");
    return v;
  }
};

// ---- with a gradient

// What the trace will do to the program when it ends.
struct Effects {
  uint64_t writes;
  size_t calls, contexts = 0;  // contexts: locks, warnings, and values of context variables
  std::vector<const Value*> written;
  bool operator==(const Effects&) const = default;

  static Effects so_far(const SideTables& state) {
    Effects effects{state.writes, state.calls_at_exit.size(), 0, {}};
    effects.contexts = state.taken_locks.size() + state.warnings.size();
    for (const auto& [variable, values] : state.context_values) effects.contexts += values.size();
    for (const ClassData& data : state.class_data.values) effects.written.push_back(data.value);
    for (const auto& [tensor, gradient] : state.gradients.values) effects.written.push_back(gradient);
    return effects;
  }
};

class WithGradient {
 public:
  explicit WithGradient(const Application& a) : t_(a.t), a_(a) {}

  Value* run() {
    const uint64_t step = t_.attempts.resumable_step();
    const Unresumable whole(t_.stack);
    call_.name = a_.context->type->tp_name;
    call_.first_op = t_.recording().op_count();
    call_.first_value = t_.recording().value_count();
    Value* output = a_.forward();
    describe(output);
    const Modes modes(t_.frontend());
    TracedFunction traced;
    if (!t_.recording().begin_function(call_, traced)) refuse_by_recording();
    trace_backward(traced.gradients);
    auto& first = t_.shadows.tables().gradients.first_function;
    if (!first) first = step;
    std::vector<Value*> outputs = a_.listed(output);
    for (size_t i = 0; i < outputs.size(); ++i)
      if (traced.outputs[i]) outputs[i] = t_.heap.wrap_result(traced.outputs[i].release());
    return output->kind == ValueKind::tuple ? t_.heap.tuple(std::move(outputs)) : outputs[0];
  }

 private:
  class Modes {  // restores the modes at its end
   public:
    explicit Modes(TensorFrontend& frontend) : frontend_(frontend), saved_(frontend.save_modes()) {}
    ~Modes() { frontend_.restore_modes(saved_); }
    Modes(const Modes&) = delete;

   private:
    TensorFrontend& frontend_;
    const std::shared_ptr<void> saved_;
  };

  std::string words() const { return "autograd.Function " + call_.name; }
  [[noreturn]] void refuse(const std::string& why) const {
    throw GraphBreak{Reason::custom_dispatch, words() + ", " + why + ",", {}, this};
  }
  [[noreturn]] void refuse_by_recording() {
    if (const auto why = t_.recording().take_break()) graph_break(why->reason, why->message);
    refuse("which torch refuses");
  }

  PyObject* traced(Value* v) { return t_.tensors.traced(as<TensorValue>(v)); }

  // The tensors in a tuple that a method of the context has set.
  std::vector<PyObject*> tensors_in(const char* attribute) {
    std::vector<PyObject*> tensors;
    Value* const held = a_.get(attribute);
    if (!held || is_none(t_.facts, held)) return tensors;
    if (held->kind != ValueKind::tuple) refuse(std::string("whose ") + attribute + " is not a tuple");
    for (Value* v : t_.unpack(held)) {
      if (is_none(t_.facts, v)) continue;
      if (!is_tensor(v)) refuse(std::string("whose ") + attribute + " holds something other than tensors");
      tensors.push_back(traced(v));
    }
    return tensors;
  }

  void describe(Value* output) {
    for (Value* v : a_.inputs)
      if (is_tensor(v)) call_.inputs.push_back(traced(v));
    for (Value* v : a_.listed(output)) call_.outputs.push_back(is_tensor(v) ? traced(v) : nullptr);
    call_.saved = tensors_in("to_save");
    call_.dirty = tensors_in("dirty_tensors");
    call_.not_differentiable = tensors_in("non_differentiable");
    if (Value* zeros = a_.get("materialize_grads")) call_.makes_zeros = t_.truth(zeros);
    call_.saves_after = a_.has_setup;
  }

  // What eager would raise in the backward, and what cannot be traced there, is a break here.
  void trace_backward(std::vector<PyRef>& stand_ins) {
    std::vector<Value*> given;
    for (PyRef& gradient : stand_ins)
      given.push_back(gradient ? t_.heap.wrap_result(gradient.release()) : t_.heap.none());
    Value* saved = a_.get("to_save");
    a_.context->attrs.emplace_back(PyRef::borrow(interned("saved_tensors")),
                                   saved && !is_none(t_.facts, saved) ? saved : t_.heap.tuple({}));
    Value* const boxed = t_.find_attribute(a_.cls, interned("boxed_grads_call"));
    if (boxed && t_.truth(boxed)) refuse("whose backward() takes a list");
    Value* const function = t_.get_attribute(a_.cls, interned(a_.overrides("vjp") ? "vjp" : "backward"));
    given.insert(given.begin(), a_.context);
    std::vector<PyObject*> gradients;
    {
      std::vector<Value*> passed = a_.inputs;
      for (const auto& [name, v] : a_.context->attrs)
        if (v) passed.push_back(v);
      OutsideState outside(t_.heap, std::move(passed), t_.tensors.floats());
      const Effects before = Effects::so_far(t_.shadows.tables());
      gradients = run_backward(function, given);
      if (Effects::so_far(t_.shadows.tables()) != before || outside.is_written())
        refuse("whose backward() writes to objects or to its context");
      if (const std::string read = outside.what_is_read(); !read.empty())
        refuse("whose backward() reads " + read + ": keep the value on ctx in forward()");
    }
    if (!t_.recording().end_function(gradients)) refuse_by_recording();
  }

  // Per tensor among the inputs.
  std::vector<PyObject*> run_backward(Value* function, const std::vector<Value*>& given) {
    const NoGrad no_grad;
    try {
      Value* result = t_.call(function, Arguments{given, {}});
      if (grad_mode()) refuse("whose backward() turns grad mode on");
      return gradients_in(result);
    } catch (const SymbolicRaise&) { refuse("whose backward() raises"); } catch (GraphBreak& b) {
      if (b.worded_by == this) throw;
      b.detail = words() + ", whose backward() breaks (" + name_of(b.reason) + ": " + b.detail + "),";
      b.reason = Reason::custom_dispatch;
      b.worded_by = this;
      throw;
    }
  }

  // Eager ignores further Nones at the end.
  std::vector<PyObject*> gradients_in(Value* result) {
    std::vector<Value*> all = a_.listed(result);
    while (all.size() > a_.inputs.size() && is_none(t_.facts, all.back())) all.pop_back();
    if (all.size() != a_.inputs.size()) refuse("whose backward() returns the wrong number of gradients");
    std::vector<PyObject*> gradients;
    for (size_t i = 0; i < all.size(); ++i) {
      const bool is_given = !is_none(t_.facts, all[i]);
      if (is_given && (!is_tensor(all[i]) || !is_tensor(a_.inputs[i])))
        refuse("whose backward() returns something other than gradients of tensors");
      if (is_tensor(a_.inputs[i])) gradients.push_back(is_given ? traced(all[i]) : nullptr);
    }
    return gradients;
  }

  Tracer& t_;
  const Application& a_;
  FunctionCall call_;
};

}  // namespace

Value* function_apply(Tracer& t, const Arguments& args) {
  if (!args.keywords.empty() || args.positional.empty()) refuse_function("called with keywords");
  const Application application(t, args.positional[0], {args.positional.begin() + 1, args.positional.end()});
  for (Value* v : application.inputs)
    if (is_tensor(v)) t.tensors.traced(as<TensorValue>(v));
  if (grad_mode() && application.needs_gradient()) return WithGradient(application).run();
  return application.without_gradient();
}

}  // namespace framejit::frame_hook::rows
