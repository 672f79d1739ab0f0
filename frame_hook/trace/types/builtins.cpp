// frame_hook/trace/types/builtins.cpp — the table of C functions, and the builtins that ask about objects: isinstance,
// getattr, type, ...
#include "frame_hook/trace/types/builtins.h"

#include <cmath>
#include <cstring>
#include <span>

#include "frame_hook/trace/machine/nested.h"
#include "frame_hook/trace/machine/unresumable.h"
#include "frame_hook/trace/protocol/descriptors.h"
#include "frame_hook/trace/protocol/lookup.h"
#include "frame_hook/trace/protocol/made_values.h"
#include "frame_hook/trace/protocol/strings.h"
#include "frame_hook/trace/types/c_arguments.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/payloads.h"
#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

namespace {

struct RowName {
  const char *module, *path;
  CFunction handler;  // null: runs concretely
};

constexpr RowName kPythonRows[] = {
#define ROW(module, path, handler, ...) {#module, #path, on_part<&rows::handler>},
#define CONCRETE(module, path) {#module, #path, nullptr},
#include "frame_hook/trace/types/builtins.def"
#undef CONCRETE
#undef ROW
};

constexpr RowName kTorchRows[] = {
#define ROW(module, path, handler, ...) {#module, #path, on_part<&rows::handler>},
#define CONCRETE(module, path) {#module, #path, nullptr},
#include "frame_hook/trace/torch/special.def"
#undef CONCRETE
#undef ROW
};

constexpr RowName kNumpyRows[] = {
#define CONCRETE(module, path) {#module, #path, nullptr},
#include "frame_hook/trace/types/numpy_rows.def"
#undef CONCRETE
};

using Table = std::unordered_map<PyObject*, CFunction>;

// A module of torch or NumPy is never imported: when its rows are looked up, everything that they name has been loaded
// (test_recognition.py).
void add_rows(Table& table, std::span<const RowName> list, bool of_python = false) {
  for (const RowName& row : list) {
    if (of_python && !PyRef::steal(PyImport_ImportModule(row.module))) drop_error();
    if (PyObject* found = find_original(row.module, row.path)) table.emplace(found, row.handler);
  }
}

PyObject* known_str(Shadows& shadows, Value* v) {
  v = payload_of(v);
  if (v->kind != ValueKind::object || !v->object || !PyUnicode_CheckExact(v->object.get()))
    shadows.errors.raise_new(
        PyExc_TypeError, std::string("attribute name must be string, not '") + shadows.facts.type_of(v)->tp_name + "'");
  return constant_of(shadows, v);
}

bool overrides_class_attribute(PyTypeObject* type) {
  static PyObject* const plain = _PyType_Lookup(&PyBaseObject_Type, interned("__class__"));
  const PyObject* getter = _PyType_Lookup(type, interned("__getattribute__"));
  return _PyType_Lookup(type, interned("__class__")) != plain || (getter && PyFunction_Check(getter));
}

Value* union_members(Shadows& shadows, Value* cls) {
  if (!is_known(shadows.facts.type_of(cls), KnownType::union_type)) return nullptr;
  PyRef args = PyRef::steal(PyObject_GetAttrString(constant_of(shadows, cls), "__args__"));
  return args ? shadows.heap.constant_value(args.get()) : nullptr;
}

const CFunction* find_row(PyObject* callable) {
  static Table* const table = [] {
    auto* made = new Table;
    add_rows(*made, kPythonRows, /*of_python=*/true);
    return made;
  }();
  static bool torch_added = false;
  if (!torch_added && PyDict_GetItemString(PyImport_GetModuleDict(), "torch.nn.functional")) {
    torch_added = true;
    add_rows(*table, kTorchRows);
  }
  static bool numpy_added = false;
  if (!numpy_added &&
      PyDict_GetItemString(PyImport_GetModuleDict(), "numpy.matrixlib")) {  // the last part that NumPy imports
    numpy_added = true;
    add_rows(*table, kNumpyRows);
  }
  auto it = table->find(callable);
  return it == table->end() ? nullptr : &it->second;
}

}  // namespace

