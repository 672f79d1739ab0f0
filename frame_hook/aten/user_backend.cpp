// frame_hook/aten/user_backend.cpp — the graph as a Python object, and calls of what a user's backend returned for it.
#include "frame_hook/aten/user_backend.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "graph/aten/bind_symbols.h"

namespace framejit::frame_hook {
namespace {

struct GraphObject {
  graph::Graph graph;
  std::unique_ptr<CompiledCall> runner;

  std::string text() const { return graph::print(graph); }
  std::vector<std::string> ops() const {
    std::vector<std::string> names;
    for (const graph::Node& node : graph.nodes) names.push_back(node.op->name);
    return names;
  }
  py::tuple call(const py::args& inputs) const {
    if (inputs.size() != graph.inputs.size())
      throw py::type_error("the graph takes " + std::to_string(graph.inputs.size()) + " tensors");
    std::vector<at::Tensor> tensors;
    for (py::handle input : inputs) tensors.push_back(input.cast<at::Tensor>());
    const std::vector<int64_t> symbols = graph::bind_symbols(graph, tensors);
    std::vector<PyObject*> outputs(runner->output_count, nullptr);
    WeightOwners unknown;
    const CallResult ran = runner->run(&PyTuple_GET_ITEM(inputs.ptr(), 0), symbols.data(), outputs.data(), unknown);
    if (ran.status != CallStatus::done) throw py::error_already_set();
    py::tuple result(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) result[i] = py::reinterpret_steal<py::object>(outputs[i]);
    return result;
  }
};

py::object wrap_graph(graph::Graph graph, std::unique_ptr<CompiledCall> runner) {
  static const bool registered = [] {
    py::class_<GraphObject, std::shared_ptr<GraphObject>>(py::handle(), "Graph", py::module_local())
        .def("__str__", &GraphObject::text)
        .def("__repr__", &GraphObject::text)
        .def("__call__", &GraphObject::call)
        .def_property_readonly("ops", &GraphObject::ops)
        .def_property_readonly("input_names", [](const GraphObject& g) { return g.graph.input_names; });
    return true;
  }();
  (void)registered;
  return py::cast(std::make_shared<GraphObject>(GraphObject{std::move(graph), std::move(runner)}));
}

// The `count` tensors of the list or tuple that a backend's function returned; null, with an error set that says what
// is wrong.
PyRef tensors_of(PyObject* result, size_t count) {
  if (!PyList_Check(result) && !PyTuple_Check(result)) {
    PyErr_Format(PyExc_TypeError, "a backend's function must return a list or tuple of tensors, not %.100s",
                 Py_TYPE(result)->tp_name);
    return {};
  }
  PyRef items = PyRef::steal(PySequence_Fast(result, ""));
  const auto n = items ? static_cast<size_t>(PySequence_Fast_GET_SIZE(items.get())) : 0;
  if (items && n != count)
    return PyErr_Format(PyExc_ValueError, "a backend's function returned %zu values instead of %zu", n, count), PyRef();
  for (size_t i = 0; i < n; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), static_cast<Py_ssize_t>(i));
    if (!THPVariable_Check(item))
      return PyErr_Format(PyExc_TypeError, "value %zu that a backend's function returned is not a tensor but %.100s", i,
                          Py_TYPE(item)->tp_name),
             PyRef();
  }
  return items;
}

class UserCall final : public CompiledCall {
 public:
  UserCall(PyRef callable, std::vector<graph::OutputAlias> aliases, size_t inputs, size_t ops)
      : callable_(std::move(callable)), aliases_(std::move(aliases)), inputs_(inputs) {
    output_count = aliases_.size();
    op_count = ops;
  }

  CallResult run(PyObject* const* inputs, const int64_t*, PyObject** outputs, WeightOwners&) override {
    std::vector<PyRef> tensors;  // keeps those that stand for floats alive
    std::vector<PyObject*> args(inputs, inputs + inputs_);
    for (PyObject*& arg : args)
      if (PyFloat_CheckExact(arg)) arg = tensors.emplace_back(PyRef::steal(THPVariable_Wrap(input_tensor(arg)))).get();
    PyRef result = PyRef::steal(PyObject_Vectorcall(callable_.get(), args.data(), inputs_, nullptr));
    if (!result) return {CallStatus::raised};
    const PyRef items = tensors_of(result.get(), output_count);
    if (!items) return {CallStatus::raised};
    for (size_t i = 0; i < output_count; ++i) {
      const bool is_input = aliases_[i].kind == graph::OutputKind::kInput;
      outputs[i] = Py_NewRef(is_input ? inputs[aliases_[i].of]
                                      : PySequence_Fast_GET_ITEM(items.get(), static_cast<Py_ssize_t>(i)));
    }
    return {};
  }

 private:
  PyRef callable_;
  std::vector<graph::OutputAlias> aliases_;
  size_t inputs_;
};

}  // namespace

std::unique_ptr<CompiledCall> make_user_call(PyObject* backend, graph::Graph functional,
                                             std::unique_ptr<CompiledCall> runner,
                                             const std::vector<at::Tensor>& example_inputs) {
  const std::vector<graph::OutputAlias> aliases = functional.output_aliases;
  const size_t ops = functional.nodes.size();
  py::object graph = wrap_graph(std::move(functional), std::move(runner));
  PyRef examples = PyRef::steal(PyList_New(0));
  for (const at::Tensor& t : example_inputs) {
    PyRef object = PyRef::steal(THPVariable_Wrap(t));
    if (!object || PyList_Append(examples.get(), object.get()) < 0) return nullptr;
  }
  PyRef callable = PyRef::steal(PyObject_CallFunctionObjArgs(backend, graph.ptr(), examples.get(), nullptr));
  if (!callable) return nullptr;
  if (callable.get() == graph.ptr())
    return std::move(graph.cast<GraphObject&>().runner);  // the graph itself was returned; its errors are the program's
  if (!PyCallable_Check(callable.get())) {
    PyErr_Format(PyExc_TypeError, "a backend must return a callable, not %.100s", Py_TYPE(callable.get())->tp_name);
    return nullptr;
  }
  return std::make_unique<UserCall>(std::move(callable), aliases, example_inputs.size(), ops);
}

}  // namespace framejit::frame_hook
