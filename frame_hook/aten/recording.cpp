// frame_hook/aten/recording.cpp — runs torch's functions under the recorder, and says which results can be used.
#include "frame_hook/aten/recording.h"

#include <ATen/ops/lift_fresh.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <set>

#include "frame_hook/aten/plan_timer.h"
#include "frame_hook/aten/shared_memory.h"
#include "frame_hook/aten/torch_callables.h"
#include "frame_hook/aten/torch_modes.h"
#include "frame_hook/aten/user_backend.h"
#include "frame_hook/trace/values/originals.h"
#include "graph/aten/eager_errors.h"
#include "graph/aten/torch_texts.h"
#include "graph/node_values.h"
#include "graph/passes/pipeline.h"
#include "guards/aten/tensor_facts.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/names.h"
#include "guards/cpython/py_ref.h"
#include "guards/cpython/running_compile.h"
#include "guards/describe.h"
#include "runtime/aten/torch_words.h"
#include "runtime/base/log.h"

namespace framejit::frame_hook {
namespace {

bool is_of_word(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; }

std::string text_of_error(PyObject* value) {  // "": it has none
  const PyRef text = PyRef::steal(value != nullptr ? PyObject_Str(value) : nullptr);
  drop_error();
  return text ? guards::text_of_str(text.get()) : "";
}

std::string class_of_error(PyObject* type, const std::string& words) {
  std::string result = reinterpret_cast<PyTypeObject*>(type)->tp_name;
  if (!words.empty()) result += ": " + words;
  return result.substr(0, 200);
}

// The text of an error shows a symbolic size by its name, "s0". Eager prints the number.
bool names_symbol(const std::string& text, size_t symbol_count) {
  bool in_word = false;
  for (const char* at = text.c_str(); *at != '\0'; ++at) {
    if (!in_word && *at == 's' && std::isdigit(static_cast<unsigned char>(at[1])) != 0) {
      char* end = nullptr;
      if (std::strtoul(at + 1, &end, 10) < symbol_count && !is_of_word(*end)) return true;
    }
    in_word = is_of_word(*at);
  }
  return false;
}

// "torch.foo", "Tensor.foo": of a callable, or the name of an attribute.
std::string name_of(PyObject* called) {
  if (PyUnicode_Check(called)) return std::string("Tensor.") + text_of(called);
  const PyRef name = PyRef::steal(PyObject_GetAttrString(called, "__name__"));
  drop_error();
  const char* const own = find_text(name.get());
  const bool is_method = Py_TYPE(called) == &PyMethodDescr_Type;
  return (is_method ? "Tensor." : "torch function ") + std::string(own != nullptr ? own : Py_TYPE(called)->tp_name);
}

}  // namespace

PyObject* TorchRecording::add_input(PyObject* tensor, const std::string& source_text,
                                    const graph::DynamicExtents& dynamic) {
  HANDLE_TH_ERRORS
  const at::Tensor real = THPVariable_Unpack(tensor);
  at::Tensor traced = joint_.add_input(real, source_text, dynamic);
  inputs_.push_back(real);
  traced_inputs_.push_back(traced);
  return THPVariable_Wrap(traced);
  END_HANDLE_TH_ERRORS
}

PyObject* TorchRecording::add_float(double hint, const std::string& source_text) {
  HANDLE_TH_ERRORS
  floats_.push_back(inputs_.size());
  inputs_.push_back(at::scalar_tensor(hint, at::kDouble));
  traced_inputs_.push_back(recorder_->add_input(inputs_.back(), source_text));
  return THPVariable_Wrap(traced_inputs_.back());
  END_HANDLE_TH_ERRORS
}

// Beside a floating tensor that has dimensions, a 0-dim double promotes like a Python float. Beside integers, a Python
// float promotes to the default dtype. A float32 kernel reads it rounded to float32; a kernel of halves does not round
// it.
FloatBeside TorchRecording::float_beside(PyObject* beside) {
  const at::Tensor& tensor = THPVariable_Unpack(beside);
  if (at::isFloatingType(tensor.scalar_type()) && tensor.dim() > 0) return FloatBeside::kDouble;
  const at::ScalarType promoted = at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true)
                                      ? at::get_default_dtype_as_scalartype()
                                      : tensor.scalar_type();
  if (promoted == at::kDouble) return FloatBeside::kDouble;
  return promoted == at::kFloat ? FloatBeside::kFloat : FloatBeside::kConstant;
}