void take_rows() {
  take_originals();
  find_row(Py_None);
}

CFunction find_c_function(PyObject* callable) {
  const CFunction* row = find_row(callable);
  return row ? *row : nullptr;
}

bool runs_concretely(PyObject* callable) {
  const CFunction* row = find_row(callable);
  return row && !*row;
}

bool is_real_instance(Tracer& t, Value* v, PyTypeObject* wanted) {
  if (t.facts.type_of(v) == wanted) return true;
  PyTypeObject* type = unchanged_type_of(t.facts, v);
  if (PyType_IsSubtype(type, wanted)) return true;
  if (!overrides_class_attribute(type)) return false;
  Value* pretended = t.find_attribute(v, interned("__class__"));
  PyTypeObject* other = pretended ? t.facts.known_type(pretended) : nullptr;
  return other && PyType_IsSubtype(other, wanted);
}

// Whether the special method of a metaclass is type's own. Another one in C may ask what a stand-in answers wrongly:
// torch.FloatTensor asks for the keys of a tensor.
static bool is_of_type(PyObject* special, const char* name, PyTypeObject* cls) {
  if (special == _PyType_Lookup(&PyType_Type, interned(name))) return true;
  if (Py_IS_TYPE(special, &PyMethodDescr_Type))
    graph_break(Reason::unknown_callable, std::string(name) + "() of " + cls->tp_name);
  return false;
}

bool is_instance(Tracer& t, Value* v, Value* cls) {
  if (TupleValue* classes = tuple_of(cls)) {
    const Nested nested("a tuple of isinstance()");
    for (Value* one : t.unpack(classes))
      if (is_instance(t, v, one)) return true;
    return false;
  }
  if (cls->kind == ValueKind::object)
    if (Value* members = union_members(t.shadows, cls)) return is_instance(t, v, members);
  PyTypeObject* type = t.facts.type_of(v);
  PyTypeObject* wanted = t.facts.known_type(cls);
  if (wanted && (type == wanted || Py_TYPE(wanted) == &PyType_Type)) return is_real_instance(t, v, wanted);
  const Found special = look_up(t.shadows, cls, interned("__instancecheck__"));
  if (!special.object)
    t.errors.raise_new(PyExc_TypeError, "isinstance() arg 2 must be a type, a tuple of types, or a union");
  if (wanted && is_of_type(special.object, "__instancecheck__", wanted)) return is_real_instance(t, v, wanted);
  Unresumable guard(t.stack);
  return t.truth(t.call(bind(t, special, cls, cls->type, nullptr), {v}));
}

void raise_unless_class(Tracer& t, Value* v) {
  if (t.find_attribute(v, interned("__bases__")))
    graph_break(Reason::unsupported_operand, "issubclass() of " + describe(v) + ", which has __bases__");
  t.errors.raise_new(PyExc_TypeError, "issubclass() arg 1 must be a class");
}

bool is_subclass(Tracer& t, Value* cls, Value* of) {
  if (TupleValue* classes = tuple_of(of)) {
    const Nested nested("a tuple of issubclass()");
    for (Value* one : t.unpack(classes))
      if (is_subclass(t, cls, one)) return true;
    return false;
  }
  if (of->kind == ValueKind::object)
    if (Value* members = union_members(t.shadows, of)) return is_subclass(t, cls, members);
  PyTypeObject *type = t.facts.known_type(cls), *wanted = t.facts.known_type(of);
  if (!type) raise_unless_class(t, cls);
  t.facts.guard_type_unchanged(type, t.facts.source_of(cls));
  if (wanted && Py_TYPE(wanted) == &PyType_Type) return PyType_IsSubtype(type, wanted);
  const Found special = look_up(t.shadows, of, interned("__subclasscheck__"));
  if (!special.object)
    t.errors.raise_new(PyExc_TypeError, "issubclass() arg 2 must be a class, a tuple of classes, or a union");
  if (wanted && is_of_type(special.object, "__subclasscheck__", wanted)) return PyType_IsSubtype(type, wanted);
  return t.truth(t.call(bind(t, special, of, of->type, nullptr), {cls}));
}

