// frame_hook/aten/recording.h — one capture: torch functions called for real on traced tensors, their ops recorded.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "frame_hook/aten/captured_calls.h"
#include "frame_hook/aten/compiled_call.h"
#include "frame_hook/aten/output_properties.h"
#include "frame_hook/trace/torch/tensor_frontend.h"
#include "graph/aten/joint.h"
#include "graph/aten/recorder.h"

namespace framejit::frame_hook {

class TorchRecording final : public Recording {
 public:
  TorchRecording() : recorder_(graph::Recorder::make()), joint_(recorder_) {}

  graph::ShapeEnv& shapes() override { return recorder_->shapes(); }
  PyObject* add_input(PyObject* tensor, const std::string& source_text, const graph::DynamicExtents& dynamic) override;
  std::shared_ptr<const guards::TensorFacts> facts_of_input(size_t input) override;
  size_t input_count() const override { return inputs_.size(); }
  std::vector<size_t> written_inputs() const override;
  bool is_traced(PyObject* object) const override;
  PyObject* call(PyObject* callable, PyObject* const* args, size_t positional, PyObject* kwnames) override;
  PyObject* get_attribute(PyObject* traced, PyObject* name) override;
  std::optional<Error> take_break() override;
  void set_line(const graph::Line& line, const std::string& way) override;
  bool gradients(const GradientCall& call, std::vector<TracedGradient>& found) override;
  bool begin_function(const FunctionCall& call, TracedFunction& traced) override;
  bool end_function(const std::vector<PyObject*>& gradients) override;
  bool make_leaf(PyObject* traced) override;
  bool take_new_leaf() override { return std::exchange(made_leaf_, false); }
  void begin_checkpoint() override;
  bool end_checkpoint() override;
  PyObject* known_contents(PyObject* traced) override;
  PyObject* lift(PyObject* real) override;
  void keep_unwritten(PyObject* traced) override;
  PyObject* wrap_size(const graph::SymExpr& size) override;
  std::optional<graph::SymExpr> unwrap_size(PyObject* object) override;
  PyObject* add_float(double hint, const std::string& source_text) override;
  FloatBeside float_beside(PyObject* beside) override;
  FloatNumber float_number(PyObject* traced, double now) override;
  graph::NumberSteps number_of(PyObject* traced) override;
  double number_in_input(size_t input) override { return inputs_[input].item<double>(); }
  std::vector<NumberRead> take_number_reads() override;
  std::string text() const override { return graph::print(recorder_->graph()); }
  size_t op_count() const override { return recorder_->graph().nodes.size(); }
  size_t value_count() const override { return recorder_->graph().values.size(); }
  Result<graph::CapturedGraph> build(const std::vector<PyObject*>& outputs) override;
  graph::MakeTimer make_timer() override;
  std::unique_ptr<CompiledCall> bind(graph::CompiledGraph compiled, PyObject* user_backend,
                                     Deriving deriving) override;

 private:
  template <class F> PyObject* recorded(F&& run, PyObject* called, PyObject* const* args, size_t count);
  PyObject* refuse_limit(PyObject* called, const std::string& words);
  bool make_leaf(const at::Tensor& tensor);
  bool accept_result(PyObject* result, PyObject* const* args, size_t count, int depth);
  PyObject* refuse(Reason reason, std::string detail);
  Result<void> refuse_leaf_views();
  Result<void> refuse_overlap(const std::vector<size_t>& written) const;
  RecordedValues values() const { return {recorder_->constants(), recorder_->opaques(), inputs_}; }
  void log_captured(const graph::CapturedGraph& captured) const;
  void add_hidden_writes(const graph::Graph& functional);
  Result<void> settle_histories();
  void find_views_on_the_way();
  bool keep_apart(const GradientCall& call);
  bool must_stay_unhooked(const at::Tensor& tensor);
  bool find_gradients(const GradientCall& call, graph::InnerGradients& found);
  Result<graph::CapturedGraph> build_joint(const std::vector<size_t>& written);

  std::shared_ptr<graph::Recorder> recorder_;
  graph::JointRecording joint_;
  std::vector<at::Tensor> inputs_;         // the real ones
  std::vector<at::Tensor> traced_inputs_;  // same order
  std::vector<std::pair<size_t, std::shared_ptr<guards::TensorFacts>>> facts_;  // with the index of the input
  std::vector<size_t> floats_;             // inputs that add_float made
  std::optional<Error> break_;
  CapturedCalls calls_;
  OutputSet outputs_;  // of the finished recording
  std::vector<size_t> unhooked_;  // inputs whose gradients the recording itself finds: hooks on them would run in eager
  std::vector<std::pair<size_t, size_t>> apart_;  // the first input must not be computed from the second
  bool made_leaf_ = false;  // by the last recorded call
  struct OpenFunction {
    decltype(torch::autograd::Edge::function) node;
    graph::FunctionForward forward;
    size_t tensor_inputs;  // when its backward began
  };
  std::vector<OpenFunction> open_functions_;  // whose backward is being traced
  graph::Line line_;
  std::string way_;  // to the line
  uint32_t checkpoints_ = 0;  // so far
  std::vector<std::pair<size_t, size_t>> open_checkpoints_;  // numbers of nodes and values when each began
};

}  // namespace framejit::frame_hook
