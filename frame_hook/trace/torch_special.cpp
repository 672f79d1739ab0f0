// frame_hook/trace/torch_special.cpp — torch callables that need more than a call: rows of torch_special.def, and Python functions
// recognised by marks that torch and framejit leave on them. torch._dynamo is never imported for it.
#include "frame_hook/trace/torch_special.h"

#include "frame_hook/trace/builtins.h"

namespace framejit::frame_hook {

namespace {

std::string_view module_name(PyFunctionObject* f) {
  PyObject* name = PyDict_GetItemWithError(f->func_globals, interned("__name__"));
  if (!name) PyErr_Clear();
  return name && PyUnicode_Check(name) ? text_of(name) : "";
}

bool is_true_mark(PyObject* dict, const char* name) {
  PyObject* mark = dict ? PyDict_GetItemWithError(dict, interned(name)) : nullptr;
  if (!mark) PyErr_Clear();
  return mark && mark != Py_False && mark != Py_None;
}

bool within(std::string_view module, std::string_view package) {
  return module.substr(0, package.size()) == package && (module.size() == package.size() || module[package.size()] == '.');
}

// The function that a disable wrapper carries in its closure ("fn"), or in _torchdynamo_orig_callable.
Value* wrapped_function(Tracer& t, FunctionValue* function) {
  t.load(function);
  PyCodeObject* code = function->code;
  const int first_free = code->co_nlocalsplus - code->co_nfreevars;
  for (int i = 0; i < code->co_nfreevars; ++i) {
    if (std::string_view(text_of(PyTuple_GET_ITEM(code->co_localsplusnames, first_free + i))) != "fn") continue;
    return t.get_attribute(function->closure[i], interned("cell_contents"));
  }
  return t.find_attribute(function, interned("_torchdynamo_orig_callable"));
}

}  // namespace

SpecialFunction classify_function(TensorFrontend& frontend, PyFunctionObject* f) {
  static PyObject* const graph_break_name = interned("graph_break");
  static PyObject* const inner_name = interned("inner");
  auto* code = reinterpret_cast<PyCodeObject*>(f->func_code);
  if (f->func_dict && (is_true_mark(f->func_dict, "_torchdynamo_disable") || is_true_mark(f->func_dict, "_framejit_disable"))) {
    PyObject* original = PyDict_GetItemWithError(f->func_dict, interned("_torchdynamo_orig_callable"));
    const bool torchs_own = original && PyFunction_Check(original) && within(module_name(reinterpret_cast<PyFunctionObject*>(original)), "torch");
    return torchs_own && !is_true_mark(f->func_dict, "_framejit_disable") ? SpecialFunction::unwrap : SpecialFunction::disabled;
  }
  if (code->co_name == graph_break_name) {
    const std::string_view module = module_name(f);
    if (within(module, "torch._dynamo") || within(module, "framejit")) return SpecialFunction::graph_break;
  }
  if (code->co_name == inner_name && module_name(f) == "torch._compile" && std::string_view(text_of(code->co_qualname)) == "_disable_dynamo.<locals>.inner")
    return SpecialFunction::unwrap;
  if (frontend.answers_true_while_compiling(reinterpret_cast<PyObject*>(f))) return SpecialFunction::compiling;
  return SpecialFunction::none;
}

Value* call_special_function(Tracer& t, FunctionValue* function, const Arguments& args) {
  auto* f = reinterpret_cast<PyFunctionObject*>(function->object.get());
  switch (classify_function(t.frontend(), f)) {
    case SpecialFunction::none: return nullptr;
    case SpecialFunction::graph_break: graph_break(BreakReason::explicit_break, std::string(module_name(f)) + ".graph_break()");
    case SpecialFunction::disabled: graph_break(BreakReason::disabled_function, text_of(f->func_qualname));
    case SpecialFunction::compiling:
      t.load(function);
      return t.boolean(true);
    case SpecialFunction::unwrap:
      if (Value* original = wrapped_function(t, function)) return t.call(original, args);
      return nullptr;
  }
  return nullptr;
}

namespace rows {

namespace {

void refuse_override(Tracer& t, Value* v) {
  if (TupleValue* items = tuple_of(v)) {
    for (Value* item : t.unpack(items)) refuse_override(t, item);
    return;
  }
  if (v->kind == ValueKind::instance && _PyType_Lookup(t.type_of(v), interned("__torch_function__")))
    graph_break(BreakReason::unsupported_value, std::string("__torch_function__ of ") + v->type->tp_name);
}

PyObject* torch_function(const char* name) {
  PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), "torch");
  return module ? PyDict_GetItemString(PyModule_GetDict(module), name) : nullptr;
}

}  // namespace

Value* has_torch_function(Tracer& t, const Arguments& args) {
  for (Value* v : args.positional) refuse_override(t, v);
  return t.boolean(false);
}

Value* tensor_reads_data(Tracer&, const Arguments&) { graph_break(BreakReason::data_dependent_value, "a method of Tensor that"); }
Value* unsupported_tensor_method(Tracer&, const Arguments&) { graph_break(BreakReason::unsupported_value, "a change of a tensor's identity or gradient"); }

Value* tensor_new_tensor(Tracer& t, const Arguments& args) {
  std::vector<Value*> a = parse(t, args, "new_tensor", {"self", "data", "$dtype", "$device", "$requires_grad"}, 2);
  Arguments call{{a[1]}, {}};
  auto given = [](Value* v) { return v && !(v->kind == ValueKind::object && v->object.get() == Py_None); };
  call.keywords.emplace_back(interned("dtype"), given(a[2]) ? a[2] : t.get_attribute(a[0], interned("dtype")));
  call.keywords.emplace_back(interned("device"), given(a[3]) ? a[3] : t.get_attribute(a[0], interned("device")));
  if (a[4]) call.keywords.emplace_back(interned("requires_grad"), a[4]);
  PyObject* function = torch_function("tensor");
  if (!function) graph_break(BreakReason::unknown_callable, "Tensor.new_tensor");
  return t.call_recorded(function, call);
}

Value* size_numel(Tracer& t, const Arguments& args) {
  only_positional(t, args, "numel", 1, 1);
  return math_prod(t, Arguments{{payload_of(args.positional[0])}, {}});
}

}  // namespace rows

}  // namespace framejit::frame_hook
