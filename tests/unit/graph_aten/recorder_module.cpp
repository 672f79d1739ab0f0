// tests/unit/graph_aten/recorder_module.cpp — the extension _framejit_recorder: the recorder as a Python class. Record
// a call, look at the graph, replay it, run the passes. It shares the recorder of the package's extension.
#include <torch/csrc/utils/pybind.h>

#include <optional>

#include "graph/aten/bind_symbols.h"
#include "graph/aten/joint.h"
#include "graph/aten/recorder.h"
#include "graph/passes/pipeline.h"
#include "tests/unit/graph_aten/op_by_op.h"

namespace py = pybind11;

namespace framejit::graph {
namespace {

const char* const kOrigins[] = {"rule", "in_place", "typed", "dispatcher_cpp", "executed", "dispatcher_python"};

struct RecorderForTests {
  std::shared_ptr<Recorder> recorder = Recorder::make();
  JointRecording joint{recorder};
  Graph functional;

  at::Tensor input(const at::Tensor& tensor, const std::string& source, const std::vector<bool>& dynamic) {
    return recorder->add_input(tensor, source, {dynamic, {}});
  }

  py::object call(const py::object& callable, const py::args& args, const py::kwargs& kwargs) {
    RecordScope scope(*recorder);
    PyObject* result = PyObject_Call(callable.ptr(), args.ptr(), kwargs.ptr());
    const std::optional<Error> failure = recorder->take_break();
    if (result == nullptr || failure) scope.drop();
    if (failure) {
      Py_XDECREF(result);
      PyErr_Clear();
      throw std::runtime_error(std::string("break ") + name_of(failure->reason) + ": " + failure->message);
    }
    if (result == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(result);
  }

  at::Tensor joint_input(const at::Tensor& tensor, const std::string& source, const std::vector<bool>& dynamic) {
    return joint.add_input(tensor, source, {dynamic, {}});
  }

  py::object joint_call(const py::object& callable, const py::args& args, const py::kwargs& kwargs) {
    ForwardScope views_by_op;
    return call(callable, args, kwargs);
  }

  // (nodes of the forward, output index per tangent, output index of the gradient per input)
  py::tuple joint_build(const std::vector<at::Tensor>& outputs) {
    JointGraph done;
    try {
      py::gil_scoped_release released;
      auto result = joint.build(outputs);
      if (!result.ok()) throw std::runtime_error(result.error().message);
      done = result.take();
      const auto right = verify(done.graph);
      if (!right.ok()) throw std::runtime_error(right.error().message);
    } catch (const std::exception&) {
      if (const auto failure = recorder->take_break())
        throw std::runtime_error("break " + std::string(name_of(failure->reason)) + ": " + failure->message);
      throw;
    }
    std::vector<int64_t> gradient_output(done.layout.forward_inputs, -1);
    for (size_t i = 0; i < done.layout.gradients.size(); ++i) {
      const GradientOf& gradient = done.layout.gradients[i];
      if (gradient.of == GradientOf::kInput)
        gradient_output[gradient.index] = static_cast<int64_t>(done.layout.forward_outputs + i);
    }
    return py::make_tuple(done.layout.forward_nodes, done.layout.roots, gradient_output);
  }

  void build(const std::vector<at::Tensor>& outputs) {
    const auto done = recorder->build(outputs);
    if (!done.ok()) throw std::runtime_error(done.error().message);
    const auto right = verify(recorder->graph());
    if (!right.ok()) throw std::runtime_error(right.error().message);
  }

  void run_passes(bool decompose) {
    auto result = run_pipeline(recorder->graph(), decompose);
    if (!result.ok())
      throw std::runtime_error(std::string(name_of(result.error().reason)) + ": " + result.error().message);
    functional = result.take();
  }

  py::tuple run(const std::vector<at::Tensor>& inputs, bool use_functional) {
    const Graph& graph = use_functional ? functional : recorder->graph();
    OpByOpResult result;
    {
      py::gil_scoped_release released;
      result = run_op_by_op(graph, {inputs, recorder->constants(), recorder->opaques()},
                            bind_symbols(recorder->graph(), inputs), true);
    }
    return py::make_tuple(result.outputs, result.wrong_shapes, result.broken_facts);
  }

  py::dict counts() const {
    py::dict result;
    for (size_t i = 0; i < recorder->counts().calls.size(); ++i) result[kOrigins[i]] = recorder->counts().calls[i];
    return result;
  }

  std::vector<std::string> facts() const {
    std::vector<std::string> texts;
    for (const SizeFact& f : recorder->shapes().facts())
      texts.push_back(f.left.text() + " " + std::to_string(static_cast<int>(f.relation)) + " " + f.right.text());
    return texts;
  }

  std::vector<std::string> ops(bool of_functional) const {
    std::vector<std::string> names;
    for (const Node& node : (of_functional ? functional : recorder->graph()).nodes) names.push_back(node.op->name);
    return names;
  }
};

std::string text_of_op(const std::string& name) {
  const OpInfo* info = find_op_info(name);
  if (info == nullptr) return "";
  const OpDef& def = *info->def;
  std::string text = def.name + " flags " + std::to_string(def.flags) + " writes";
  for (int8_t i : def.write_args) text += " " + std::to_string(i);
  text += " alias";
  for (int8_t i : def.result_alias) text += " " + std::to_string(i);
  return text + " functional '" + def.functional + "'" + (def.drops_out_args ? " drops_out_args" : "") +
         (info->in_place ? " in_place" : "") + (info->decomposes ? " decomposes" : "") +
         (info->typed_meta != nullptr ? " typed" : "") + (def.shape_rule != nullptr ? " rule" : "");
}

}  // namespace

}  // namespace framejit::graph

PYBIND11_MODULE(_framejit_recorder, m) {
  using namespace framejit::graph;
  py::class_<RecorderForTests>(m, "Recorder")
      .def(py::init<>())
      .def("input", &RecorderForTests::input, py::arg("tensor"), py::arg("source"),
           py::arg("dynamic") = std::vector<bool>())
      .def("call", &RecorderForTests::call)
      .def("build", &RecorderForTests::build)
      .def("joint_input", &RecorderForTests::joint_input, py::arg("tensor"), py::arg("source"),
           py::arg("dynamic") = std::vector<bool>())
      .def("joint_call", &RecorderForTests::joint_call)
      .def("joint_build", &RecorderForTests::joint_build)
      .def("run_passes", &RecorderForTests::run_passes, py::arg("decompose") = true)
      .def("run", &RecorderForTests::run, py::arg("inputs"), py::arg("functional") = false)
      .def("counts", &RecorderForTests::counts)
      .def("python_ops", [](const RecorderForTests& r) { return r.recorder->counts().python_ops; })
      .def("executed_ops", [](const RecorderForTests& r) { return r.recorder->counts().executed_ops; })
      .def("facts", &RecorderForTests::facts)
      .def("ops", &RecorderForTests::ops, py::arg("functional") = false)
      .def("text", [](const RecorderForTests& r) { return print(r.recorder->graph()); })
      .def("functional_text", [](const RecorderForTests& r) { return print(r.functional); })
      .def("constants", [](const RecorderForTests& r) { return r.recorder->constants().size(); })
      .def_static("op", &text_of_op);
}
