// frame_hook/trace/torch/tensor_frontend.h — all that the tracer knows about torch. One implementation is in
// frame_hook/aten, a fake one in the torch-free tests.
//
// A real tensor that the trace meets becomes a graph input: a traced tensor, an exact torch.Tensor without data. C
// functions called on traced tensors run for real under a record scope, and their ATen ops land in the recording.
#pragma once

#include <Python.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/compiler.h"
#include "graph/dynamic_extents.h"
#include "graph/number_history.h"
#include "guards/cpython/py_ref.h"
#include "guards/guard.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

enum class TensorClass : uint8_t {
  kNot,          // not a tensor
  kPlain,        // exact Tensor, Parameter or Buffer that can be traced
  kUnsupported,  // a tensor that breaks: subclass, needs grad, device, dtype, layout (the reason says which)
};

// The dtype of a 0-dim tensor that promotes as a Python float does, next to a certain traced tensor.
enum class FloatBeside : uint8_t { kConstant, kDouble, kFloat };  // none; float64; float32

// Whether packed, folded or cast copies of weights may stand in for them.
enum class Freezing : uint8_t {
  kNever,
  kProven,   // while it is proven that nobody wrote to the weights
  kTrusted,  // the user promises that nobody writes to them without changing their version
};
struct Deriving {
  Freezing freezing = Freezing::kProven;
  bool is_at_once = false;  // by the first call, for code that wants to see it
  bool replays = false;     // plans of a GPU are replayed as graphs of its driver
};

// Work that a call leaves to its caller: to derive values from the weights, which have stayed the same for enough
// calls. If the caller drops it undone, a later call offers it again.
class DueDerivation {
 public:
  virtual ~DueDerivation() = default;
  virtual void derive() = 0;  // inside a compile
};

// The objects that hold a call's weights: values derived from the weights are dropped when one of the objects dies.
struct WeightOwners {
  PyObject* const* objects = nullptr;  // borrowed
  size_t count = 0;
  std::unique_ptr<DueDerivation> due;  // set by CompiledCall::run
};

// The outcome of one run of a compiled call. Unless it is `done`, a Python error is set.
enum class CallStatus : uint8_t {
  done,
  failed,  // nothing was written, and plain Python must run in its place
  wrong,   // like failed, and it must never run again: a fact that it was compiled with has turned out to be wrong
  raised,  // the error is the user's, whose code ran: plain Python must not run in its place
};
struct CallResult {
  CallStatus status = CallStatus::done;
  Reason stopped_by = Reason::run_failed;  // if failed or wrong: the row that it counts for
};

// A compiled recording: Python tensors in, Python tensors out. Threads share it.
class CompiledCall {
 public:
  virtual ~CompiledCall() = default;
  // inputs: borrowed, one per recording input, a float if add_float made it; symbols: as the guards bound them.
  // outputs: new references. Input writes happen last.
  virtual CallResult run(PyObject* const* inputs, const int64_t* symbols, PyObject** outputs, WeightOwners& owners) = 0;
  size_t output_count = 0;
  size_t op_count = 0;      // ATen ops of the functional graph
  size_t kernel_count = 0;  // distinct compiled kernels
};

// A call of the traced program for which torch's engine runs. The tensors are traced, and borrowed.
struct GradientCall {
  std::vector<PyObject*> outputs, given;  // given: the gradient of each output
  std::vector<PyObject*> wanted;  // empty: all leaves that the outputs were computed from
  bool accumulates = false;  // the gradients are for .grad: each has memory of its own
  bool keeps_graph = false, creates_graph = false;
};
struct TracedGradient {
  PyRef of, gradient;  // gradient: null where the outputs do not depend on the tensor
};

// A torch.autograd.Function that records a gradient, after its forward(). The tensors are traced, and borrowed.
struct FunctionCall {
  std::string name;  // of the node
  std::vector<PyObject*> inputs, saved, dirty, not_differentiable;
  std::vector<PyObject*> outputs;  // null: no tensor
  bool makes_zeros = true, saves_after = false;  // saves_after: setup_context() has saved them
  size_t first_op = 0, first_value = 0;  // of the forward
};
struct TracedFunction {
  std::vector<PyRef> outputs;  // with the history of the call; null: this output is not a tensor
  std::vector<PyRef> gradients;  // one stand-in per output; null: backward() gets None
};

// What stands for an open float where torch takes a number, not a tensor.
struct FloatNumber {
  PyRef object;  // null: a Python error is set
  uint32_t id = 0;
};
// What has been learned of a FloatNumber: the float itself, or only whether it equals another one.
struct NumberRead {
  uint32_t id;
  std::optional<double> other;
  bool is_equal;
};