FloatNumber TorchRecording::float_number(PyObject* traced, double now) {
  HANDLE_TH_ERRORS
  const at::Tensor& tensor = THPVariable_Unpack(traced);
  py::object number = torch::get_symfloat_class()(py::cast(recorder_->float_of(tensor, now).toSymNodeImpl()));
  return {PyRef::steal(number.release().ptr()), graph::index_of(recorder_->value_of(tensor))};
  END_HANDLE_TH_ERRORS_RET({})
}

graph::NumberSteps TorchRecording::number_of(PyObject* traced) {
  graph::NumberSteps steps = recorder_->number_of(THPVariable_Unpack(traced));
  for (graph::NumberStep& step : steps)
    if (step.op == graph::NumberStep::kInput && std::ranges::find(floats_, step.a) != floats_.end())
      step.op = graph::NumberStep::kFloat;
  return steps;
}

std::vector<NumberRead> TorchRecording::take_number_reads() {
  std::vector<NumberRead> reads;
  for (const graph::FloatRead& read : recorder_->take_float_reads())
    reads.push_back({read.value, read.other, read.is_equal});
  return reads;
}

std::shared_ptr<const guards::TensorFacts> TorchRecording::facts_of_input(size_t input) {
  const graph::Graph& g = recorder_->graph();
  PyRef real = PyRef::steal(THPVariable_Wrap(inputs_[input]));
  facts_.emplace_back(input, guards::make_tensor_facts(real.get(), g.meta(g.inputs[input])));
  if (recorder_->relies_on_offset(input)) guards::include_offset(*facts_.back().second);
  return facts_.back().second;
}

bool TorchRecording::is_traced(PyObject* object) const {
  if (!is_tensor(object)) return false;
  const graph::TracedTensorImpl* traced = graph::as_traced(THPVariable_Unpack(object));
  return traced != nullptr && &traced->recorder() == recorder_.get();
}

PyObject* TorchRecording::refuse(Reason reason, std::string detail) {
  if (!break_) break_ = Error{reason, std::move(detail)};
  drop_error();
  return nullptr;
}

// A tensor that comes out must be a traced one, or one that went in. One that needs a gradient has a history.
bool TorchRecording::accept_result(PyObject* result, PyObject* const* args, size_t count, int depth) {
  if (is_tensor(result)) {
    const at::Tensor& tensor = THPVariable_Unpack(result);
    const graph::TracedTensorImpl* traced = graph::as_traced(tensor);
    if (traced == nullptr)
      return std::find(args, args + count, result) != args + count ||
             (refuse(Reason::unsupported_op, tensor.is_meta()
                                                 ? "a function that returns a tensor on the device meta"
                                                 : "a function that returns a tensor made outside of the trace"),
              false);
    const bool as_given = traced->input >= 0 && inputs_[static_cast<size_t>(traced->input)].requires_grad();
    // A view of a parameter that was made without grad mode still says that it needs a gradient, but has no history.
    const bool as_view = !at::GradMode::is_enabled() && tensor.is_view();
    return !tensor.requires_grad() || as_given || as_view || joint_.is_added_leaf(tensor) ||
           tensor.grad_fn() != nullptr || (depth == 0 && (made_leaf_ = make_leaf(tensor))) ||
           (refuse(Reason::gradient_call, "a function that makes a leaf that needs a gradient"), false);
  }
  if (depth > 2 || (!PyTuple_Check(result) && !PyList_CheckExact(result))) return true;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(result); ++i)
    if (!accept_result(PySequence_Fast_GET_ITEM(result, i), args, count, depth + 1)) return false;
  return true;
}

// torch's message is about its internals and does not help a user, so it only goes to the log.
PyObject* TorchRecording::refuse_limit(PyObject* called, const std::string& words) {
  log::emit(log::Kind::TorchWords, "", {{"function", name_of(called)}, {"words", words}});
  return refuse(Reason::unsupported_op,
                name_of(called) + ", whose own code needs a tensor with data, or sizes that are numbers,");
}

