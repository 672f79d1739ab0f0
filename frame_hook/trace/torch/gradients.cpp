// frame_hook/trace/torch/gradients.cpp — backward() and grad() inside of traced code, leaves that it makes,
// checkpoints.
//
// The recording lets torch's engine run over the traced tensors. What AccumulateGrad would do to .grad happens to the
// trace's own .grad, which the exit writes. A call for which that would differ from eager is a break.
#include <algorithm>

#include "frame_hook/trace/machine/unresumable.h"
#include "frame_hook/trace/torch/called_by_rows.h"
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/c_arguments.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/payloads.h"

namespace framejit::frame_hook::rows {

namespace {

[[noreturn]] void refuse_gradients(const char* what) { graph_break(Reason::gradient_call, what); }

// A call that differentiates a backward breaks. The graph so far has one node for its backward, which has no derivative
// if it holds a Function. So the graph ends before the first Function, and PyTorch applies that.
void end_before_functions(Shadows& shadows, Attempts& attempts) {
  if (const auto& function = shadows.tables().gradients.first_function) attempts.move_break(*function);
}

// A call of torch's engine with the arguments of torch.autograd.backward() or grad().
class EngineCall {
 public:
  explicit EngineCall(Tracer& t) : t_(t) {}

  void set_outputs(Value* outputs, Value* given) {
    const std::vector<Value*> all = listed(outputs);
    std::vector<Value*> gradients(all.size(), nullptr);
    if (!is_none(t_.facts, given)) gradients = listed(given);
    if (gradients.size() != all.size()) refuse_gradients("a backward with the wrong number of gradients");
    for (size_t i = 0; i < all.size(); ++i) add_output(all[i], gradients[i]);
  }
  void set_wanted(Value* wanted) {
    for (Value* v : listed(wanted)) {
      call_.wanted.push_back(traced(v));
      wanted_.push_back(v);
    }
    if (call_.wanted.empty()) refuse_gradients("a backward to no tensor");
  }
  void set_graph(Value* retain, Value* create) {
    call_.creates_graph = create && t_.truth(create);
    call_.keeps_graph = is_none(t_.facts, retain) ? call_.creates_graph : t_.truth(retain);
  }

  void accumulate() {
    if (call_.creates_graph) refuse(Reason::gradient_call, "backward(create_graph=True)");
    for (Value* v : wanted_)
      if (!is_true(v, "is_leaf")) refuse_gradients("a backward to a tensor that is not a leaf");
    call_.accumulates = true;
    for (TracedGradient& found : run()) {
      auto* leaf = as<TensorValue>(t_.heap.wrap_result(found.of.release()));
      if (!found.gradient) continue;
      Value* gradient = t_.heap.wrap_result(found.gradient.release());
      Value* const old = t_.get_attribute(leaf, interned("grad"));
      if (is_none(t_.facts, old)) {
        t_.shadows.tables().gradients.set(leaf, gradient);
        continue;
      }
      if (is_true(old, "requires_grad")) refuse_gradients("a gradient that is added to one with a history");
      const NoGrad as_in_a_backward;
      method(t_, old, "add_", {gradient});
    }
  }

  Value* gradients(bool may_be_unused, bool zeros) {
    std::vector<Value*> results;
    for (TracedGradient& found : run()) {
      if (!found.gradient && !may_be_unused)
        refuse(Reason::gradient_call, "the gradient of a tensor that was not used");
      if (found.gradient) results.push_back(t_.heap.wrap_result(found.gradient.release()));
      else results.push_back(zeros ? called("zeros_like", wanted_[results.size()]) : t_.heap.none());
    }
    return t_.heap.tuple(std::move(results));
  }

 private:
  // The tensors in a list or tuple, or one tensor alone.
  std::vector<Value*> listed(Value* v) {
    if (v->kind == ValueKind::list || v->kind == ValueKind::tuple) return t_.unpack(v);
    return {v};
  }
  bool is_true(Value* v, const char* attribute) { return t_.truth(t_.get_attribute(v, interned(attribute))); }
  bool is_equal(Value* a, Value* b, const char* attribute) {
    return t_.dicts.equal(t_.get_attribute(a, interned(attribute)), t_.get_attribute(b, interned(attribute)));
  }
  PyObject* traced(Value* v) {
    if (v->kind != ValueKind::tensor) refuse_gradients("a backward of an object that is not a plain tensor");
    return t_.tensors.traced(as<TensorValue>(v));
  }
  Value* called(const char* function, Value* of) {
    return t_.calls.recorded(original("torch", function), Arguments{{of}, {}});
  }

