// frame_hook/trace/machine/inline_call.cpp — calls of Python functions: binds arguments as CPython does, then runs a
// frame.
#include "frame_hook/trace/machine/tracer.h"
#include "guards/cpython/names.h"
#include "runtime/base/result.h"

namespace framejit::frame_hook {

namespace {

bool same_name(PyObject* a, PyObject* b) {
  return a == b || (PyUnicode_GET_LENGTH(a) == PyUnicode_GET_LENGTH(b) && PyUnicode_Compare(a, b) == 0);
}

// "'a', 'b', and 'c'" as CPython lists missing arguments.
std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) out += names.size() == 2 ? " and " : i + 1 == names.size() ? ", and " : ", ";
    out += "'" + names[i] + "'";
  }
  return out;
}

// Binds one call; slots are localsplus slots: arguments, keyword-only ones, *args, **kwargs.
class Binder {
 public:
  Binder(Dicts& dicts, FunctionValue* function, const Arguments& args, std::vector<Value*>& slots)
      : dicts_(dicts),
        shadows_(dicts.shadows),
        function_(function),
        args_(args),
        slots_(slots),
        code_(function->code) {}

  void bind() {
    bind_positional();
    bind_keywords();
    apply_defaults();
    apply_keyword_defaults();
  }

 private:
  bool has(int flag) const { return (code_->co_flags & flag) != 0; }
  int named() const { return code_->co_argcount + code_->co_kwonlyargcount; }
  PyObject* name_of(int slot) const { return PyTuple_GET_ITEM(code_->co_localsplusnames, slot); }
  std::string callee() const {
    if (function_->qualname) return exact_text(constant_of(shadows_, function_->qualname));
    PyObject* real = function_->object.get();
    return exact_text(real ? reinterpret_cast<PyFunctionObject*>(real)->func_qualname : code_->co_qualname);
  }

  void bind_positional() {
    const size_t given = args_.positional.size(), wanted = static_cast<size_t>(code_->co_argcount);
    for (size_t i = 0; i < std::min(given, wanted); ++i) slots_[i] = args_.positional[i];
    if (has(CO_VARARGS)) {
      std::vector<Value*> rest(args_.positional.begin() + static_cast<long>(std::min(given, wanted)),
                               args_.positional.end());
      slots_[named()] = shadows_.heap.tuple(std::move(rest));
    }
    too_many_ = given > wanted && !has(CO_VARARGS);
  }

  void bind_keywords() {
    if (has(CO_VARKEYWORDS)) slots_[named() + (has(CO_VARARGS) ? 1 : 0)] = extra_ = shadows_.heap.dict();
    for (const auto& [name, value] : args_.keywords) {
      const int slot = find(name);
      if (slot < 0) {
        if (!extra_) unexpected(name);
        dicts_.set(extra_, shadows_.heap.constant_value(name), value);
      } else if (slots_[slot]) {
        guard_keyword_order(shadows_.facts, args_);  // which of two wrong keywords the error names
        shadows_.errors.raise_new(PyExc_TypeError,
                                  callee() + "() got multiple values for argument '" + exact_text(name) + "'");
      } else {
        slots_[slot] = value;
      }
    }
    if (extra_ && extra_->entries.size() > 1) extra_->order_from = args_.keywords.order_from;
    if (too_many_) too_many_positional();
  }

  int find(PyObject* name) const {
    for (int slot = code_->co_posonlyargcount; slot < named(); ++slot)
      if (name_of(slot) == name) return slot;
    for (int slot = code_->co_posonlyargcount; slot < named(); ++slot)
      if (same_name(name_of(slot), name)) return slot;
    return -1;
  }

  void unexpected(PyObject* name) {
    guard_keyword_order(shadows_.facts, args_);
    std::vector<std::string> positional_only;
    for (int slot = 0; slot < code_->co_posonlyargcount; ++slot)
      for (const auto& keyword : args_.keywords)
        if (same_name(name_of(slot), keyword.first)) positional_only.push_back(exact_text(name_of(slot)));
    if (!positional_only.empty()) {
      std::string names;
      for (const std::string& n : positional_only) names += (names.empty() ? "" : ", ") + n;
      shadows_.errors.raise_new(
          PyExc_TypeError,
          callee() + "() got some positional-only arguments passed as keyword arguments: '" + names + "'");
    }
    shadows_.errors.raise_new(PyExc_TypeError,
                              callee() + "() got an unexpected keyword argument '" + exact_text(name) + "'");
  }

  size_t default_count() { return function_->defaults ? as<TupleValue>(function_->defaults)->items.size() : 0; }

  void too_many_positional() {
    int keyword_only = 0;
    for (int slot = code_->co_argcount; slot < named(); ++slot) keyword_only += slots_[slot] != nullptr;
    const int takes = code_->co_argcount, given = static_cast<int>(args_.positional.size()),
              defaults = static_cast<int>(default_count());
    const std::string range =
        defaults ? "from " + std::to_string(takes - defaults) + " to " + std::to_string(takes) : std::to_string(takes);
    std::string and_keywords;
    if (keyword_only)
      and_keywords = " positional argument" + std::string(given == 1 ? "" : "s") + " (and " +
                     std::to_string(keyword_only) + " keyword-only argument" + (keyword_only == 1 ? "" : "s") + ")";
    shadows_.errors.raise_new(PyExc_TypeError, callee() + "() takes " + range + " positional argument" +
                                                   (defaults || takes != 1 ? "s" : "") + " but " +
                                                   std::to_string(given) + and_keywords +
                                                   (given == 1 && !keyword_only ? " was given" : " were given"));
  }

