// frame_hook/trace/torch/special.cpp — Python functions of torch recognised by marks that torch and framejit leave on
// them, and rows of special.def that are about calls. This never imports torch._dynamo.
#include "frame_hook/trace/torch/special.h"

#include <set>

#include "frame_hook/trace/torch/called_by_rows.h"
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/numpy_calls.h"
#include "frame_hook/trace/types/c_arguments.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/loaded_modules.h"
#include "frame_hook/trace/values/marks.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/payloads.h"
#include "guards/cpython/interrupts.h"
#include "runtime/base/log.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

namespace {

std::string_view module_name(PyFunctionObject* f) {
  PyObject* name = PyDict_GetItemWithError(f->func_globals, interned("__name__"));
  if (!name) drop_error();
  return name && PyUnicode_Check(name) ? text_of(name) : "";
}

struct SpecialRow {
  SpecialFunction special;
  const char* module;
  PyObject* name;  // interned, as the names of code objects are
};
const std::vector<SpecialRow>& special_rows() {
  static const auto* const rows = new std::vector<SpecialRow>{
#define SPECIAL_FUNCTION(special, module, name, why) {SpecialFunction::special, module, interned(name)},
#include "frame_hook/trace/torch/special_functions.def"
#undef SPECIAL_FUNCTION
  };
  return *rows;
}

SpecialFunction special_row(const PyCodeObject* code, PyObject* globals) {
  for (const SpecialRow& row : special_rows())
    if (row.name == code->co_name && globals == dict_of_module(row.module)) return row.special;
  return SpecialFunction::none;
}

PyObject* calling_globals(const CallStack& stack) {
  const SymbolicFrame& caller = *stack.frames().back();
  return caller.globals ? caller.globals->object.get() : nullptr;
}

// A check of the device's state, which no trace can make.
bool is_health_check(const CallStack& stack) {
  return special_row(stack.frames().back()->code->code, calling_globals(stack)) == SpecialFunction::health_check;
}

bool is_true_mark(PyObject* dict, const char* name) {
  PyObject* mark = dict ? PyDict_GetItemWithError(dict, interned(name)) : nullptr;
  if (!mark) drop_error();
  return mark && mark != Py_False && mark != Py_None;
}

// The function that a disable wrapper holds in its closure ("fn"), or in _torchdynamo_orig_callable.
Value* wrapped_function(Tracer& t, FunctionValue* function) {
  t.shadows.load(function);
  PyCodeObject* code = function->code;
  const int first_free = code->co_nlocalsplus - code->co_nfreevars;
  for (int i = 0; i < code->co_nfreevars; ++i) {
    if (std::string_view(text_of(PyTuple_GET_ITEM(code->co_localsplusnames, first_free + i))) != "fn") continue;
    return t.get_attribute(function->closure[i], interned("cell_contents"));
  }
  return t.find_attribute(function, interned("_torchdynamo_orig_callable"));
}

}  // namespace

// Such code asks whether it is compiled, and asks for breaks, to suit torch's own compiler. If it gets eager's answers,
// its numbers and errors are eager's.
bool is_optimizer_calling(const CallStack& stack) {
  PyObject* const globals = calling_globals(stack);
  return globals && are_globals_of(globals, "torch.optim");
}

SpecialFunction classify_function(TensorFrontend& frontend, PyFunctionObject* f) {
  auto* code = reinterpret_cast<PyCodeObject*>(f->func_code);
  if (f->func_dict && (is_true_mark(f->func_dict, kTorchDisabledMark) || is_true_mark(f->func_dict, kDisabledMark))) {
    PyObject* original = PyDict_GetItemWithError(f->func_dict, interned("_torchdynamo_orig_callable"));
    const bool torchs_own =
        original && PyFunction_Check(original) && are_globals_of(PyFunction_GET_GLOBALS(original), "torch");
    return torchs_own && !is_true_mark(f->func_dict, kDisabledMark) ? SpecialFunction::unwrap
                                                                    : SpecialFunction::disabled;
  }
  if (const SpecialFunction row = special_row(code, f->func_globals); row != SpecialFunction::none) return row;
  if (f->func_dict && PyDict_GetItemWithError(f->func_dict, interned("_torchdynamo_orig_callable")))
    return SpecialFunction::unwrap;
  if (f->func_dict && is_true_mark(f->func_dict, "_dynamo_marked_constant")) return SpecialFunction::constant;
  if (frontend.answers_true_while_compiling(reinterpret_cast<PyObject*>(f))) return SpecialFunction::compiling;
  return SpecialFunction::none;
}