namespace rows {

Value* builtin_len(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "len", 1, 1);
  Value* v = args.positional[0];
  if (v->kind == ValueKind::tensor) return t.call(t.lookup_special(v, "__len__"), {});
  if (auto n = t.length(v)) return t.heap.integer(*n);
  const PyTypeObject* type = builtin_base(t.facts.type_of(v));
  const bool in_c = (type->tp_as_mapping && type->tp_as_mapping->mp_length) ||
                    (type->tp_as_sequence && type->tp_as_sequence->sq_length);
  raise_unless_in_c(t.errors, v, in_c, std::string("object of type '") + v->type->tp_name + "' has no len()");
}

Value* builtin_isinstance(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "isinstance", 2, 2);
  return t.heap.boolean(is_instance(t, args.positional[0], args.positional[1]));
}

Value* builtin_issubclass(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "issubclass", 2, 2);
  return t.heap.boolean(is_subclass(t, args.positional[0], args.positional[1]));
}

Value* builtin_hasattr(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "hasattr", 2, 2);
  return t.heap.boolean(t.find_attribute(args.positional[0], known_str(t.shadows, args.positional[1])) != nullptr);
}

Value* builtin_getattr(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "getattr", 2, 3);
  PyObject* name = known_str(t.shadows, args.positional[1]);
  if (args.positional.size() == 2) return t.get_attribute(args.positional[0], name);
  Value* found = t.find_attribute(args.positional[0], name);
  return found ? found : args.positional[2];
}

Value* builtin_setattr(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "setattr", 3, 3);
  t.set_attribute(args.positional[0], known_str(t.shadows, args.positional[1]), args.positional[2]);
  return t.heap.none();
}

Value* builtin_delattr(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "delattr", 2, 2);
  t.delete_attribute(args.positional[0], known_str(t.shadows, args.positional[1]));
  return t.heap.none();
}

Value* builtin_callable(Errors& errors, const Arguments& args) {
  only_positional(errors, args, "callable", 1, 1);
  Value* v = args.positional[0];
  return errors.heap.boolean(unchanged_type_of(errors.heap.facts, v)->tp_call != nullptr);
}

Value* builtin_id(RealCalls& calls, const Arguments& args) {
  only_positional(calls.dicts.errors, args, "id", 1, 1);
  auto* identity = calls.dicts.heap.make<IdentityValue>(ValueKind::identity, &PyLong_Type);
  identity->of = args.positional[0];
  identity->made_at = calls.attempts.resumable_step();
  return identity;
}

Value* builtin_hash(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "hash", 1, 1);
  Value* v = args.positional[0];
  if (Value* method = v->kind == ValueKind::tensor ? nullptr : python_special(t, v, "__hash__"))
    return t.heap.integer(returned_hash(t.shadows, t.call(method, {})));
  const bool is_nan = v->kind == ValueKind::instance && payload_of(v)->object &&
                      PyFloat_CheckExact(payload_of(v)->object.get()) &&
                      std::isnan(PyFloat_AS_DOUBLE(payload_of(v)->object.get()));
  if (is_nan) graph_break(Reason::unsupported_key, "hash() of " + describe(v));  // it hashes the address
  v = without_symbols(t.shadows, v);
  if (!t.heap.is_constant(v) || is_identity_key(v)) graph_break(Reason::unsupported_key, "hash() of " + describe(v));
  const Py_hash_t h = PyObject_Hash(constant_of(t.shadows, v));
  if (h == -1 && PyErr_Occurred()) t.errors.raise_pending();
  return t.heap.integer(h);
}

Value* builtin_vars(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "vars", 0, 1);
  if (args.positional.empty()) graph_break(Reason::odd_scope, "vars() of the running frame");
  if (Value* dict = t.find_attribute(args.positional[0], interned("__dict__"))) return dict;
  t.errors.raise_new(PyExc_TypeError, "vars() argument must have __dict__ attribute");
}

