// frame_hook/trace/machine/handlers_call.cpp — calls, making functions, imports, with blocks.
#include "frame_hook/trace/machine/opcode_handlers.h"
#include "frame_hook/trace/values/originals.h"
#include "guards/cpython/names.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

using guards::kNoSource;
using guards::SourceKind;

namespace {

// The result of such a callable is the result of the call, so that a break inside it can be resumed there.
bool returns_directly(Value* callable) {
  if (callable->kind == ValueKind::function) return true;
  if (callable->kind == ValueKind::method) return as<MethodValue>(callable)->function->kind == ValueKind::function;
  if (callable->kind != ValueKind::instance) return false;
  static PyObject* const name = PyUnicode_InternFromString("__call__");
  PyObject* found = _PyType_Lookup(callable->type, name);
  return found && PyFunction_Check(found);
}

}  // namespace

Value* OpcodeHandlers::call_value(Tracer& t, SymbolicFrame& f, Value* callable, const Arguments& args) {
  f.on_return = returns_directly(callable) ? OnReturn::push : OnReturn::not_resumable;
  f.calls_directly = true;
  Value* result = t.call(callable, args);
  f.calls_directly = false;
  f.on_return = OnReturn::not_resumable;
  f.pending_object = nullptr;
  return result;
}

// lower upper arg* [names] -- result
Flow OpcodeHandlers::call(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  PyObject* names = i.has(Instruction::kNamesOnStack) ? constant_of(t.shadows, f.pop()) : i.object;
  const size_t given = static_cast<size_t>(i.arg), named = names ? static_cast<size_t>(PyTuple_GET_SIZE(names)) : 0;
  Value** first = f.stack.data() + f.stack.size() - given;
  Value *upper = first[-1], *lower = first[-2];
  Arguments args;
  Value* callable = lower->kind == ValueKind::null ? upper : lower;
  args.positional.reserve(given + 1);
  if (lower->kind != ValueKind::null && upper->kind != ValueKind::null) args.positional.push_back(upper);
  args.positional.insert(args.positional.end(), first, first + (given - named));
  for (size_t k = 0; k < named; ++k) args.keywords.emplace_back(PyTuple_GET_ITEM(names, k), first[given - named + k]);
  f.stack.resize(f.stack.size() - given - 2);
  f.push(call_value(t, f, callable, args));
  return Flow::next;
}

// lower upper args [kwargs] -- result
Flow OpcodeHandlers::call_function_ex(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* keywords = i.has(Instruction::kHasKwargs) ? f.pop() : nullptr;
  Value* positional = f.pop();
  Value* upper = f.pop();
  Value* lower = f.pop();
  Value* callable = upper->kind == ValueKind::null ? lower : upper;
  Arguments args;
  args.positional = unpack_arguments(t, positional, callable);
  std::vector<PyRef> names;
  if (keywords) {
    DictValue* dict = keywords->kind == ValueKind::dict ? as<DictValue>(keywords) : t.heap.dict();
    if (dict != keywords) merge_into(t, dict, keywords, callable);
    t.dicts.load_keys(dict);
    args.keywords.order_from = dict->order_from;
    for (size_t k = 0; k < dict->entries.size(); ++k) {
      Value* key = dict->entries[k].key;
      if (!t.heap.is_constant(key) || !PyUnicode_Check(constant_of(t.shadows, key)))
        t.errors.raise_new(PyExc_TypeError, "keywords must be strings");
      names.push_back(PyRef::borrow(constant_of(t.shadows, key)));
      args.keywords.emplace_back(names.back().get(), t.dicts.get(dict, key));
    }
  }
  f.push(call_value(t, f, callable, args));
  return Flow::next;
}

// ---- functions

namespace {

void set_function_part(Tracer& t, FunctionValue* function, int bit, Value* value) {
  if (bit == 1) function->defaults = value;
  if (bit == 2) function->kwdefaults = value;
  if (bit == 8)
    for (Value* cell : t.unpack(value)) function->closure.push_back(cell);
  if (bit != 4) return;
  if (value->kind == ValueKind::tuple) {  // name, annotation, name, annotation, ...
    const std::vector<Value*> items = t.unpack(value);
    DictValue* dict = t.heap.dict();
    for (size_t k = 0; k + 1 < items.size(); k += 2) t.dicts.set(dict, items[k], items[k + 1]);
    value = dict;
  }
  function->attrs.emplace_back(PyRef::steal(PyUnicode_InternFromString("__annotations__")), value);
}

}  // namespace

// [defaults] [kwdefaults] [annotations] [closure] code -- function
Flow OpcodeHandlers::make_function(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  auto* function = t.heap.make<FunctionValue>(ValueKind::function, &PyFunction_Type);
  function->code_ref = PyRef::borrow(constant_of(t.shadows, f.pop()));
  function->code = reinterpret_cast<PyCodeObject*>(function->code_ref.get());
  function->globals = f.globals;
  function->name = t.heap.constant_value(function->code->co_name);
  function->qualname = t.heap.constant_value(function->code->co_qualname);
  function->loaded = true;
  for (int bit : {8, 4, 2, 1})
    if (i.arg & bit) set_function_part(t, function, bit, f.pop());
  f.push(function);
  return Flow::next;
}

