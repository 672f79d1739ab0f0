// guards/source.cpp — hash-consing of access paths, and their text.
#include "guards/source.h"

#include "guards/cpython/weak_objects.h"
#include "guards/describe.h"
#include "guards/guard_functions.h"

namespace framejit::guards {
namespace {

constexpr std::string_view kSourceTexts[] = {
#define SOURCE(name, text, words) text,
#include "guards/source_kinds.def"
#undef SOURCE
};
constexpr std::string_view kSourceWords[] = {
#define SOURCE(name, text, words) words,
#include "guards/source_kinds.def"
#undef SOURCE
};

bool is_value_key(PyObject* key) { return PyUnicode_CheckExact(key) || PyLong_CheckExact(key); }

size_t hash_of(SourceKind kind, SourceId base, int32_t index, PyObject* key) {
  size_t h = static_cast<size_t>(kind) + 0x9E3779B97F4A7C15ull * (base + 1);
  h = (h ^ static_cast<uint32_t>(index)) * 0xBF58476D1CE4E5B9ull;
  if (!key) return h;
  const size_t k = is_value_key(key) ? static_cast<size_t>(PyObject_Hash(key)) : reinterpret_cast<size_t>(key) >> 4;
  return (h ^ k) * 0x94D049BB133111EBull;
}

bool same_key(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (!a || !b || Py_TYPE(a) != Py_TYPE(b) || !is_value_key(a)) return false;
  if (PyUnicode_CheckExact(a)) return PyUnicode_Compare(a, b) == 0;
  return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

std::string key_name(PyObject* key) {
  if (key && PyUnicode_CheckExact(key)) return text_of_str(key);
  if (key && (Py_TYPE(key) == &PyMemberDescr_Type || Py_TYPE(key) == &PyGetSetDescr_Type))
    return text_of_str(PyDescr_NAME(key));
  return describe(key);
}

std::string local_name(PyCodeObject* code, int32_t index) {
  if (!code || index < 0 || index >= PyTuple_GET_SIZE(code->co_localsplusnames)) return std::to_string(index);
  return describe(PyTuple_GET_ITEM(code->co_localsplusnames, index));
}

bool is_identifier(PyObject* key) { return key && PyUnicode_CheckExact(key) && PyUnicode_IsIdentifier(key); }

// nn.Module keeps these dicts; the program writes module.name for what is in them.
bool is_dict_of_module(PyObject* key) {
  const std::string name = key && PyUnicode_CheckExact(key) ? text_of_str(key) : "";
  return name == "_modules" || name == "_parameters" || name == "_buffers";
}

bool is_type(PyObject* key) {
  if (key && PyWeakref_CheckRefExact(key)) key = weak_target(key);
  return key && PyType_Check(key);
}

}  // namespace

SourceId SourceTable::add(SourceKind kind, SourceId base, int32_t index, PyObject* key) {
  const size_t hash = hash_of(kind, base, index, key);
  const SourceId found = index_.find(hash, [&](SourceId id) {
    const Source& known = sources_[id];
    return known.kind == kind && known.base == base && known.index == index && same_key(known.key.get(), key);
  });
  if (found != HashIndex::kNone) return found;
  const SourceId id = static_cast<SourceId>(sources_.size());
  sources_.push_back({kind, base, index, PyRef::borrow(key)});
  index_.insert(hash, id);
  return id;
}

namespace {

constexpr size_t kLongText = 1000;  // "..." from here on: a source may be computed from one source twice

}  // namespace

// Guards name a local by its code object, users by `names`, if given.
struct SourceTable::Reader {
  PyCodeObject* code = nullptr;
  const UserNames* names = nullptr;
};

std::string SourceTable::text(SourceId id, PyCodeObject* code) const {
  std::string out;
  append_text(id, {code, nullptr}, out);
  return out;
}

std::string SourceTable::words(SourceId id, const UserNames& names) const {
  std::string out;
  append_text(id, {nullptr, &names}, out);
  return out;
}

bool SourceTable::append_name(const Source& source, const Reader& reader, std::string& out) const {
  if (source.base == kNoSource) return false;
  const Source& base = sources_[source.base];
  PyObject* const key = source.key.get();
  if (source.kind == SourceKind::cell_contents && base.kind == SourceKind::tuple_item) {
    const Source& closure = sources_[base.base];
    if (closure.kind != SourceKind::function_closure || sources_[closure.base].kind != SourceKind::frame_function)
      return false;
    out += reader.names->captured(base.index);
    return true;
  }
  if (source.kind == SourceKind::iterator_part && source.index == 0) {  // enumerate has no other
    append_text(source.base, reader, out);
    return true;
  }
  if (base.kind == SourceKind::local &&
      (source.kind == SourceKind::tuple_item || source.kind == SourceKind::dict_item)) {
    const std::string name = reader.names->item(base.index, source.index, key);
    out += name;
    if (!name.empty()) return true;
  }
  if (source.kind != SourceKind::dict_item || !key || !PyUnicode_CheckExact(key)) return false;
  if (base.kind == SourceKind::dict_item && sources_[base.base].kind == SourceKind::instance_dict &&
      is_dict_of_module(base.key.get())) {
    append_text(sources_[base.base].base, reader, out);
    out += is_identifier(key) ? "." + text_of_str(key) : "[" + text_of_str(key) + "]";
    return true;
  }
  const bool is_variable = base.kind == SourceKind::globals || base.kind == SourceKind::builtins ||
                           base.kind == SourceKind::function_globals;
  if (is_variable) out += text_of_str(key);
  return is_variable;
}

void SourceTable::append_text(SourceId id, const Reader& reader, std::string& out) const {
  if (id == kNoSource) return;
  const Source& source = sources_[id];
  if (reader.names && append_name(source, reader, out)) return;
  if (source.kind == SourceKind::dict_item && sources_[source.base].kind == SourceKind::instance_dict &&
      is_identifier(source.key.get())) {
    append_text(sources_[source.base].base, reader, out);
    out += '.';
    out += text_of_str(source.key.get());
    return;
  }
  if (source.kind == SourceKind::size) {
    out += text_of_str(source.key.get());
    return;
  }
  if (source.kind == SourceKind::computed) {
    if (out.size() > kLongText) {
      out += "...";
      return;
    }
    out += describe(source.key.get()) + '(';
    append_text(source.base, reader, out);
    if (source.index >= 0) {
      out += ", ";
      append_text(static_cast<SourceId>(source.index), reader, out);
    }
    out += ')';
    return;
  }
  if (source.kind == SourceKind::constant && source.key &&
      (is_type(source.key.get()) || is_number_or_text(source.key.get()))) {
    out += describe(source.key.get());
    return;
  }
  const size_t start = out.size();
  const std::string_view words = kSourceWords[static_cast<size_t>(source.kind)];
  const std::string_view row = reader.names && !words.empty() ? words : kSourceTexts[static_cast<size_t>(source.kind)];
  for (size_t at = 0; at < row.size();) {
    auto field = [&](std::string_view name, auto&& value) {
      if (!row.substr(at).starts_with(name)) return false;
      const bool bare = out.size() > start && out.back() == '.';
      out += value(bare);
      at += name.size();
      return true;
    };
    if (row.substr(at).starts_with("{base}")) {
      append_text(source.base, reader, out);
      at += 6;
      continue;
    }
    if (field("{key}", [&](bool bare) { return bare ? key_name(source.key.get()) : describe(source.key.get()); }) ||
        field("{index}", [&](bool) { return std::to_string(source.index); }) ||
        field("{name}", [&](bool) { return local_name(reader.code, source.index); }) ||
        field("{variable}", [&](bool) { return reader.names->local(source.index); }) ||
        field("{pushed}", [&](bool) { return reader.names->pushed(source.index); }))
      continue;
    out += row[at++];
  }
}

}  // namespace framejit::guards