  void add_output(Value* output, Value* given) {
    call_.outputs.push_back(traced(output));
    if (!is_true(output, "requires_grad")) refuse_gradients("a backward of a tensor without a history");
    if (is_none(t_.facts, given)) {
      if (!is_true(t_.get_attribute(output, interned("dtype")), "is_floating_point") ||
          t_.as_index(method(t_, output, "numel", {})) != 1)
        refuse_gradients("a backward of a tensor that is not a number");
      given = called("ones_like", output);
    } else if (given->kind != ValueKind::tensor || !is_equal(given, output, "shape") ||
               !is_equal(given, output, "dtype")) {
      refuse_gradients("a backward from a gradient of another shape or dtype");
    }
    call_.given.push_back(traced(given));
  }

  std::vector<TracedGradient> run() {
    std::vector<TracedGradient> found;
    if (t_.recording().gradients(call_, found)) return found;
    if (const auto why = t_.recording().take_break()) refuse(why->reason, why->message);
    refuse(Reason::gradient_call, "a call of torch.autograd");
  }

  [[noreturn]] void refuse(Reason reason, std::string why) {
    if (call_.creates_graph) end_before_functions(t_.shadows, t_.attempts);
    graph_break(reason, std::move(why));
  }

  Tracer& t_;
  GradientCall call_;
  std::vector<Value*> wanted_;
};

void run_backward(EngineCall& call, Value* retain, Value* create, Value* inputs, bool has_inputs) {
  call.set_graph(retain, create);
  if (has_inputs) call.set_wanted(inputs);
  call.accumulate();
}

}  // namespace

Value* tensor_backward(Tracer& t, const Arguments& args) {
  std::vector<Value*> a =
      parse(t.errors, args, "backward", {"self", "gradient", "retain_graph", "create_graph", "inputs"}, 1);
  EngineCall call(t);
  if (a[0]->kind != ValueKind::tensor) refuse_gradients("a backward of an object that is not a plain tensor");
  call.set_outputs(a[0], a[1]);
  run_backward(call, a[2], a[3], a[4], !is_none(t.facts, a[4]));
  return t.heap.none();
}

Value* autograd_backward(Tracer& t, const Arguments& args) {
  std::vector<Value*> a =
      parse(t.errors, args, "backward",
            {"tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs"}, 1);
  if (!is_none(t.facts, a[4])) refuse_gradients("grad_variables");
  EngineCall call(t);
  call.set_outputs(a[0], a[1]);
  run_backward(call, a[2], a[3], a[5], !is_none(t.facts, a[5]));
  return t.heap.none();
}

Value* autograd_grad(Tracer& t, const Arguments& args) {
  std::vector<Value*> a = parse(t.errors, args, "grad",
                                {"outputs", "inputs", "grad_outputs", "retain_graph", "create_graph", "only_inputs",
                                 "allow_unused", "is_grads_batched", "materialize_grads"},
                                2);
  const auto is_set = [&](Value* v) { return v && t.truth(v); };
  if ((a[5] && !t.truth(a[5])) || is_set(a[7])) {
    end_before_functions(t.shadows, t.attempts);
    refuse_gradients("a batch of gradients");
  }
  EngineCall call(t);
  call.set_outputs(a[0], a[2]);
  call.set_graph(a[3], a[4]);
  call.set_wanted(a[1]);
  const bool zeros = is_set(a[8]);
  return call.gradients(zeros || is_set(a[6]), zeros);
}

// A tensor that the trace has made and keeps becomes a leaf. One from outside would have to become one before the graph
// runs.
Value* tensor_requires_grad(Tracer& t, const Arguments& args) {
  std::vector<Value*> a = parse(t.errors, args, "requires_grad_", {"self", "requires_grad"}, 1);
  if (a[1] && t.facts.type_of(a[1]) != &PyBool_Type)
    graph_break(Reason::exception_raised, "a TypeError of requires_grad_(), whose argument is not a bool,");
  const bool wants = !a[1] || t.truth(a[1]);
  if (a[0]->kind != ValueKind::tensor) refuse_gradients("requires_grad_() of an object that is not a plain tensor");
  auto* self = as<TensorValue>(a[0]);
  PyObject* traced = t.tensors.traced(self);
  if (t.truth(t.get_attribute(self, interned("requires_grad"))) == wants) return self;
  if (!wants || self->object || !t.recording().make_leaf(traced))
    refuse_gradients("requires_grad_() of a tensor that is used outside");
  t.shadows.tables().gradients.new_leaves.emplace(self, t.attempts.resumable_step());
  return self;
}

Value* variable_class(Tracer& t, const Arguments& args) {
  std::vector<Value*> a = parse(t.errors, args, "Variable", {"data", "requires_grad", "volatile"}, 1);
  if (a[0]->kind != ValueKind::tensor || (a[2] && t.truth(a[2])))
    graph_break(Reason::unknown_callable, "class Variable with these arguments");
  Value* detached = method(t, a[0], "detach", {});
  return a[1] ? tensor_requires_grad(t, Arguments{{detached, a[1]}, {}}) : detached;
}

namespace {

class CheckpointScope {
 public:
  explicit CheckpointScope(Recording& recording) : recording_(recording) { recording_.begin_checkpoint(); }
  ~CheckpointScope() {
    if (is_open_) recording_.end_checkpoint();
  }
  CheckpointScope(const CheckpointScope&) = delete;
  bool end() {
    is_open_ = false;
    return recording_.end_checkpoint();
  }