template <class F> PyObject* TorchRecording::recorded(F&& run, PyObject* called, PyObject* const* args, size_t count) {
  made_leaf_ = false;
  if (const auto mode = unsupported_mode()) return refuse(Reason::modes_unsupported, *mode);
  graph::RecordScope scope(*recorder_);
  std::optional<graph::ForwardScope> views_by_op;
  if (at::GradMode::is_enabled()) views_by_op.emplace();
  PyRef result;
  try {
    result = PyRef::steal(run());
  } catch (const c10::Error& e) {  // some torch functions let it through without a Python error
    drop_error();
    scope.drop();
    return refuse_limit(called, e.what_without_backtrace());
  }
  if (auto failure = recorder_->take_break()) {  // whatever became of the exception on its way through Python
    scope.drop();
    return refuse(failure->reason, failure->message);
  }
  if (!result) {
    scope.drop();
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    const std::string words = text_of_error(value);
    const std::string text = class_of_error(type, words);
    PyErr_Restore(type, value, trace);
    if (graph::has_torch_text(graph::TorchText::reads_memory, text))
      return refuse(Reason::data_dependent_value, "a function that reads a tensor's memory");
    // An error that real tensors would not raise: its cause is that these are traced.
    if (graph::has_torch_text(graph::TorchText::traced_limit, text)) return refuse_limit(called, text);
    return names_symbol(words, shapes().symbol_count())
               ? refuse(Reason::exception_raised, "an error of " + name_of(called))
               : nullptr;
  }
  if (!accept_result(result.get(), args, count, 0)) {
    scope.drop();
    return nullptr;
  }
  if (recorder_->relies_on_offsets())
    for (const auto& [input, facts] : facts_)
      if (recorder_->relies_on_offset(input)) guards::include_offset(*facts);
  return result.release();
}

PyObject* TorchRecording::call(PyObject* callable, PyObject* const* args, size_t positional, PyObject* kwnames) {
  const size_t count = positional + (kwnames != nullptr ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0),
               first_node = op_count();
  PyObject* result =
      recorded([&] { return PyObject_Vectorcall(callable, args, positional, kwnames); }, callable, args, count);
  if (result != nullptr) calls_.add_call(recorder_->graph(), first_node, callable, args, positional, kwnames, result);
  return result;
}

PyObject* TorchRecording::known_contents(PyObject* traced) {
  const at::Tensor contents = recorder_->known_contents(THPVariable_Unpack(traced));
  if (!contents.defined()) return nullptr;
  const graph::PlainExecution plain;
  return THPVariable_Wrap(contents.clone());
}

PyObject* TorchRecording::lift(PyObject* real) {
  const size_t first_node = op_count();
  PyObject* result =
      recorded([&] { return THPVariable_Wrap(at::lift_fresh(THPVariable_Unpack(real))); }, real, &real, 1);
  if (result == nullptr) return nullptr;
  if (PyObject* const made_by = find_original("torch", "from_numpy"))
    calls_.add_call(recorder_->graph(), first_node, made_by, &real, 1, nullptr, result);
  return result;
}

void TorchRecording::keep_unwritten(PyObject* traced) { recorder_->keep_unwritten(THPVariable_Unpack(traced)); }

PyObject* TorchRecording::get_attribute(PyObject* traced, PyObject* name) {
  const size_t first_node = op_count();
  PyObject* result = recorded([&] { return PyObject_GetAttr(traced, name); }, name, &traced, 1);
  if (result != nullptr) calls_.add_attribute(recorder_->graph(), first_node, traced, name, result);
  return result;
}

std::optional<Error> TorchRecording::take_break() {
  std::optional<Error> taken;
  taken.swap(break_);
  return taken;
}

PyObject* TorchRecording::wrap_size(const graph::SymExpr& size) {
  HANDLE_TH_ERRORS
  return py::cast(graph::sym_int_of(size, recorder_)).release().ptr();
  END_HANDLE_TH_ERRORS
}