namespace {

// The real object to pass to a function that runs while tracing, and the key that identifies it; null: there is none.
PyObject* known_argument(Shadows& shadows, Value* v, std::string& key) {
  if (is_plain(shadows, v)) {
    PyObject* object = constant_of(shadows, v);
    const PyRef text = PyRef::steal(PyObject_Repr(object));
    key += text ? exact_text(text.get()) : "?";
    drop_error();
    return object;
  }
  if (v->kind == ValueKind::tensor || !v->object || v->mutated) return nullptr;
  shadows.facts.guard_identity(v);
  key += std::to_string(reinterpret_cast<uintptr_t>(v->object.get()));
  return v->object.get();
}

// Runs it once for each set of arguments, as its mark (torch.compiler.assume_constant_result) asks for. Null: trace it
// like any other function, because an argument was made in the trace, it raised, or its result may change.
Value* constant_result(AssumedConstants& assumed, Shadows& shadows, FunctionValue* function, const Arguments& args) {
  guard_keyword_order(shadows.facts, args);
  std::string key = std::to_string(reinterpret_cast<uintptr_t>(function->object.get()));
  std::vector<PyObject*> given;
  std::vector<PyObject*> names;
  auto take = [&](Value* v) { return given.emplace_back(known_argument(shadows, v, key += ',')) != nullptr; };
  for (Value* v : args.positional)
    if (!take(v)) return nullptr;
  for (const auto& [name, v] : args.keywords) {
    key += exact_text(name);
    if (!take(v)) return nullptr;
    names.push_back(name);
  }
  PyRef& result = assumed.results[key];
  if (!result) {
    PyRef keywords = PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(names.size())));
    for (size_t i = 0; i < names.size(); ++i) PyTuple_SET_ITEM(keywords.get(), i, Py_NewRef(names[i]));
    result =
        PyRef::steal(PyObject_Vectorcall(function->object.get(), given.data(), args.positional.size(), keywords.get()));
    if (!result && error_is_interrupt()) return keep_error(), throw Interrupted{}, nullptr;
    if (!result) drop_error();
  }
  if (!result || !is_plain(result.get())) return nullptr;
  shadows.load(function);
  return shadows.heap.constant_value(result.get());
}

// Torch's compiler has replacements of its own, in modules below this one.
bool is_replaced_by_torch(PyObject* modules, PyObject* callable) {
  PyObject *name, *module, *key, *value;
  for (Py_ssize_t at = 0; PyDict_Next(modules, &at, &name, &module);) {
    if (!PyUnicode_Check(name) || !PyModule_Check(module) || !is_within(text_of(name), "torch._dynamo.polyfills"))
      continue;
    for (Py_ssize_t k = 0; PyDict_Next(PyModule_GetDict(module), &k, &key, &value);) {
      if (!PyFunction_Check(value) || !reinterpret_cast<PyFunctionObject*>(value)->func_dict) continue;
      if (PyDict_GetItemWithError(reinterpret_cast<PyFunctionObject*>(value)->func_dict,
                                  interned("__torch_dynamo_original__")) == callable)
        return true;
    }
  }
  return false;
}

}  // namespace

void warn_if_substituted(PyObject* callable) {
  static std::set<PyObject*> said;
  PyObject* const modules = PyImport_GetModuleDict();
  PyObject* const rules = PyDict_GetItemWithError(modules, interned("torch._dynamo.trace_rules"));
  if (!rules || !PyModule_Check(rules) || said.count(callable)) return;
  PyObject* const holder = PyDict_GetItemWithError(PyModule_GetDict(rules), interned("_polyfilled_function_ids"));
  // None as long as nothing is replaced.
  const PyRef replaced = PyRef::steal(holder ? PyObject_GetAttrString(holder, "function_ids") : nullptr);
  const PyRef id = PyRef::steal(PyLong_FromVoidPtr(callable));
  const bool is_replaced = replaced && id && PySet_Check(replaced.get()) &&
                           PySet_Contains(replaced.get(), id.get()) == 1 && !is_replaced_by_torch(modules, callable);
  drop_error();
  if (!is_replaced) return;
  said.insert(Py_NewRef(callable));
  const std::string asked = "torch.compiler.substitute_in_graph(" + name_of_callable(callable) + ")";
  if (log::enabled(log::Kind::Unheeded))
    log::emit(log::Kind::Unheeded, "",
              {{"asked", asked},
               {"instead", "framejit does not use the replacement, and a call of the function is a graph break"}});
}