// attribute function -- function
Flow OpcodeHandlers::set_function_attribute(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* function = f.pop();
  set_function_part(t, as<FunctionValue>(function), i.arg, f.pop());
  f.push(function);
  return Flow::next;
}

// ---- imports: only of modules that have been imported before

namespace {

Value* imported_module(Dicts& dicts, PyObject* name) {
  guards::SourceTable& sources = dicts.facts.sources();
  PyObject* modules = PyImport_GetModuleDict();
  if (!PyDict_CheckExact(modules) || !PyDict_GetItem(modules, name)) return nullptr;
  return dicts.get(as<DictValue>(dicts.heap.wrap(modules, sources.add(SourceKind::sys_modules))),
                   dicts.heap.constant_value(name));
}

// The absolute name for a relative import, from the __package__ of the frame's globals.
PyRef absolute_name(Dicts& dicts, SymbolicFrame& f, PyObject* name, int64_t level) {
  Value* package = dicts.get(as<DictValue>(f.globals), dicts.heap.string("__package__"));
  if (!package || !dicts.heap.is_constant(package) || !PyUnicode_Check(constant_of(dicts.shadows, package)))
    graph_break(Reason::outside_effect, "a relative import without __package__");
  std::string base = exact_text(constant_of(dicts.shadows, package));
  for (int64_t k = 1; k < level; ++k) {
    const size_t dot = base.rfind('.');
    if (dot == std::string::npos) graph_break(Reason::outside_effect, "a relative import beyond the package");
    base.resize(dot);
  }
  if (PyUnicode_GET_LENGTH(name) > 0) base += std::string(".") + exact_text(name);
  return PyRef::steal(object_of_text(base));
}

}  // namespace

// level fromlist -- module
Flow OpcodeHandlers::import_name(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* const import = t.dicts.get(as<DictValue>(f.builtins), t.heap.string("__import__"));
  if (import) t.facts.guard_identity(import);
  if (!import || import->object.get() != builtin_function("__import__"))
    graph_break(Reason::outside_effect, "the program's own builtins.__import__");
  Value* from = f.pop();
  const int64_t level = t.as_index(f.pop());
  PyRef name = level > 0 ? absolute_name(t.dicts, f, i.object, level) : PyRef::borrow(i.object);
  Value* module = imported_module(t.dicts, name.get());
  if (!module) graph_break(Reason::outside_effect, std::string("the first import of ") + text_of(name.get()));
  if (!same_object(t.shadows, from, t.heap.none())) {
    PyObject* wanted = constant_of(t.shadows, from);
    for (Py_ssize_t k = 0; PyTuple_Check(wanted) && k < PyTuple_GET_SIZE(wanted); ++k) {
      PyObject* attribute = PyTuple_GET_ITEM(wanted, k);
      if (!t.find_attribute(module, attribute))
        graph_break(Reason::outside_effect,
                    std::string("the import of ") + text_of(attribute) + " from " + text_of(name.get()));
    }
  } else if (const std::string full = exact_text(name.get()); level == 0 && full.find('.') != std::string::npos) {
    PyRef top = PyRef::steal(object_of_text(full.substr(0, full.find('.'))));
    module = imported_module(t.dicts, top.get());
    if (!module) graph_break(Reason::outside_effect, std::string("the import of ") + text_of(name.get()));
  }
  f.push(module);
  return Flow::next;
}

// module -- module value
Flow OpcodeHandlers::import_from(Tracer& t, SymbolicFrame& f, const Instruction& i) {
  Value* v = t.find_attribute(f.top(), i.object);
  if (!v) graph_break(Reason::outside_effect, std::string("the import of ") + text_of(i.object));
  f.push(v);
  return Flow::next;
}

// ---- with blocks

// manager -- exit entered
Flow OpcodeHandlers::before_with(Tracer& t, SymbolicFrame& f, const Instruction&) {
  Value* manager = f.pop();
  auto missing = [&] {
    t.errors.raise_new(PyExc_TypeError, std::string("'") + t.facts.type_of(manager)->tp_name +
                                            "' object does not support the context manager protocol");
  };
  Value* enter = t.lookup_special(manager, "__enter__");
  if (!enter) missing();
  Value* exit = t.lookup_special(manager, "__exit__");
  if (!exit) missing();
  f.push(exit);
  f.push(call_value(t, f, enter, {}));
  return Flow::next;
}

// exit lasti previous exception -- exit lasti previous exception result. The traceback is an opaque object.
Flow OpcodeHandlers::with_except_start(Tracer& t, SymbolicFrame& f, const Instruction&) {
  Value *exception = f.top(), *exit = f.top(3);
  Value* type = t.heap.constant_value(reinterpret_cast<PyObject*>(t.facts.type_of(exception)));
  Value* traceback = t.heap.make<InstanceValue>(ValueKind::instance, &PyTraceBack_Type);
  f.push(call_value(t, f, exit, {{type, exception, traceback}, {}}));
  return Flow::next;
}

}  // namespace framejit::frame_hook
