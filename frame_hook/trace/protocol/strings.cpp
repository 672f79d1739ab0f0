// frame_hook/trace/protocol/strings.cpp — str(), repr(), format(), join: concretely on plain values, through inlined
// special methods otherwise. A text that would hold an address, or a tensor's data, breaks.
#include <algorithm>
#include <cctype>
#include <cstring>

#include "frame_hook/trace/machine/unresumable.h"
#include "frame_hook/trace/protocol/descriptors.h"
#include "frame_hook/trace/protocol/lookup.h"
#include "frame_hook/trace/protocol/strings.h"
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/c_arguments.h"
#include "frame_hook/trace/types/set_order.h"
#include "frame_hook/trace/values/describe.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/originals.h"
#include "frame_hook/trace/values/payloads.h"

namespace framejit::frame_hook {

namespace {

std::string text_of_result(Shadows& shadows, Value* v, const char* special) {
  if (payload_of(v) != v)
    graph_break(Reason::text_formatting, std::string(special) + "() that returns " + describe(v));
  Value* text = payload_of(v);
  if (text->kind != ValueKind::object || !text->object || !PyUnicode_CheckExact(text->object.get()))
    shadows.errors.raise_new(PyExc_TypeError, std::string(special) + " returned non-string (type " +
                                                  shadows.facts.type_of(v)->tp_name + ")");
  return exact_text(constant_of(shadows, text));
}

std::string joined(Tracer& t, const std::vector<Value*>& items) {
  std::string text;
  for (Value* v : items) text += (text.empty() ? "" : ", ") + repr_text(t, v);
  return text;
}

std::string concrete_repr(Shadows& shadows, Value* v) {
  PyRef text = PyRef::steal(PyObject_Repr(constant_of(shadows, v)));
  if (!text) shadows.errors.raise_of_pure_call();
  return exact_text(text.get());
}

std::string dict_repr(Tracer& t, DictValue* dict) {
  t.dicts.load(dict);
  std::string text = "{";
  const std::vector<DictEntry> entries = dict->entries;
  for (const DictEntry& e : entries)
    text += (text.size() == 1 ? "" : ", ") + repr_text(t, e.key) + ": " + repr_text(t, e.value);
  return text + "}";
}

[[noreturn]] void no_text(Value* v) {
  if (v->kind == ValueKind::tensor) graph_break(Reason::data_dependent_value, "the text of a tensor");
  graph_break(Reason::text_formatting, "the text of " + describe(v));
}

bool is_exception(Value* v) { return v->kind == ValueKind::instance && is_exception_type(v->type); }

// C code reads the tuple itself, whatever the class says of `args`.
std::vector<Value*> exception_arguments(Tracer& t, Value* v) {
  Value* const made = v->object ? nullptr : as<InstanceValue>(v)->payload;
  return t.unpack(made ? made : t.get_attribute(v, interned("args")));
}

const char* bare_name(PyTypeObject* type) {
  const char* dot = strrchr(type->tp_name, '.');
  return dot ? dot + 1 : type->tp_name;
}

std::string set_items_text(Tracer& t, SetValue* set) {
  t.shadows.load(set);
  const std::vector<Value*> items = ordered_items(t.shadows, set);
  return items.empty() ? "" : "{" + joined(t, items) + "}";
}

std::string instance_repr(Tracer& t, Value* v) {
  if (is_exception(v)) {
    std::vector<Value*> args = exception_arguments(t, v);
    return std::string(bare_name(v->type)) + "(" + joined(t, args) + ")";
  }
  Value* payload = payload_of(v);
  PyTypeObject* base = builtin_base(v->type);
  if (is_size_type(base) && payload->kind == ValueKind::tuple)
    return "torch.Size([" + joined(t, t.unpack(payload)) + "])";
  if (payload->kind == ValueKind::set && base == payload->type)
    return std::string(bare_name(v->type)) + "(" + set_items_text(t, as<SetValue>(payload)) + ")";
  if (payload != v && base == payload->type) return repr_text(t, payload);
  no_text(v);
}

// The containers whose text is being made: a container inside itself prints as dots.
std::vector<Value*> in_progress;
constexpr size_t kDeepest = 100;

struct InProgress {
  explicit InProgress(Value* v) {
    if (in_progress.size() >= kDeepest) graph_break(Reason::recursion_limit, "the text of a container");
    in_progress.push_back(v);
  }
  ~InProgress() { in_progress.pop_back(); }
  InProgress(const InProgress&) = delete;
};

std::string dots(Value* v) {
  if (v->kind == ValueKind::tuple) return "(...)";
  if (v->kind == ValueKind::list) return "[...]";
  if (v->kind == ValueKind::dict) return "{...}";
  if (payload_of(v)->kind == ValueKind::set) return std::string(bare_name(v->type)) + "(...)";
  return v->kind == ValueKind::view ? "..." : "";
}

std::string text_inside(Tracer& t, Value* v);

}  // namespace

std::string repr_text(Tracer& t, Value* v) {
  t.facts.type_of(v);
  if (std::find(in_progress.begin(), in_progress.end(), v) != in_progress.end())
    if (std::string text = dots(v); !text.empty()) return text;
  const InProgress now(v);
  return text_inside(t, v);
}

namespace {

std::string text_inside(Tracer& t, Value* v) {
  switch (v->kind) {
    case ValueKind::sym_int:
    case ValueKind::identity: return std::to_string(t.as_index(v));
    case ValueKind::tuple: {
      std::vector<Value*> items = t.unpack(v);
      return "(" + joined(t, items) + (items.size() == 1 ? ",)" : ")");
    }
    case ValueKind::list: return "[" + joined(t, t.unpack(v)) + "]";
    case ValueKind::dict: return dict_repr(t, as<DictValue>(v));
    case ValueKind::set: {
      if (t.heap.is_constant(v)) return concrete_repr(t.shadows, v);
      const std::string inner = set_items_text(t, as<SetValue>(v));
      if (v->type == &PyFrozenSet_Type) return "frozenset(" + inner + ")";
      return inner.empty() ? "set()" : inner;
    }
    case ValueKind::slice: {
      auto* s = as<SliceValue>(v);
      return "slice(" + joined(t, {s->start, s->stop, s->step}) + ")";
    }
    case ValueKind::object:
      if (PyObject* type = real_type(v)) {
        const Found repr = look_up(t.shadows, Py_TYPE(type), t.facts.type_source(v), interned("__repr__"));
        if (repr.object && PyFunction_Check(repr.object))
          return text_of_result(t.shadows, t.call(bind(t, repr, v, Py_TYPE(type), nullptr), {}), "__repr__");
        return concrete_repr(t.shadows, v);
      }
      if (is_numpy_scalar(v->object.get())) no_text(v);  // its text depends on numpy.set_printoptions()
      if (is_plain(v->object.get())) return concrete_repr(t.shadows, v);
      if (t.heap.is_constant(v) && !PyCFunction_Check(v->object.get()) && !PyModule_Check(v->object.get()) &&
          !PyCode_Check(v->object.get()))
        return concrete_repr(t.shadows, v);
      no_text(v);
    case ValueKind::instance: {
      if (Value* method = python_special(t, v, "__repr__")) {
        Unresumable guard(t.stack);
        return text_of_result(t.shadows, t.call(method, {}), "__repr__");
      }
      return instance_repr(t, v);
    }
    case ValueKind::view: {
      static const char* const names[] = {"dict_keys([", "dict_values([", "dict_items(["};
      return names[static_cast<int>(as<ViewValue>(v)->what)] + joined(t, t.unpack(v)) + "])";
    }
    case ValueKind::null:
    case ValueKind::tensor:
    case ValueKind::cell:
    case ValueKind::function:
    case ValueKind::method:
    case ValueKind::iterator: case ValueKind::generator: case ValueKind::super: case ValueKind::array: break;
  }
  no_text(v);
}

}  // namespace

Value* Tracer::to_repr(Value* v) {
  PyObject* const function = builtin_function("repr");
  Value* text =
      v->kind == ValueKind::object || v->kind == ValueKind::sym_int ? numbers.computed(function, {v}) : nullptr;
  return text ? text : heap.string(repr_text(*this, v));
}

namespace {

// What str() does for a type that has no __str__ in Python.
enum class Text { of_repr, of_arguments, of_value, unknown };
Text kind_of_text(Shadows& shadows, Value* v) {
  const Found found = look_up(shadows, v, interned("__str__"));
  if (!found.object || Py_TYPE(found.object) != &PyWrapperDescr_Type) return Text::unknown;
  PyTypeObject* owner = reinterpret_cast<PyDescrObject*>(found.object)->d_type;
  const std::string_view name = text_of(reinterpret_cast<PyDescrObject*>(found.object)->d_name);
  if (owner == &PyBaseObject_Type) return Text::of_repr;
  if (is_exception_type(owner))
    return owner->tp_str == reinterpret_cast<PyTypeObject*>(PyExc_BaseException)->tp_str ||
                   owner == reinterpret_cast<PyTypeObject*>(PyExc_KeyError)
               ? Text::of_arguments
               : Text::unknown;
  Value* payload = payload_of(v);  // int.__repr__ as __str__ of an IntEnum
  if (payload->type == owner && (name == "__str__" || name == "__repr__")) return Text::of_value;
  return Text::unknown;
}

}  // namespace

Value* Tracer::to_string(Value* v) {
  facts.type_of(v);
  if (v->kind == ValueKind::object && v->object && PyUnicode_CheckExact(v->object.get())) return v;
  if (Value* method = real_type(v) ? nullptr : python_special(*this, v, "__str__")) {
    Unresumable guard(stack);
    Value* text = call(method, {});
    text_of_result(shadows, text, "__str__");
    return text;
  }
  if (v->kind == ValueKind::object && v->object && !real_type(v) && heap.is_constant(v) && !is_plain(v->object.get())) {
    if (PyCFunction_Check(v->object.get()) || PyModule_Check(v->object.get()) || PyCode_Check(v->object.get()))
      no_text(v);
    return errors.constant_steal(PyObject_Str(constant_of(shadows, v)));
  }
  const Text kind = v->kind == ValueKind::instance ? kind_of_text(shadows, v) : Text::of_repr;
  if (kind == Text::unknown) no_text(v);
  if (kind == Text::of_value && payload_of(v)->kind != ValueKind::instance) return to_string(payload_of(v));
  if (kind == Text::of_arguments) {
    std::vector<Value*> args = exception_arguments(*this, v);
    if (args.empty()) return heap.string("");
    const bool key_error = PyType_IsSubtype(v->type, reinterpret_cast<PyTypeObject*>(PyExc_KeyError));
    if (args.size() == 1) return key_error ? to_repr(args[0]) : to_string(args[0]);
    return to_repr(heap.tuple(args));
  }
  return to_repr(v);
}

// C code that formats returns an unchanged str of a subclass itself; most methods return an exact copy.
Value* itself_if_unchanged(Shadows& shadows, Value* v, Value* result) {
  Value* text = payload_of(v);
  if (text == v || text->kind != ValueKind::object || text->type != result->type) return result;
  PyObject *before = constant_of(shadows, text), *after = constant_of(shadows, result);
  return PyObject_Size(after) > 0 && PyObject_RichCompareBool(before, after, Py_EQ) == 1 ? v : result;
}

Value* Tracer::format(Value* v, Value* spec) {
  facts.type_of(v);
  const bool no_spec =
      !spec || (spec->kind == ValueKind::object && spec->object && PyUnicode_Check(spec->object.get()) &&
                PyUnicode_GET_LENGTH(constant_of(shadows, spec)) == 0);
  if (no_spec && v->kind == ValueKind::object && v->object && PyUnicode_CheckExact(v->object.get())) return v;
  if (v->kind == ValueKind::tensor) no_text(v);
  if (Value* method = real_type(v) ? nullptr : python_special(*this, v, "__format__")) {
    Unresumable guard(stack);
    Value* text = call(method, {spec ? spec : heap.string("")});
    if (!PyType_IsSubtype(facts.type_of(text), &PyUnicode_Type))
      errors.raise_new(PyExc_TypeError, std::string("__format__ must return a str, not ") + text->type->tp_name);
    return text;
  }
  if (no_spec) return to_string(v);
  PyObject* const function = builtin_function("format");
  if (Value* text = numbers.computed(function, {payload_of(v), spec})) return text;
  Value* plain = specialised(heap, payload_of(v));
  if (is_plain(shadows, plain) && is_plain(shadows, spec))
    return itself_if_unchanged(shadows, v, calls.pure(function, Arguments{{plain, spec}, {}}));
  if (v->kind == ValueKind::list || v->kind == ValueKind::tuple || v->kind == ValueKind::dict ||
      v->kind == ValueKind::set || v->kind == ValueKind::instance)
    errors.raise_new(PyExc_TypeError,
                     std::string("unsupported format string passed to ") + v->type->tp_name + ".__format__");
  no_text(v);
}

namespace rows {

Value* str_join(Tracer& t, const Arguments& args) {
  only_positional(t.errors, args, "join", 2, 2);
  static PyObject* const method = _PyType_Lookup(&PyUnicode_Type, interned("join"));
  std::vector<Value*> parts = t.unpack(args.positional[1]);
  for (size_t i = 0; i < parts.size(); ++i) {
    Value*& part = parts[i];
    Value* text = payload_of(part);
    if (text->kind != ValueKind::object || !text->object || !PyUnicode_CheckExact(text->object.get()))
      t.errors.raise_new(PyExc_TypeError, "sequence item " + std::to_string(i) + ": expected str instance, " +
                                              t.facts.type_of(part)->tp_name + " found");
    part = text;
  }
  return t.calls.pure(method, Arguments{{payload_of(args.positional[0]), t.heap.tuple(std::move(parts))}, {}});
}

// Values that are not plain are first turned into their texts. For fields without conversion, spec or attribute that is
// the same.
Value* str_format(Tracer& t, const Arguments& args) {
  static PyObject* const method = _PyType_Lookup(&PyUnicode_Type, interned("format"));
  Arguments plain = args;
  plain.positional[0] = payload_of(args.positional[0]);
  const std::string text = plain_text(t.shadows, plain.positional[0], "format string");
  const bool simple = text.find_first_of(":!.[") == std::string::npos;
  auto convert = [&](Value*& v) {
    v = specialised(t.heap, v);
    if (is_plain(t.shadows, v)) return;
    bool alone = simple;
    for (size_t at = text.find('{'); !alone && at != std::string::npos; at = text.find('{', at + 1)) {
      const std::string field = text.substr(at, text.find('}', at) - at);
      if (field.find_first_of(":!.[") != std::string::npos)
        graph_break(Reason::text_formatting, "str.format() of " + describe(v));
    }
    v = t.format(v, nullptr);
    if (payload_of(v) != v) graph_break(Reason::text_formatting, "a __format__ that returns " + describe(v));
  };
  for (size_t i = 1; i < plain.positional.size(); ++i) convert(plain.positional[i]);
  for (auto& [name, v] : plain.keywords) convert(v);
  Value* result = t.calls.pure(method, plain);
  return text.find_first_of("{}") == std::string::npos ? itself_if_unchanged(t.shadows, args.positional[0], result)
                                                       : result;
}

namespace {

// If there is no separator, the first or the last part is the text itself.
Value* in_three(Shadows& shadows, PyTypeObject* type, const char* name, size_t part, const Arguments& args) {
  const Arguments plain = without_symbols(shadows, args);
  if (!all_plain(shadows, plain))
    graph_break(Reason::unknown_callable, std::string(name) + "() of " + describe(args.positional[1]));
  PyObject* const method = _PyType_Lookup(type, interned(name));
  PyObject *text = constant_of(shadows, plain.positional[0]), *separator = constant_of(shadows, plain.positional[1]);
  Value* result = shadows.errors.constant_steal(PyObject_CallFunctionObjArgs(method, text, separator, nullptr));
  std::vector<Value*> parts = items_of(shadows, result);
  if (PyObject_Size(constant_of(shadows, parts[1])) > 0) return result;
  parts[part] = args.positional[0];
  return shadows.heap.tuple(std::move(parts));
}

}  // namespace

Value* str_partition(Shadows& shadows, const Arguments& args) {
  return in_three(shadows, &PyUnicode_Type, "partition", 0, args);
}
Value* str_rpartition(Shadows& shadows, const Arguments& args) {
  return in_three(shadows, &PyUnicode_Type, "rpartition", 2, args);
}
Value* bytes_partition(Shadows& shadows, const Arguments& args) {
  return in_three(shadows, &PyBytes_Type, "partition", 0, args);
}
Value* bytes_rpartition(Shadows& shadows, const Arguments& args) {
  return in_three(shadows, &PyBytes_Type, "rpartition", 2, args);
}

}  // namespace rows

// Other codecs and error handlers are Python code that any program can register.
void refuse_foreign_codecs(Shadows& shadows, const Arguments& args) {
  static constexpr std::string_view kKnown[] = {"utf-8",
                                                "utf8",
                                                "ascii",
                                                "latin-1",
                                                "latin1",
                                                "iso-8859-1",
                                                "utf-16",
                                                "utf-16-le",
                                                "utf-16-be",
                                                "utf-32",
                                                "utf-32-le",
                                                "utf-32-be",
                                                "strict",
                                                "ignore",
                                                "replace",
                                                "backslashreplace",
                                                "surrogateescape",
                                                "surrogatepass",
                                                "xmlcharrefreplace",
                                                "namereplace"};
  auto refuse = [&](Value* v) {
    v = payload_of(v);
    std::string name = v->kind == ValueKind::object && v->object && PyUnicode_CheckExact(v->object.get())
                           ? text_of(constant_of(shadows, v))
                           : "?";
    for (char& c : name) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (std::find(std::begin(kKnown), std::end(kKnown), name) == std::end(kKnown))
      graph_break(Reason::unknown_callable, "codec or error handler " + name);
  };
  for (size_t i = 1; i < args.positional.size(); ++i) refuse(args.positional[i]);
  for (const auto& [name, v] : args.keywords)
    if (const std::string_view text = text_of(name); text == "encoding" || text == "errors") refuse(v);
}

}  // namespace framejit::frame_hook
