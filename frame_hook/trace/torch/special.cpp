// frame_hook/trace/torch/special.cpp — torch callables that need more than a call: rows of special.def, and Python
// functions recognised by marks that torch and framejit leave on them. This never imports torch._dynamo.
#include "frame_hook/trace/torch/special.h"

#include <algorithm>
#include <set>

#include "frame_hook/trace/protocol/made_values.h"
#include "frame_hook/trace/torch/called_by_rows.h"
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/c_arguments.h"
#include "frame_hook/trace/types/numpy_calls.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/loaded_modules.h"
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

// Whether the calling code is torch.optim's. It asks whether it is compiled, and asks for breaks, to suit torch's own
// compiler. If it gets eager's answers, its numbers and errors are eager's.
bool is_optimizer_calling(const CallStack& stack) {
  PyObject* const globals = calling_globals(stack);
  return globals && are_globals_of(globals, "torch.optim");
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

SpecialFunction classify_function(TensorFrontend& frontend, PyFunctionObject* f) {
  auto* code = reinterpret_cast<PyCodeObject*>(f->func_code);
  if (f->func_dict &&
      (is_true_mark(f->func_dict, "_torchdynamo_disable") || is_true_mark(f->func_dict, "_framejit_disable"))) {
    PyObject* original = PyDict_GetItemWithError(f->func_dict, interned("_torchdynamo_orig_callable"));
    const bool torchs_own =
        original && PyFunction_Check(original) && are_globals_of(PyFunction_GET_GLOBALS(original), "torch");
    return torchs_own && !is_true_mark(f->func_dict, "_framejit_disable") ? SpecialFunction::unwrap
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
    key += text ? text_of(text.get()) : "?";
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
Value* constant_result(Attempts& attempts, Shadows& shadows, FunctionValue* function, const Arguments& args) {
  guard_keyword_order(shadows.facts, args);
  std::string key = std::to_string(reinterpret_cast<uintptr_t>(function->object.get()));
  std::vector<PyObject*> given;
  std::vector<PyObject*> names;
  auto take = [&](Value* v) { return given.emplace_back(known_argument(shadows, v, key += ',')) != nullptr; };
  for (Value* v : args.positional)
    if (!take(v)) return nullptr;
  for (const auto& [name, v] : args.keywords) {
    key += text_of(name);
    if (!take(v)) return nullptr;
    names.push_back(name);
  }
  PyRef& result = attempts.assumed_constant(key);
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
      return t.heap.boolean(is_optimizer_calling(t.stack) ? is_health_check(t.stack) : t.attempts.answer_compiling());
    case SpecialFunction::constant: return constant_result(t.attempts, t.shadows, function, args);
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

void refuse_override(Tracer& t, Value* v) {
  if (TupleValue* items = tuple_of(v)) {
    for (Value* item : t.unpack(items)) refuse_override(t, item);
    return;
  }
  if (v->kind == ValueKind::instance && _PyType_Lookup(t.facts.type_of(v), interned("__torch_function__")))
    graph_break(Reason::custom_dispatch, std::string("__torch_function__ of ") + v->type->tp_name);
}

PyObject* torch_function(const char* name) { return original("torch", name); }
PyObject* inference_mode_type() { return original("torch._C", "_InferenceMode"); }

ModeGuard& mode_guard(Shadows& shadows, Value* v) {
  auto it = shadows.tables().mode_guards.find(v);
  if (it == shadows.tables().mode_guards.end())
    graph_break(Reason::outside_effect, "leaving inference mode that was entered outside of the trace");
  return it->second;
}

void call_real(PyObject* object, const char* method, std::initializer_list<PyObject*> args) {
  PyRef bound = PyRef::steal(PyObject_GetAttrString(object, method));
  const PyRef done =
      bound ? PyRef::steal(PyObject_Vectorcall(bound.get(), args.begin(), args.size(), nullptr)) : PyRef();
  FJ_ASSERT(done, std::string("_InferenceMode.") + method);
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

// The dispatch keys guard None: a run of torch.jit.trace includes one. Its state is another object in each run.
Value* tracing_state(Heap& heap, const Arguments&) {
  const PyRef state = PyRef::steal(PyObject_CallNoArgs(original("torch._C", "_get_tracing_state")));
  drop_error();
  if (state.get() != Py_None) graph_break(Reason::modes_unsupported, "tracing of torch.jit");
  return heap.none();
}

// Ops that run plainly, between two segments, cache the casts of weights. Without this call they would find casts of
// weights that have since changed.
Value* clear_autocast_cache(Shadows& shadows, const Arguments&) {
  PyObject* callable = torch_function("clear_autocast_cache");
  auto& calls = shadows.tables().calls_at_exit;
  const bool is_known =
      std::any_of(calls.begin(), calls.end(), [&](const auto& call) { return call.first->object.get() == callable; });
  if (!is_known) calls.emplace_back(shadows.heap.constant_value(callable), Arguments{});
  return shadows.heap.none();
}

namespace {

// The break is at the instruction of the innermost frame outside of torch: torch's code around the mode runs plainly
// too.
[[noreturn]] void enters_mode(CallStack& stack, const char* mode) {
  const auto& frames = stack.frames();
  auto outside = std::find_if(frames.rbegin(), frames.rend(),
                              [](const auto& frame) { return !is_torch_file(frame->code->code->co_filename); });
  if (outside != frames.rend()) (*outside)->on_return = OnReturn::not_resumable;
  graph_break(Reason::mode_entered, mode);
}

}  // namespace

Value* enter_function_mode(CallStack& stack, const Arguments&) { enters_mode(stack, "a torch-function mode"); }
Value* enter_dispatch_mode(CallStack& stack, const Arguments&) { enters_mode(stack, "a torch-dispatch mode"); }
Value* enter_forward_ad(CallStack& stack, const Arguments&) { enters_mode(stack, "forward-mode AD"); }
Value* enter_transform(CallStack& stack, const Arguments&) { enters_mode(stack, "a functorch transform"); }

// torch.cond() and others. One break names the op.
Value* higher_order_op(NoPart&, const Arguments& args) {
  PyObject* const op = args.positional.empty() ? nullptr : args.positional[0]->object.get();
  PyObject** const members = op ? _PyObject_GetDictPtr(op) : nullptr;
  PyObject* const name = members && *members ? PyDict_GetItemWithError(*members, interned("_name")) : nullptr;
  graph_break(Reason::unknown_callable,
              std::string("torch.ops.higher_order.") + (name && PyUnicode_Check(name) ? text_of(name) : "*"));
}

Value* inference_mode_new(Shadows& shadows, const Arguments& args) {
  Value* mode = parse(shadows.errors, args, "_InferenceMode", {"mode"}, 1)[0];
  if (shadows.facts.type_of(mode) != &PyBool_Type)
    graph_break(Reason::inference_mode, "inference mode of " + describe(mode));
  constant_of(shadows, mode);
  InstanceValue* v = make_instance(shadows.heap, reinterpret_cast<PyTypeObject*>(inference_mode_type()));
  shadows.tables().mode_guards[v].argument = mode;
  return v;
}

// Enters a real guard to see which modes it sets, and leaves it at once. The trace keeps these modes.
Value* inference_mode_enter(TracedTensors& tensors, const Arguments& args) {
  Shadows& shadows = tensors.numbers.shadows;
  ModeGuard& guard = mode_guard(shadows, args.positional.at(0));
  if (guard.before) graph_break(Reason::inference_mode, "inference mode that is entered twice");
  guard.before = tensors.frontend.save_modes();
  const PyRef real = PyRef::steal(PyObject_CallOneArg(inference_mode_type(), constant_of(shadows, guard.argument)));
  FJ_ASSERT(real, "_InferenceMode");
  call_real(real.get(), "__enter__", {});
  guard.inside = tensors.frontend.save_modes();
  call_real(real.get(), "__exit__", {Py_None, Py_None, Py_None});
  tensors.frontend.restore_modes(guard.inside);
  return shadows.heap.none();
}

Value* inference_mode_exit(TracedTensors& tensors, const Arguments& args) {
  Shadows& shadows = tensors.numbers.shadows;
  ModeGuard& guard = mode_guard(shadows, args.positional.at(0));
  if (!guard.before) graph_break(Reason::inference_mode, "inference mode that is left twice");
  if (!tensors.frontend.same_modes(guard.inside, tensors.frontend.save_modes()))
    graph_break(Reason::inference_mode, "a mode that was changed inside inference mode and not restored");
  tensors.frontend.restore_modes(guard.before);
  guard.before = guard.inside = nullptr;
  return shadows.heap.none();
}

Value* has_torch_function(Tracer& t, const Arguments& args) {
  for (Value* v : args.positional) refuse_override(t, v);
  return t.heap.boolean(false);
}

[[noreturn]] void method_reads_data(const char* method) {
  graph_break(Reason::data_dependent_value, std::string("Tensor.") + method + "()");
}

Value* tensor_data_ptr(NoPart&, const Arguments&) { method_reads_data("data_ptr"); }
Value* tensor_const_data_ptr(NoPart&, const Arguments&) { method_reads_data("const_data_ptr"); }
// A traced tensor is not referenced as often as the tensor of the program.
Value* tensor_use_count(NoPart&, const Arguments&) {
  graph_break(Reason::memory_address, "Tensor._use_count(), the number of references to a tensor,");
}
Value* tensor_untyped_storage(NoPart&, const Arguments&) { method_reads_data("untyped_storage"); }
Value* tensor_is_set_to(NoPart&, const Arguments&) { method_reads_data("is_set_to"); }

// For a setting that an optimizer keeps in a tensor. Other programs would recompile for each number that they act on.
Value* tensor_item(RealCalls& calls, const Arguments& args) {
  Value* const self = args.positional.at(0);
  Value* const number = is_optimizer_calling(calls.dicts.facts.stack) ? calls.tensors.number_in(self) : nullptr;
  return number ? number : calls.recorded(_PyType_Lookup(self->type, interned("item")), args);
}

Value* tensor_tolist(RealCalls& calls, const Arguments& args) {
  only_positional(calls.dicts.errors, args, "tolist", 1, 1);
  static PyObject* const tolist =
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(args.positional[0]->type), "tolist");
  Value* known =
      args.positional[0]->kind == ValueKind::tensor ? of_known_tensor(calls, tolist, args.positional[0]) : nullptr;
  if (!known) method_reads_data("tolist");
  return known;
}

Value* tensor_numpy(RealCalls& calls, const Arguments& args) {
  Value* known =
      args.positional.size() == 1 && args.keywords.empty() ? array_of_tensor(calls, args.positional[0]) : nullptr;
  if (!known) method_reads_data("numpy");
  return known;
}

Value* torch_from_numpy(RealCalls& calls, const Arguments& args) {
  const bool made_here =
      args.positional.size() == 1 && args.keywords.empty() && args.positional[0]->kind == ValueKind::array;
  return made_here ? tensor_of_array(calls, as<ArrayValue>(args.positional[0]), true)
                   : calls.recorded(torch_function("from_numpy"), args);
}

Value* unsupported_tensor_method(NoPart&, const Arguments&) {
  graph_break(Reason::unsupported_write, "a change of a tensor's identity, class or gradient");
}

Value* gradient_call(NoPart&, const Arguments&) {
  graph_break(Reason::gradient_call, "a call of torch.autograd or of a tensor's method for it");
}

Value* tensor_is_view(Tracer& t, const Arguments& args) {
  Value* self = args.positional.at(0);
  if (self->kind != ValueKind::tensor || !self->object)
    return t.calls.recorded(_PyType_Lookup(self->type, interned("_is_view")), args);
  t.get_attribute(self, interned("_base"));  // a view breaks here
  return t.heap.boolean(false);
}

namespace {

void specialise_ints(Tracer& t, Value* v) {
  v = payload_of(v);
  if (v->kind == ValueKind::sym_int) constant_of(t.shadows, v);
  else if (v->kind == ValueKind::list || v->kind == ValueKind::tuple)
    for (Value* item : t.unpack(v)) specialise_ints(t, item);
}

bool is_floating(PyObject* dtype) {
  const PyRef answer = PyRef::steal(PyObject_GetAttrString(dtype, "is_floating_point"));
  if (!answer) drop_error();
  return answer.get() == Py_True;
}

// torch.tensor of a number that differs between calls, or of a list of such numbers: torch.full() takes them unchanged.
// Null: treat them as constants.
Value* tensor_of_open_numbers(Tracer& t, const Arguments& args) {
  constexpr size_t kMost = 16;
  PyObject* dtype = nullptr;
  for (const auto& [name, v] : args.keywords) {
    if (std::string_view(text_of(name)) != "dtype" || !t.heap.is_constant(v)) return nullptr;
    if (PyObject* given = constant_of(t.shadows, v); given != Py_None) dtype = given;
  }
  if (args.positional.size() != 1) return nullptr;
  Value* data = payload_of(args.positional[0]);
  const bool is_row = data->kind == ValueKind::list || data->kind == ValueKind::tuple;
  std::vector<Value*> items = is_row ? t.unpack(data) : std::vector<Value*>{data};
  bool open = false, any_float = dtype && is_floating(dtype);
  for (Value* item : items) {
    const bool is_float = item->kind == ValueKind::object && item->object && PyFloat_CheckExact(item->object.get());
    const bool is_int = item->kind == ValueKind::sym_int ||
                        (item->kind == ValueKind::object && item->object && PyLong_CheckExact(item->object.get()));
    if (!is_float && !is_int) return nullptr;
    any_float = any_float || is_float;
    open = open || t.numbers.is_open(item);
  }
  if (!open || items.size() > kMost || (dtype && dtype != torch_function("int64") && !is_floating(dtype)))
    return nullptr;
  if (any_float && dtype && !is_floating(dtype)) return nullptr;
  auto* to_float = reinterpret_cast<PyObject*>(&PyFloat_Type);
  for (Value*& item : items)  // as torch.tensor() reads them
    if (any_float && item->type == &PyLong_Type)
      item = t.numbers.is_open(item) ? t.numbers.computed(to_float, {item})
                                     : t.call(t.heap.constant_value(to_float), {item});
  if (std::find(items.begin(), items.end(), nullptr) != items.end()) return nullptr;
  Value* full = t.heap.constant_value(torch_function("full"));
  std::vector<Value*> parts;
  for (Value* item : items)
    parts.push_back(t.call(
        full, Arguments{{t.heap.tuple(is_row ? std::vector<Value*>{t.heap.integer(1)} : std::vector<Value*>{}), item},
                        args.keywords}));
  return is_row ? t.call(t.heap.constant_value(torch_function("cat")), {t.heap.list(std::move(parts))}) : parts[0];
}

// torch.tensor() and as_tensor() of an array, with at most a dtype and a device. Null: any other call.
Value* tensor_of_numpy(Tracer& t, const char* function, const Arguments& args) {
  if (args.positional.size() != 1 || args.positional[0]->kind != ValueKind::array) return nullptr;
  Arguments rest;
  for (const auto& [name, v] : args.keywords) {
    const std::string_view text = text_of(name);
    if (text != "dtype" && text != "device") return nullptr;
    if (!t.heap.is_constant(v) || constant_of(t.shadows, v) != Py_None) rest.keywords.emplace_back(name, v);
  }
  const std::string_view which = function;
  if (which != "tensor" && which != "as_tensor") return nullptr;
  Value* made = tensor_of_array(t.calls, as<ArrayValue>(args.positional[0]), which == "as_tensor");
  return rest.keywords.empty() ? made : t.call(t.get_attribute(made, interned("to")), rest);
}

Value* tensor_of_data(Tracer& t, const char* function, const Arguments& args) {
  if (Value* made = tensor_of_numpy(t, function, args)) return made;
  const std::string_view which = function;
  if (which == "tensor" ||
      (which == "as_tensor" && args.positional.size() == 1 && t.numbers.is_open(args.positional[0])))
    if (Value* made = tensor_of_open_numbers(t, args)) return made;
  for (Value* v : args.positional) specialise_ints(t, v);
  for (const auto& [name, v] : args.keywords) specialise_ints(t, v);
  PyObject* callable = torch_function(function);
  if (!callable) graph_break(Reason::unknown_callable, std::string("torch.") + function);
  return t.calls.recorded(callable, args);
}

}  // namespace

Value* torch_tensor(Tracer& t, const Arguments& args) { return tensor_of_data(t, "tensor", args); }
Value* torch_as_tensor(Tracer& t, const Arguments& args) { return tensor_of_data(t, "as_tensor", args); }
Value* torch_asarray(Tracer& t, const Arguments& args) { return tensor_of_data(t, "asarray", args); }

// A call of the class: a list or a tuple makes elements of the default dtype. A call with sizes, which leaves memory
// uninitialised, breaks.
Value* tensor_class(Tracer& t, const Arguments& args) {
  Value* data = args.positional.size() == 1 && args.keywords.empty() ? args.positional[0] : nullptr;
  if (!data || (data->kind != ValueKind::list && data->kind != ValueKind::tuple))
    graph_break(Reason::unknown_callable, "class Tensor");
  Value* dtype = t.call(t.heap.constant_value(torch_function("get_default_dtype")), {});
  return tensor_of_data(t, "tensor", Arguments{{data}, {{interned("dtype"), dtype}}});
}

Value* tensor_new_tensor(Tracer& t, const Arguments& args) {
  std::vector<Value*> a =
      parse(t.errors, args, "new_tensor", {"self", "data", "$dtype", "$device", "$requires_grad"}, 2);
  Arguments call{{a[1]}, {}};
  auto given = [&](Value* v) { return !is_none(t.facts, v); };
  call.keywords.emplace_back(interned("dtype"), given(a[2]) ? a[2] : t.get_attribute(a[0], interned("dtype")));
  call.keywords.emplace_back(interned("device"), given(a[3]) ? a[3] : t.get_attribute(a[0], interned("device")));
  if (a[4]) call.keywords.emplace_back(interned("requires_grad"), a[4]);
  return tensor_of_data(t, "tensor", call);
}

Value* size_numel(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "numel", 1, 1);
  return math_prod(t, Arguments{{payload_of(args.positional[0])}, {}});
}

}  // namespace rows

}  // namespace framejit::frame_hook