// One capture. It lives until the compiled result is bound.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual graph::ShapeEnv& shapes() = 0;

  // A real tensor (borrowed) becomes input number inputs()-1; dims in `dynamic` get symbols. New reference to the
  // traced tensor.
  // An empty `dynamic` means all constant. facts_of_input() gives the facts to guard it by, over the same symbols.
  virtual PyObject* add_input(PyObject* tensor, const std::string& source_text,
                              const graph::DynamicExtents& dynamic) = 0;
  virtual std::shared_ptr<const guards::TensorFacts> facts_of_input(size_t input) = 0;
  virtual size_t input_count() const = 0;

  virtual bool is_traced(PyObject* object) const = 0;
  // Calls `callable` with arguments in vectorcall form; ops on the thread are recorded meanwhile. New reference, or
  // null with a Python error set, or null without one if take_break() has the reason. Ops of a failed call are dropped.
  virtual PyObject* call(PyObject* callable, PyObject* const* args, size_t positional, PyObject* kwnames) = 0;
  virtual PyObject* get_attribute(PyObject* traced, PyObject* name) = 0;  // C getters and methods of torch.Tensor
  virtual std::optional<Error> take_break() = 0;  // why a recorded call cannot be in a graph
  // way: the program's own line, if the line is in library code: "model.py:12 forward, in ".
  virtual void set_line(const graph::Line& line, const std::string& way) = 0;

  // The contents of a traced tensor that depends only on constants: a new real tensor. Null without an error: not
  // known.
  virtual PyObject* known_contents(PyObject*) { return nullptr; }
  // A traced tensor that has the contents of a real one in each call. New reference, or null as in call().
  virtual PyObject* lift(PyObject*) { return nullptr; }
  virtual void keep_unwritten(PyObject*) {}  // from now on a write to its memory is a break

  // Symbolic integers that go in and out of recorded calls (torch.SymInt objects over our expressions).
  virtual PyObject* wrap_size(const graph::SymExpr& size) = 0;
  virtual std::optional<graph::SymExpr> unwrap_size(PyObject* object) = 0;
  // A float that must stay open: a 0-dim traced tensor, an input whose object in a call is the float itself. New
  // reference, or null with an error set.
  virtual PyObject* add_float(double hint, const std::string& source_text) = 0;
  virtual FloatBeside float_beside(PyObject* beside) = 0;
  // The number that stands for the float in such a 0-dim traced tensor, or in one that is computed from them. `now` is
  // its value in this trace.
  virtual FloatNumber float_number(PyObject* traced, double now) = 0;
  // How the number in a traced 0-dim tensor is computed (empty: not known), and the number in an input of this call.
  virtual graph::NumberSteps number_of(PyObject*) { return {}; }
  virtual double number_in_input(size_t) { return 0; }
  virtual std::vector<NumberRead> take_number_reads() { return {}; }  // since the last call

  // The gradients that the engine computes. False: take_break() says why, and plain Python must make the call.
  virtual bool gradients(const GradientCall&, std::vector<TracedGradient>&) { return false; }
  // Gives the outputs their history, and turns autocast off. What is recorded from here to end_function is the
  // backward; `gradients`, one per input, are what it returns (null: None). False: take_break() says why.
  virtual bool begin_function(const FunctionCall&, TracedFunction&) { return false; }
  virtual bool end_function(const std::vector<PyObject*>&) { return false; }
  // Turns a traced tensor into a leaf that needs a gradient. False: it is an input, has a history, or cannot have a
  // gradient.
  virtual bool make_leaf(PyObject*) { return false; }
  // Whether the last recorded call has made such a leaf by itself (torch.rand(3, requires_grad=True)).
  virtual bool take_new_leaf() { return false; }
  // What is recorded from here to the end of the scope is computed again in the backward, not saved for it. False: it
  // writes to something that existed before the scope.
  virtual void begin_checkpoint() {}
  virtual bool end_checkpoint() { return true; }

  virtual std::string text() const = 0;  // what was recorded so far
  virtual size_t op_count() const = 0;  // ops recorded so far
  virtual size_t value_count() const { return 0; }
  virtual std::vector<size_t> written_inputs() const { return {}; }  // inputs whose memory a recorded op writes

  // Ends the recording: outputs are traced tensors (borrowed) in order.
  virtual Result<graph::CapturedGraph> build(const std::vector<PyObject*>& outputs) = 0;
  // Times plans of the captured graph on the inputs of this call. The recording must outlive the timer.
  virtual graph::MakeTimer make_timer() { return nullptr; }
  // What runs the compiled graph on Python tensors. `user_backend` (borrowed): if not null, a callable that gets the
  // graph and decides what runs. Null with a Python error set if it raised.
  virtual std::unique_ptr<CompiledCall> bind(graph::CompiledGraph compiled, PyObject* user_backend,
                                             Deriving deriving) = 0;
};

class TensorFrontend {
 public:
  virtual ~TensorFrontend() = default;
  virtual TensorClass classify(PyObject* object, std::string* reason) = 0;
  // The facts by which a tensor is kUnsupported; null: no guard can ask for them.
  virtual std::shared_ptr<const guards::TensorFacts> facts_of_unsupported(PyObject*) { return nullptr; }
  virtual std::unique_ptr<Recording> begin() = 0;
  virtual std::shared_ptr<const guards::ModeFacts> current_modes() = 0;
  // The fact that no profiler records ranges and ops; null: one does.
  virtual std::shared_ptr<const guards::ModeFacts> no_listener() { return nullptr; }
  virtual bool records_nothing() { return false; }  // a mode or transform under which no op can be recorded is active
  // Modes that traced code may change (grad mode, autocast, ...): opaque snapshots. While tracing they are changed for
  // real; at the end the tracer restores the first snapshot, and the segment applies the last one when it differs.
  virtual std::shared_ptr<void> save_modes() = 0;
  virtual void restore_modes(const std::shared_ptr<void>& snapshot) = 0;
  virtual bool same_modes(const std::shared_ptr<void>& a, const std::shared_ptr<void>& b) = 0;
  // Whether the memory of one of the first `written` tensors may overlap another's.
  virtual bool may_overlap(PyObject* const* tensors, size_t written, size_t count) = 0;
  // Pure C functions of torch that read state or build constants and take no traced tensor (torch.device, torch.Size,
  // finfo, ...).
  virtual bool is_pure_without_tensors(PyObject* callable) = 0;
  // Whether this function answers True inside a trace, as torch.compiler.is_compiling() does.
  virtual bool answers_true_while_compiling(PyObject* callable) = 0;
};

// The frontend of this process, or null without torch. Set once at import.
TensorFrontend* tensor_frontend();
void set_tensor_frontend(TensorFrontend* frontend);

}  // namespace framejit::frame_hook