 private:
  Recording& recording_;
  bool is_open_ = true;
};

// The arguments of checkpoint(): those for itself, and those of the function.
struct CheckpointCall {
  Value* reentrant = nullptr;
  bool is_plain = true;  // no argument changes what runs
  Arguments passed;
};

CheckpointCall checkpoint_call(Tracer& t, const Arguments& args) {
  CheckpointCall call;
  call.passed.positional.assign(args.positional.begin() + 1, args.positional.end());
  for (const auto& [name, v] : args.keywords) {
    const std::string_view text = text_of(name);
    if (text == "use_reentrant") call.reentrant = v;
    else if (text == "debug") call.is_plain = call.is_plain && !t.truth(v);
    else if (text == "preserve_rng_state") call.is_plain = call.is_plain && t.truth(v);
    else if (text == "context_fn") call.is_plain = false;
    else if (text != "determinism_check" && text != "early_stop") call.passed.keywords.emplace_back(name, v);
  }
  return call;
}

// Whether one of these values (or each, with `all`) is a tensor that needs a gradient. torch's function for a reentrant
// checkpoint gives every output a history, and sees only the tensors among its arguments.
bool is_as_reentrant(Tracer& t, const std::vector<Value*>& tensors, bool all) {
  const auto needs = [&](Value* v) {
    return v->kind == ValueKind::tensor && t.truth(t.get_attribute(v, interned("requires_grad")));
  };
  return all ? std::all_of(tensors.begin(), tensors.end(), needs) : std::any_of(tensors.begin(), tensors.end(), needs);
}

}  // namespace

// Eager runs the function twice; its writes would happen twice, so they are breaks.
Value* checkpoint(Tracer& t, const Arguments& args) {
  const auto as_torch_does = [&] {
    Value* wrapper = t.heap.constant_value(original("torch.utils.checkpoint", "checkpoint"));
    return t.call(t.get_attribute(wrapper, interned("__wrapped__")), args);
  };
  if (args.positional.empty()) return as_torch_does();
  CheckpointCall call = checkpoint_call(t, args);
  if (!call.is_plain || is_none(t.facts, call.reentrant)) return as_torch_does();
  const bool is_reentrant = t.truth(call.reentrant);
  if (!grad_mode()) return is_reentrant ? as_torch_does() : t.call(args.positional[0], call.passed);
  const std::vector<Value*> given = call.passed.positional;
  if (is_reentrant && (!call.passed.keywords.empty() || !is_as_reentrant(t, given, false))) return as_torch_does();
  const Unresumable whole(t.stack);
  const uint64_t writes = t.shadows.tables().writes;
  CheckpointScope scope(t.recording());
  Value* result = t.call(args.positional[0], call.passed);
  if (!scope.end() || t.shadows.tables().writes != writes)
    refuse_gradients("a checkpoint of a function that writes to what it is given");
  if (!is_reentrant) return result;
  const std::vector<Value*> outputs = result->kind == ValueKind::tuple ? t.unpack(result) : std::vector<Value*>{result};
  const bool returns_input = std::any_of(outputs.begin(), outputs.end(), [&](Value* v) {
    return std::find(given.begin(), given.end(), v) != given.end();
  });
  if (returns_input || !is_as_reentrant(t, outputs, true)) refuse_gradients("a checkpoint with outputs of other kinds");
  return result;
}

}  // namespace framejit::frame_hook::rows