Value* builtin_type(Errors& errors, const Arguments& args) {
  if (args.positional.size() != 1) graph_break(Reason::made_in_trace, "a class made by type()");
  if (!args.keywords.empty()) errors.raise_new(PyExc_TypeError, "type() takes no keyword arguments");
  return errors.heap.constant_value(reinterpret_cast<PyObject*>(errors.heap.facts.type_of(args.positional[0])));
}

Value* builtin_object(Errors& errors, const Arguments& args) {
  only_positional(errors, args, "object", 0, 0);
  return make_instance(errors.heap, &PyBaseObject_Type);
}

// super() without arguments reads the first local and the cell __class__ of the calling frame.
Value* builtin_super(Shadows& shadows, const Arguments& args) {
  Value *start = nullptr, *self = nullptr;
  if (!args.positional.empty()) {
    only_positional(shadows.errors, args, "super", 1, 2);
    if (args.positional.size() == 1) graph_break(Reason::odd_scope, "an unbound super object");
    start = args.positional[0];
    self = args.positional[1];
  } else {
    SymbolicFrame& frame = shadows.facts.stack.innermost();
    PyCodeObject* code = frame.code->code;
    if (code->co_argcount == 0) shadows.errors.raise_new(PyExc_RuntimeError, "super(): no arguments");
    shadows.facts.relies_on_binding(frame, 0);
    auto contents = [&](Value* v) {
      return v && v->kind == ValueKind::cell ? cell_contents(shadows, as<CellValue>(v)) : v;
    };
    self = contents(frame.locals[0]);
    if (!self) shadows.errors.raise_new(PyExc_RuntimeError, "super(): arg[0] deleted");
    bool has_class = false;
    for (int slot = 0; slot < frame.code->local_count; ++slot) {
      const bool is_free = frame.code->local_kind(slot) & kFreeSlot;
      if (!is_free || std::strcmp(text_of(frame.code->local_name(slot)), "__class__") != 0) continue;
      has_class = true;
      start = contents(frame.locals[slot]);
    }
    const char* const missing = has_class ? "super(): empty __class__ cell" : "super(): __class__ cell not found";
    if (!start) shadows.errors.raise_new(PyExc_RuntimeError, missing);
  }
  PyTypeObject* cls = shadows.facts.known_type(start);
  if (!cls) shadows.errors.raise_new(PyExc_TypeError, "super() argument 1 must be a type");
  auto* v = shadows.heap.make<SuperValue>(ValueKind::super, &PySuper_Type);
  v->start_type = start;
  v->self = self;
  PyTypeObject* self_class = real_type(self) ? shadows.facts.known_type(self) : nullptr;
  if (self_class && PyType_IsSubtype(self_class, cls)) {
    v->self_type = self;
  } else {
    PyTypeObject* type = unchanged_type_of(shadows.facts, self);
    if (!PyType_IsSubtype(type, cls))
      shadows.errors.raise_new(PyExc_TypeError, "super(type, obj): obj must be an instance or subtype of type");
    v->self_type = shadows.heap.constant_value(reinterpret_cast<PyObject*>(type));
  }
  return v;
}

Value* builtin_globals(CallStack& stack, const Arguments&) { return stack.innermost().globals; }
Value* builtin_repr(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "repr", 1, 1);
  return t.to_repr(args.positional[0]);
}

// The text of an open number has no other characters.
Value* builtin_ascii(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "ascii", 1, 1);
  Value* text = t.to_repr(args.positional[0]);
  if (t.numbers.is_open(text) || PyUnicode_IS_ASCII(text->object.get())) return text;
  const PyRef bytes =
      PyRef::steal(PyUnicode_AsEncodedString(constant_of(t.shadows, text), "ascii", "backslashreplace"));
  return t.errors.constant_steal(bytes ? PyUnicode_FromEncodedObject(bytes.get(), "ascii", "strict") : nullptr);
}