  void missing(int from, int to, const char* kind) {
    std::vector<std::string> names;
    for (int slot = from; slot < to; ++slot)
      if (!slots_[slot]) names.push_back(exact_text(name_of(slot)));
    if (names.empty()) return;
    shadows_.errors.raise_new(PyExc_TypeError, callee() + "() missing " + std::to_string(names.size()) + " required " +
                                                   kind + " argument" + (names.size() == 1 ? "" : "s") + ": " +
                                                   listed(names));
  }

  void apply_defaults() {
    const int wanted = code_->co_argcount;
    if (args_.positional.size() >= static_cast<size_t>(wanted)) return;
    const int defaults = static_cast<int>(default_count()), first = std::max(0, wanted - defaults);
    missing(0, first, "positional");
    for (int slot = first; slot < wanted; ++slot)
      if (!slots_[slot])
        slots_[slot] =
            shadows_.item(as<TupleValue>(function_->defaults), static_cast<size_t>(slot - wanted + defaults));
  }

  void apply_keyword_defaults() {
    for (int slot = code_->co_argcount; slot < named(); ++slot)
      if (!slots_[slot] && function_->kwdefaults)
        slots_[slot] = dicts_.get(as<DictValue>(function_->kwdefaults), shadows_.heap.constant_value(name_of(slot)));
    missing(code_->co_argcount, named(), "keyword-only");
  }

  Dicts& dicts_;
  Shadows& shadows_;
  FunctionValue* function_;
  const Arguments& args_;
  std::vector<Value*>& slots_;
  PyCodeObject* code_;
  DictValue* extra_ = nullptr;
  bool too_many_ = false;
};

}  // namespace

std::shared_ptr<const Code> Machine::decoded(PyCodeObject* code) {
  std::shared_ptr<const Code>& known = codes_[code];
  if (!known) {
    known = Code::decode(code);
    if (!known) t_.errors.raise_pending();
  }
  return known;
}

void Machine::prepare_frame(SymbolicFrame& frame, std::shared_ptr<const Code> code) {
  frame.locals.assign(static_cast<size_t>(code->local_count), nullptr);
  frame.stack.reserve(static_cast<size_t>(code->stack_size));
  CodeCache& cache = code_caches_[code->code];
  if (cache.constants.empty()) {
    cache.constants.resize(static_cast<size_t>(PyTuple_GET_SIZE(code->code->co_consts)), nullptr);
    cache.names.resize(static_cast<size_t>(PyTuple_GET_SIZE(code->code->co_names)), nullptr);
    cache.globals.resize(cache.names.size(), nullptr);
  }
  frame.cache = &cache;
  frame.code = std::move(code);
}

std::shared_ptr<SymbolicFrame> Machine::new_frame(FunctionValue* function) {
  auto frame = std::make_shared<SymbolicFrame>();
  prepare_frame(*frame, decoded(function->code));
  frame->function = function;
  frame->globals = function->globals;
  if (frame->globals->kind != ValueKind::dict)
    graph_break(Reason::odd_scope, "globals of another type than dict");
  frame->builtins = builtins_of(function);
  return frame;
}

// The builtins of the traced frame, except for functions made with their own `__builtins__` dictionary (namedtuple's
// __new__).
Value* Machine::builtins_of(FunctionValue* function) {
  PyObject* own =
      function->object ? reinterpret_cast<PyFunctionObject*>(function->object.get())->func_builtins : nullptr;
  if (!own) return t_.stack.frames().back()->builtins;
  if (own == live_builtins_) return t_.stack.frames().front()->builtins;
  Value* named = t_.dicts.get(as<DictValue>(function->globals), t_.heap.string("__builtins__"));
  if (!named || named->kind != ValueKind::dict || !named->object || named->object.get() != own)
    graph_break(Reason::odd_scope, "a function whose builtins are not those of its globals");
  return named;
}

void Machine::bind_arguments(FunctionValue* function, const Arguments& args, SymbolicFrame& frame) {
  const PyCodeObject* code = function->code;
  if (args.keywords.empty() && code->co_kwonlyargcount == 0 && !(code->co_flags & (CO_VARARGS | CO_VARKEYWORDS)) &&
      args.positional.size() == static_cast<size_t>(code->co_argcount)) {
    std::copy(args.positional.begin(), args.positional.end(), frame.locals.begin());
    return;
  }
  Binder(t_.dicts, function, args, frame.locals).bind();
}

Value* Machine::call_function(FunctionValue* function, const Arguments& args) {
  t_.shadows.load(function);
  std::shared_ptr<SymbolicFrame> frame = new_frame(function);
  bind_arguments(function, args, *frame);
  const int flags = function->code->co_flags;
  if (flags & (CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE))
    graph_break(Reason::generator_frame, text_of(function->code->co_qualname));
  trace_.python_calls_inlined += 1;
  if (!(flags & CO_GENERATOR)) return run_frame(std::move(frame));
  auto* generator = t_.heap.make<GeneratorValue>(ValueKind::generator, &PyGen_Type);
  generator->function = function;
  generator->frame = std::move(frame);
  generator->frame->generator = generator;
  generators_[generator] = t_.attempts.resumable_step();
  return generator;
}

}  // namespace framejit::frame_hook
