// frame_hook/aten/captured_calls.cpp — names of calls, and their lines.
#include "frame_hook/aten/captured_calls.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include <string_view>

#include "frame_hook/aten/torch_callables.h"
#include "frame_hook/trace/values/known_types.h"
#include "graph/aten/sym_node.h"
#include "graph/aten/traced_tensor.h"
#include "graph/graph_names.h"
#include "graph/joint.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/names.h"
#include "guards/cpython/py_ref.h"
#include "guards/describe.h"
#include "runtime/base/log.h"

namespace framejit::frame_hook {
namespace {

using Words = CapturedCalls::Words;

// Modules of C functions, and their public names. In the public name, the prefix of a function's own name is left out:
// linalg_norm is torch.linalg.norm.
struct PublicModule { const char *module, *prefix, *name; };
constexpr PublicModule kPublicModules[] = {
    {"torch._C._nn", "", "torch.nn.functional."},
    {"torch._C._linalg", "linalg_", "torch.linalg."},
    {"torch._C._fft", "fft_", "torch.fft."},
    {"torch._C._special", "special_", "torch.special."},
    {"_operator", "", "operator."},
    {"math", "", "math."},
};

std::string text_attribute(PyObject* object, const char* name) {
  PyRef text = PyRef::steal(PyObject_GetAttrString(object, name));
  drop_error();
  const char* utf8 = find_text(text.get());
  return utf8 != nullptr ? utf8 : "";
}

void say(Words& words, std::string text) {
  if (!words.empty() && std::holds_alternative<std::string>(words.back())) std::get<std::string>(words.back()) += text;
  else words.emplace_back(std::move(text));
}

void say_object(Words& words, PyObject* object, int depth);

void say_items(Words& words, PyObject* sequence, int depth) {
  const bool is_list = PyList_Check(sequence);
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(sequence);
  say(words, is_list ? "[" : "(");
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (i != 0) say(words, ", ");
    say_object(words, PySequence_Fast_GET_ITEM(sequence, i), depth + 1);
  }
  say(words, is_list ? "]" : n == 1 ? ",)" : ")");
}

void say_slice(Words& words, PySliceObject* slice, int depth) {
  say(words, "slice(");
  say_object(words, slice->start, depth + 1);
  say(words, ", ");
  say_object(words, slice->stop, depth + 1);
  say(words, ", ");
  say_object(words, slice->step, depth + 1);
  say(words, ")");
}

// Only torch's own C types and exact builtin types are printed.
void say_object(Words& words, PyObject* object, int depth) {
  if (is_tensor(object)) {
    const at::Tensor& tensor = THPVariable_Unpack(object);
    const graph::TracedTensorImpl* traced = graph::as_traced(tensor);
    if (traced != nullptr) words.emplace_back(traced->value);
    else say(words, "<tensor>");
  } else if (torch::is_symfloat(py::handle(object))) {
    const auto open = graph::as_open_float(py::cast<c10::SymFloat>(py::handle(object)));
    if (open) words.emplace_back(graph::ValueId{open->value});
    else say(words, "?");
  } else if (torch::is_symint(py::handle(object))) {
    say(words, graph::expr_of(py::cast<c10::SymInt>(py::handle(object))).text());
  } else if (depth < 4 && (PyTuple_Check(object) || PyList_CheckExact(object))) {
    say_items(words, object, depth);
  } else if (depth < 4 && PySlice_Check(object)) {
    say_slice(words, reinterpret_cast<PySliceObject*>(object), depth);
  } else if (THPDtype_Check(object) || THPDevice_Check(object) || THPLayout_Check(object) ||
             THPMemoryFormat_Check(object)) {
    PyRef text = PyRef::steal(PyObject_Str(object));
    drop_error();
    say(words, text ? text_of(text.get()) : "?");
  } else {
    say(words, guards::describe(object));
  }
}

void collect_values(std::vector<graph::ValueId>& values, PyObject* result, int depth) {
  if (is_tensor(result)) {
    const graph::TracedTensorImpl* traced = graph::as_traced(THPVariable_Unpack(result));
    if (traced != nullptr) values.push_back(traced->value);
  } else if (depth < 3 && (PyTuple_Check(result) || PyList_CheckExact(result))) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(result); ++i)
      collect_values(values, PySequence_Fast_GET_ITEM(result, i), depth + 1);
  }
}

std::string spell(graph::ValueId value, const std::vector<std::string>& names) {
  if (value == graph::kNoValue) return "_";
  const std::string& name = names[index_of(value)];
  return "%" + (name.empty() ? "?" : name);
}

std::string spell(const std::vector<graph::ValueId>& values, const std::vector<std::string>& names) {
  std::string text;
  for (graph::ValueId v : values) text += (text.empty() ? "" : ", ") + spell(v, names);
  return text;
}