Value* os_fspath(Tracer& t, const Arguments& args) {
  Value* path = parse(t.errors, args, "fspath", {"path"}, 1)[0];
  PyTypeObject* type = t.facts.type_of(path);
  if (PyType_IsSubtype(type, &PyUnicode_Type) || PyType_IsSubtype(type, &PyBytes_Type)) return path;
  if (Value* method = python_special(t, path, "__fspath__")) {
    Unresumable guard(t.stack);
    Value* text = t.call(method, {});
    PyTypeObject* of = t.facts.type_of(text);
    if (PyType_IsSubtype(of, &PyUnicode_Type) || PyType_IsSubtype(of, &PyBytes_Type)) return text;
    t.errors.raise_new(PyExc_TypeError, std::string("expected ") + type->tp_name +
                                            ".__fspath__() to return str or bytes, not " + of->tp_name);
  }
  t.errors.raise_new(PyExc_TypeError, std::string("expected str, bytes or os.PathLike object, not ") + type->tp_name);
}

Value* builtin_str(Tracer& t, const Arguments& args) {
  if (args.positional.empty() && args.keywords.empty()) return t.heap.string("");
  if (args.positional.size() == 1 && args.keywords.empty()) return t.to_string(args.positional[0]);
  refuse_foreign_codecs(t.shadows, args);
  return t.calls.plain(reinterpret_cast<PyObject*>(&PyUnicode_Type), args);
}

Value* builtin_format(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "format", 1, 2);
  if (args.positional.size() == 2 && !PyType_IsSubtype(t.facts.type_of(args.positional[1]), &PyUnicode_Type)) {
    const bool is_none = same_object(t.shadows, args.positional[1], t.heap.none());
    const std::string given = is_none ? "None" : args.positional[1]->type->tp_name;
    t.errors.raise_new(PyExc_TypeError, "format() argument 2 must be str, not " + given);
  }
  return t.format(args.positional[0], args.positional.size() == 2 ? args.positional[1] : nullptr);
}

Value* builtin_method(Shadows& shadows, const Arguments& args) {
  only_positional(shadows.errors, args, "method", 2, 2);
  Value *function = args.positional[0], *self = args.positional[1];
  const bool is_known = function->kind == ValueKind::function || function->kind == ValueKind::method ||
                        function->kind == ValueKind::instance;
  if (!is_known || same_object(shadows, self, shadows.heap.none()))
    graph_break(Reason::unknown_callable, "class method of " + describe(function));
  return make_method(shadows.heap, function, self);
}

Value* builtin_mapping_proxy(Errors& errors, const Arguments& args) {
  only_positional(errors, args, "mappingproxy", 1, 1);
  Value* mapping = args.positional[0];
  PyTypeObject* type = errors.heap.facts.type_of(mapping);
  if (type != &PyDict_Type && type != &PyODict_Type)
    graph_break(Reason::unknown_callable, "mappingproxy of " + describe(mapping));
  return mapping_proxy(errors.heap, mapping);
}

namespace {

PyRef abc_cache_token() {
  static PyObject* const function = original("_abc", "get_cache_token");
  return PyRef::steal(PyObject_CallNoArgs(function));
}

// A class that is not a subclass may become one: ABC.register() advances the token.
class Registrations final : public guards::ModeFacts {
 public:
  bool matches() const override {
    const PyRef token = abc_cache_token();
    return PyObject_RichCompareBool(token.get(), token_.get(), Py_EQ) == 1;
  }
  std::string mismatch() const override { return "a class was registered with an abstract base class"; }

 private:
  const PyRef token_ = abc_cache_token();
};

void guard_registrations(Facts& facts) {
  if (!facts.relies_on_mode<Registrations>()) facts.rely_on_mode(std::make_shared<Registrations>());
}

}  // namespace