Value* call_special_function(Tracer& t, FunctionValue* function, const Arguments& args) {
  auto* f = reinterpret_cast<PyFunctionObject*>(function->object.get());
  if (const CFunction row = find_c_function(function->object.get())) {
    guard_keyword_order(t.facts, args);
    t.shadows.load(function);
    return row(t, args);
  }
  if (runs_concretely(function->object.get()) && are_globals_of(f->func_globals, "numpy")) {
    t.shadows.load(function);
    return call_numpy(t, function->object.get(), args);
  }
  switch (classify_function(t.frontend(), f)) {
    case SpecialFunction::none:
    case SpecialFunction::health_check: return nullptr;
    case SpecialFunction::graph_break:
      if (is_optimizer_calling(t.stack)) return t.shadows.load(function), t.heap.none();
      graph_break(Reason::explicit_break, std::string(module_name(f)) + ".graph_break()");
    case SpecialFunction::disabled: graph_break(Reason::disabled_function, text_of(f->func_qualname));
    case SpecialFunction::compiling:
      t.shadows.load(function);
      return t.heap.boolean(is_optimizer_calling(t.stack) ? is_health_check(t.stack) : t.attempts.compiling().ask());
    case SpecialFunction::constant: return constant_result(t.calls.assumed, t.shadows, function, args);
    case SpecialFunction::tag_module:
      if (args.positional.empty() || args.positional.back()->object) return nullptr;
      t.shadows.load(function);
      return t.heap.none();
    case SpecialFunction::unwrap:
      if (Value* original = wrapped_function(t, function)) return t.call(original, args);
      return nullptr;
  }
  return nullptr;
}

namespace rows {

namespace {

// Tensors and parameters have no override, although their classes have the method.
void refuse_override(Tracer& t, Value* v) {
  if (is_list_or_tuple(v)) {
    for (Value* item : t.unpack(v)) refuse_override(t, item);
    return;
  }
  if (v->kind == ValueKind::generator || v->kind == ValueKind::iterator)
    graph_break(Reason::custom_dispatch, "__torch_function__ of the items of " + describe(v));
  PyTypeObject* const type = v->object ? Py_TYPE(v->object.get()) : v->type;
  if (!_PyType_Lookup(type, interned("__torch_function__"))) {
    if (v->kind == ValueKind::instance) t.facts.type_of(v);
    return;
  }
  t.facts.type_of(v);
  if (type != find_original_type("torch", "Tensor") && type != find_original_type("torch.nn.parameter", "Parameter"))
    graph_break(Reason::custom_dispatch, std::string("__torch_function__ of ") + type->tp_name);
}

}  // namespace

Value* call_first_argument(Tracer& t, const Arguments& args) {
  if (args.positional.empty()) return nullptr;
  return t.call(args.positional[0], Arguments{{args.positional.begin() + 1, args.positional.end()}, args.keywords});
}

// If nothing has loaded torch's CUDA graphs, there is no step to mark.
Value* mark_graph_step(Heap& heap, const Arguments&) {
  PyObject* graphs = PyDict_GetItemString(PyImport_GetModuleDict(), "torch._inductor.cudagraph_trees");
  return graphs ? nullptr : heap.none();
}

Value* has_torch_function(Tracer& t, const Arguments& args) {
  if (t.tensors.frontend.records_nothing()) graph_break(Reason::modes_unsupported, "a mode or transform of torch");
  for (Value* v : args.positional) refuse_override(t, v);
  return t.heap.boolean(false);
}

Value* unsupported_tensor_method(NoPart&, const Arguments&) {
  graph_break(Reason::unsupported_write, "a change of a tensor's identity, class or gradient");
}

Value* seed_generators(NoPart&, const Arguments&) {
  graph_break(Reason::outside_effect, "seeding torch's random generators");
}

Value* gradient_call(NoPart&, const Arguments&) {
  graph_break(Reason::gradient_call, "a call of torch.autograd or of a tensor's method for it");
}

Value* size_numel(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "numel", 1, 1);
  return math_prod(t, Arguments{{payload_of(args.positional[0])}, {}});
}

}  // namespace rows

}  // namespace framejit::frame_hook