std::optional<graph::SymExpr> TorchRecording::unwrap_size(PyObject* object) {
  if (PyLong_CheckExact(object)) {
    int overflow = 0;
    const int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);
    return overflow == 0 ? std::optional<graph::SymExpr>(value) : std::nullopt;
  }
  if (!torch::is_symint(py::handle(object))) return std::nullopt;
  try {
    return graph::expr_of(py::cast<c10::SymInt>(py::handle(object)));
  } catch (const std::exception&) {
    drop_error();
    return std::nullopt;
  }
}

std::vector<size_t> TorchRecording::written_inputs() const {
  const graph::Graph& g = recorder_->graph();
  std::set<uint32_t> written;
  for (const graph::Node& node : g.nodes)
    for (int8_t i : node.op->write_args) {
      graph::for_each_value(node.args[static_cast<size_t>(i)], [&](graph::ValueId v) {
        if (v != graph::kNoValue) written.insert(g.values[graph::index_of(v)].storage);
      });
    }
  std::vector<size_t> result;
  for (size_t i = 0; i < g.inputs.size(); ++i)
    if (written.count(g.values[graph::index_of(g.inputs[i])].storage) != 0) result.push_back(i);
  return result;
}

// Refuses two inputs that share memory if one is written: the order of reads and writes would matter.
Result<void> TorchRecording::refuse_overlap(const std::vector<size_t>& written) const {
  if (written.empty()) return {};
  std::vector<const at::Tensor*> tensors;
  for (size_t w : written) tensors.push_back(&inputs_[w]);
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (!std::binary_search(written.begin(), written.end(), i)) tensors.push_back(&inputs_[i]);
  if (!may_share_written(tensors, written.size())) return {};
  for (size_t w : written)
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (i != w && may_share_memory(inputs_[w], inputs_[i]))
        return Error{Reason::overlapping_inputs, std::to_string(w) + " and " + std::to_string(i)};
  return {};
}

// Autograd describes a view of a leaf relative to the leaf's base, but a traced leaf has no base. That matters if the
// view is returned or written.
Result<void> TorchRecording::refuse_leaf_views() {
  const graph::Graph& g = recorder_->graph();
  std::set<size_t> viewed;
  for (const OutputProperties& output : outputs_.properties)
    if (output.view && output.of == OutputProperties::Of::kInput) viewed.insert(output.index);
  for (const WrittenInput& written : outputs_.written) {
    const uint32_t storage = g.values[graph::index_of(g.inputs[written.input])].storage;
    if (std::any_of(g.nodes.begin(), g.nodes.end(), [&](const graph::Node& node) {
          return node.op->has(graph::kView) && g.values[graph::index_of(node.results[0])].storage == storage;
        }))
      viewed.insert(written.input);
  }
  for (size_t input : viewed) {
    if (!inputs_[input].requires_grad() || !inputs_[input].is_leaf()) continue;
    if (is_leaf_view(inputs_[input])) return Error{Reason::unsupported_write, "a view of a leaf that is itself a view"};
    outputs_.unviewed.push_back(input);
  }
  return {};
}

void TorchRecording::log_captured(const graph::CapturedGraph& captured) const {
  const graph::Graph& graph = captured.graph;
  if (log::enabled(log::Kind::Graph))
    log::emit(log::Kind::Graph, captured.where, {{"graph", graph.name}, {"calls", std::to_string(calls_.size())}},
              calls_.text(captured));
  graph::log_graph(graph, captured.where, "recording");
}