// The answer of an abstract base class about a real class depends only on its registrations; its own C code gives the
// answer.
Value* abc_subclasscheck(Errors& errors, const Arguments& args) {
  only_positional(errors, args, "_abc_subclasscheck", 2, 2);
  PyTypeObject *cls = errors.heap.facts.known_type(args.positional[0]),
               *sub = errors.heap.facts.known_type(args.positional[1]);
  if (!cls || !sub) graph_break(Reason::made_in_trace, "issubclass() of a class made in the trace");
  const int answer = PyObject_IsSubclass(reinterpret_cast<PyObject*>(sub), reinterpret_cast<PyObject*>(cls));
  if (answer < 0) {  // a protocol raises or not, depending on the frame that asks
    drop_error();
    graph_break(Reason::unknown_callable, std::string("issubclass() with ") + cls->tp_name);
  }
  if (answer == 0) guard_registrations(errors.heap.facts);
  return errors.heap.boolean(answer == 1);
}

Value* abc_instancecheck(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "_abc_instancecheck", 2, 2);
  PyTypeObject* type = unchanged_type_of(t.facts, args.positional[1]);
  const auto has = [&](Value* cls) { return abc_subclasscheck(t.errors, Arguments{{args.positional[0], cls}, {}}); };
  Value* pretended =
      overrides_class_attribute(type) ? t.find_attribute(args.positional[1], interned("__class__")) : nullptr;
  if (pretended && t.truth(has(pretended))) return t.heap.boolean(true);
  return has(t.heap.constant_value(reinterpret_cast<PyObject*>(type)));
}

// ---- effects outside of the program

Value* outside_print(NoPart&, const Arguments&) { graph_break(Reason::outside_effect, "print()"); }
Value* outside_time(NoPart&, const Arguments&) { graph_break(Reason::outside_effect, "reading the clock"); }

Value* outside_class(NoPart&, const Arguments&) { graph_break(Reason::made_in_trace, "a class statement"); }
Value* unsupported_property(NoPart&, const Arguments&) {
  graph_break(Reason::made_in_trace, "a property made in the trace");
}
namespace {

class RecursionLimit final : public guards::ModeFacts {
 public:
  bool matches() const override { return Py_GetRecursionLimit() == limit_; }
  std::string mismatch() const override {
    return "sys.getrecursionlimit() == " + std::to_string(limit_) + " but is " + std::to_string(Py_GetRecursionLimit());
  }

 private:
  const int limit_ = Py_GetRecursionLimit();
};

void rely_on_nothing_handled(Facts& facts, const std::string& asker) {
  bool known = false;
  if (facts.stack.handled_exception(&known) || (!known && !facts.relies_on_nothing_handled()))
    graph_break(Reason::exception_state, asker + " while an exception is handled");
}

}  // namespace

Value* exc_info(Errors& errors, const Arguments& args) {
  only_positional(errors, args, "exc_info", 0, 0);
  rely_on_nothing_handled(errors.heap.facts, "sys.exc_info()");
  return errors.heap.tuple({errors.heap.none(), errors.heap.none(), errors.heap.none()});
}

Value* handled_exception(Errors& errors, const Arguments& args) {
  only_positional(errors, args, "exception", 0, 0);
  rely_on_nothing_handled(errors.heap.facts, "sys.exception()");
  return errors.heap.none();
}

Value* recursion_limit(Heap& heap, const Arguments&) {
  heap.facts.rely_on_mode(std::make_shared<RecursionLimit>());
  return heap.integer(Py_GetRecursionLimit());
}

Value* returns_none(Heap& heap, const Arguments&) { return heap.none(); }
Value* intern_text(Shadows& shadows, const Arguments& args) {
  only_positional(shadows.errors, args, "intern", 1, 1);
  Value* v = args.positional[0];
  if (v->kind != ValueKind::object || !v->object || !PyUnicode_CheckExact(v->object.get()))
    graph_break(Reason::unknown_callable, "sys.intern() of " + describe(v));
  PyObject* own = Py_NewRef(constant_of(shadows, v));
  PyUnicode_InternInPlace(&own);
  return shadows.errors.constant_steal(own);
}

}  // namespace rows

}  // namespace framejit::frame_hook
