// frame_hook/aten/compiled_call.cpp — passes, backend, and the call that wraps their product for Python.
#include "frame_hook/aten/compiled_call.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "frame_hook/aten/tensor_frontend.h"
#include "graph/aten/replay.h"
#include "graph/passes/pipeline.h"
#include "runtime/base/log.h"

namespace framejit::frame_hook {
namespace {

void log_graph(const graph::Graph& graph, const char* stage) {
  if (!log::enabled(log::Channel::aten_graph)) return;
  log::emit({log::Channel::aten_graph, "", "AtenGraph", "", {{"graph", graph.name}, {"stage", stage}, {"ops", std::to_string(graph.nodes.size())}}, graph::print(graph)});
}

// A view made by autograd's own kernels, so that `_base`, version counter and in-place rules are eager's.
at::Tensor tracked_view(const at::Tensor& base, const at::Tensor& view) {
  if (base.scalar_type() != view.scalar_type() || base.storage().unsafeGetStorageImpl() != view.storage().unsafeGetStorageImpl()) return view;
  return base.as_strided(view.sizes(), view.strides(), view.storage_offset());
}

// Runs the functional graph through the dispatcher.
class ReplayedCall final : public CompiledCall {
 public:
  ReplayedCall(graph::Graph graph, const RecordedGraph& recorded) : graph_(std::move(graph)), constants_(recorded.constants), opaques_(recorded.opaques) {
    output_count = graph_.outputs.size();
    op_count = graph_.nodes.size();
  }

  bool run(PyObject* const* inputs, const int64_t* symbols, const double*, PyObject** outputs) override {
    HANDLE_TH_ERRORS
    std::vector<at::Tensor> tensors, results;
    for (size_t i = 0; i < graph_.inputs.size(); ++i) tensors.push_back(THPVariable_Unpack(inputs[i]));
    const std::vector<int64_t> values(symbols, symbols + graph_.shapes.symbol_count());
    {
      pybind11::gil_scoped_release released;
      results = graph::replay(graph_, {tensors, constants_, opaques_}, values, false).outputs;
    }
    for (size_t i = 0; i < results.size(); ++i) outputs[i] = output(i, inputs, tensors, results);
    return true;
    END_HANDLE_TH_ERRORS_RET(false)
  }

 private:
  PyObject* output(size_t i, PyObject* const* inputs, const std::vector<at::Tensor>& tensors, std::vector<at::Tensor>& results) const {
    const graph::OutputAlias& alias = graph_.output_aliases[i];
    if (alias.kind == graph::OutputKind::kInput) return Py_NewRef(inputs[alias.of]);
    if (alias.kind == graph::OutputKind::kViewOfInput) results[i] = tracked_view(tensors[alias.of], results[i]);
    if (alias.kind == graph::OutputKind::kViewOfOutput) results[i] = tracked_view(results[alias.of], results[i]);
    return THPVariable_Wrap(results[i]);
  }

  graph::Graph graph_;
  std::vector<at::Tensor> constants_;
  std::vector<c10::IValue> opaques_;
};

}  // namespace

Result<std::unique_ptr<CompiledCall>> compile_graph(const RecordedGraph& recorded, const CompileRequest& request) {
  log_graph(recorded.graph, "recording");
  const bool decompose = request.callable == nullptr && request.backend != "eager";
  FJ_TRY(graph::Graph functional, graph::run_pipeline(recorded.graph, decompose));
  return std::unique_ptr<CompiledCall>(std::make_unique<ReplayedCall>(std::move(functional), recorded));
}

}  // namespace framejit::frame_hook