Result<graph::CapturedGraph> TorchRecording::build(const std::vector<PyObject*>& outputs) {
  std::vector<at::Tensor> tensors;
  for (PyObject* output : outputs) tensors.push_back(THPVariable_Unpack(output));
  if (std::any_of(tensors.begin(), tensors.end(), is_unusable_view))
    return Error{Reason::unsupported_write,
                 "a write to the memory of a returned view that split(), unbind() or a custom Function made,"};
  const std::vector<size_t> written = written_inputs();
  for (size_t w : written)
    if (const graph::Graph& g = recorder_->graph(); graph::shows_element_twice(g.meta(g.inputs[w]), shapes()))
      return Error{Reason::no_functional_form, "an input that shows an element twice is written"};
  {
    const graph::RecordScope scope(*recorder_);  // asking a view for its history may run the op that made it again
    const graph::ForwardScope views_by_op;
    outputs_ = outputs_of(tensors, traced_inputs_, written);
  }
  if (std::ranges::any_of(outputs_.properties, [](const auto& p) { return p.has_other_sign && !p.op; }))
    return Error{Reason::unsupported_tensor, "a returned tensor that is a negated view of shared memory"};
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (joint_.has_new_history(i)) outputs_.add_written(traced_inputs_[i]);
  FJ_TRY_VOID(refuse_leaf_views());
  FJ_TRY_VOID(settle_histories());
  find_views_on_the_way();
  const auto has_history = [](const OutputProperties& properties) {
    return properties.history || properties.new_history;
  };
  if (std::any_of(outputs_.properties.begin(), outputs_.properties.end(), has_history)) return build_joint(written);
  FJ_TRY_VOID(recorder_->build(outputs_.tensors));
  FJ_TRY_VOID(refuse_overlap(written));
  graph::CapturedGraph captured{recorder_->graph(), graph::where_it_begins(recorder_->graph())};
  log_captured(captured);
  return captured;
}

// torch's engine must run without the GIL. That is safe: no other thread has the traced tensors.
Result<graph::CapturedGraph> TorchRecording::build_joint(const std::vector<size_t>& written) {
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (joint_.has_new_history(i) && inputs_[i].is_view())
      return Error{Reason::unsupported_write, "a write to a view that needs a gradient"};
  std::optional<Result<graph::JointGraph>> joint;
  try {
    const WithoutGil released;
    const log::Stopwatch stopwatch(recorder_->graph().name, "joint");
    joint = joint_.build(outputs_.tensors, outputs_.roots());
  } catch (const std::exception& e) {  // eager's backward would raise it, or an op of it cannot be recorded
    const auto failure = recorder_->take_break();
    drop_error();
    const std::string cause = failure ? sentence(failure->reason, failure->message) : runtime::torch_words(e),
                      place = graph::where_it_begins(recorder_->graph());
    return Error{Reason::no_backward, cause + ", in the backward of " + (place.empty() ? "the graph" : place)};
  }
  if (!joint->ok()) return joint->error();
  FJ_TRY_VOID(refuse_overlap(written));
  graph::JointGraph& made = joint->value();
  graph::CapturedGraph captured{std::move(made.graph), graph::where_it_begins(recorder_->graph())};
  if (!made.layout.roots.empty())  // a root without gradients leads to leaves that the traced code made
    captured.joint = std::make_shared<const graph::JointLayout>(std::move(made.layout));
  log_captured(captured);
  return captured;
}

graph::MakeTimer TorchRecording::make_timer() {
  return [this](const graph::ShapeEnv& shapes, runtime::KernelLoader& loader) {
    return std::make_unique<CallTimer>(values(), shapes, loader);
  };
}

// Inputs that an op writes without saying so, as batch norm writes its statistics: no counter moves in eager.
void TorchRecording::add_hidden_writes(const graph::Graph& functional) {
  for (const auto& [input, value] : functional.updates) {
    const auto is_known = [&](const WrittenInput& w) { return w.input == input; };
    if (input < inputs_.size() && std::none_of(outputs_.written.begin(), outputs_.written.end(), is_known))
      outputs_.written.push_back({input, 0});
  }
}

// Called once: the call takes over what is known of the outputs.
std::unique_ptr<CompiledCall> TorchRecording::bind(graph::CompiledGraph compiled, PyObject* user_backend,
                                                   Deriving deriving) {
  if (user_backend != nullptr) {
    deriving.freezing = Freezing::kNever;
    deriving.replays = false;
  }
  add_hidden_writes(compiled.functional);
  outputs_.unhooked = unhooked_;
  outputs_.apart = apart_;
  outputs_.symbol_count = shapes().symbol_count();
  std::unique_ptr<CompiledCall> call = planned_call(compiled, values(), deriving, outputs_);
  if (user_backend != nullptr)
    call = make_user_call(user_backend, std::move(compiled.functional), std::move(call), inputs_);
  return call ? with_output_properties(std::move(call), std::move(outputs_), inputs_.size()) : nullptr;
}

}  // namespace framejit::frame_hook