std::string spell(const Words& words, const std::vector<std::string>& names) {
  std::string text;
  for (const auto& word : words)
    text += word.index() == 0 ? std::get<std::string>(word) : spell(std::get<graph::ValueId>(word), names);
  return text;
}

bool is_wanted(const graph::Graph& graph, size_t first_node) {
  return log::enabled(log::Kind::Graph) && graph.nodes.size() > first_node;
}

}  // namespace

std::string torch_call_name(PyObject* callable) {
  const std::string name = text_attribute(callable, "__name__");
  PyObject* self = PyCFunction_Check(callable) ? PyCFunction_GET_SELF(callable) : nullptr;
  if (Py_TYPE(callable) == &PyMethodDescr_Type || Py_TYPE(callable) == &PyWrapperDescr_Type) {
    const PyTypeObject* type = reinterpret_cast<PyDescrObject*>(callable)->d_type;
    return (type == torch_tensor_type()->tp_base ? "Tensor" : std::string(type->tp_name)) + "." + name;
  }
  if (self != nullptr && is_tensor(self)) return "Tensor." + name;
  if (self != nullptr && self == reinterpret_cast<PyObject*>(known_type(KnownType::torch_functions)))
    return "torch." + name;
  const std::string module = text_attribute(callable, "__module__");
  for (const PublicModule& row : kPublicModules) {
    if (module != row.module) continue;
    const size_t prefix = std::string_view(row.prefix).size();
    return name.compare(0, prefix, row.prefix) == 0 ? row.name + name.substr(prefix) : module + "." + name;
  }
  const std::string own = name.empty() ? Py_TYPE(callable)->tp_name : name;
  return module.empty() || module == "builtins" ? own : module + "." + own;
}

void CapturedCalls::add_call(const graph::Graph& graph, size_t first_node, PyObject* callable, PyObject* const* args,
                             size_t positional, PyObject* kwnames, PyObject* result) {
  if (!is_wanted(graph, first_node)) return;
  Words words;
  say(words, torch_call_name(callable) + "(");
  PyObject* self = PyCFunction_Check(callable) ? PyCFunction_GET_SELF(callable) : nullptr;
  const bool bound = self != nullptr && is_tensor(self);
  if (bound) say_object(words, self, 0);
  const size_t count = positional + (kwnames != nullptr ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0);
  for (size_t i = 0; i < count; ++i) {
    if (i != 0 || bound) say(words, ", ");
    if (i >= positional)
      say(words, guards::text_of_str(PyTuple_GET_ITEM(kwnames, static_cast<Py_ssize_t>(i - positional))) + "=");
    say_object(words, args[i], 0);
  }
  say(words, ")");
  add(graph, first_node, std::move(words), result);
}

void CapturedCalls::add_attribute(const graph::Graph& graph, size_t first_node, PyObject* traced, PyObject* name,
                                  PyObject* result) {
  if (!is_wanted(graph, first_node)) return;
  Words words;
  say_object(words, traced, 0);
  say(words, "." + guards::text_of_str(name));
  add(graph, first_node, std::move(words), result);
}

void CapturedCalls::add(const graph::Graph& graph, size_t first_node, Words call, PyObject* result) {
  std::vector<graph::ValueId> results;
  collect_values(results, result, 0);
  calls_.push_back({std::move(results), std::move(call), first_node, graph.nodes.size()});
}

std::string CapturedCalls::text(const graph::CapturedGraph& captured) const {
  const graph::Graph& graph = captured.graph;
  const std::vector<std::string> names = graph::value_names(graph);
  const size_t inputs = captured.joint ? captured.joint->forward_inputs : graph.inputs.size();
  std::vector<graph::ValueId> outputs = graph.outputs;
  if (captured.joint) outputs.resize(captured.joint->forward_outputs);
  std::string out;
  for (size_t i = 0; i < inputs; ++i)
    out += "input " + spell(graph.inputs[i], names) + " = " + graph.input_names[i] + " : " +
           graph::text_of(graph.meta(graph.inputs[i])) + "\n";
  for (const Call& call : calls_) {
    std::string types, ops;
    for (graph::ValueId v : call.results) types += (types.empty() ? " : " : ", ") + graph::text_of(graph.meta(v));
    for (size_t n = call.first_node; n < call.end_node; ++n) {
      const graph::Node& node = graph.nodes[n];
      ops += (ops.empty() ? "" : ", ") + node.op->name + (node.results.empty() ? "" : " ") + spell(node.results, names);
    }
    const graph::Line& line = graph.lines[graph.nodes[call.first_node].line];
    out += (call.results.empty() ? "" : spell(call.results, names) + " = ") + spell(call.call, names) + types +
           "   # " + line.file + ":" + std::to_string(line.number) + " " + line.function + "   aten: " + ops + "\n";
  }
  return out + "return" + (outputs.empty() ? "" : " ") + spell(outputs, names) + "\n";
}

}  // namespace framejit::frame_hook
