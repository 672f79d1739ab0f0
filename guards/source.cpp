// guards/source.cpp — hash-consing of access paths, and their text.
#include "guards/source.h"

#include "guards/cpython/weak_objects.h"
#include "guards/describe.h"
#include "guards/guard_functions.h"

namespace framejit::guards {
namespace {

constexpr const char* kSourceTexts[] = {
#define SOURCE(name, text) text,
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

std::string SourceTable::text(SourceId id, PyCodeObject* code) const {
  std::string out;
  append_text(id, code, out);
  return out;
}

void SourceTable::append_text(SourceId id, PyCodeObject* code, std::string& out) const {
  if (id == kNoSource) return;
  const Source& source = sources_[id];
  if (source.kind == SourceKind::dict_item && sources_[source.base].kind == SourceKind::instance_dict &&
      is_identifier(source.key.get())) {
    append_text(sources_[source.base].base, code, out);
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
    append_text(source.base, code, out);
    if (source.index >= 0) {
      out += ", ";
      append_text(static_cast<SourceId>(source.index), code, out);
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
  for (const char* p = kSourceTexts[static_cast<size_t>(source.kind)]; *p;) {
    const std::string_view rest(p);
    auto field = [&](std::string_view name, auto&& value) {
      if (!rest.starts_with(name)) return false;
      const bool bare = out.size() > start && out.back() == '.';
      out += value(bare);
      p += name.size();
      return true;
    };
    if (rest.starts_with("{base}")) {
      append_text(source.base, code, out);
      p += 6;
      continue;
    }
    if (field("{key}", [&](bool bare) { return bare ? key_name(source.key.get()) : describe(source.key.get()); }))
      continue;
    if (field("{index}", [&](bool) { return std::to_string(source.index); })) continue;
    if (field("{name}", [&](bool) { return local_name(code, source.index); })) continue;
    out += *p++;
  }
}

}  // namespace framejit::guards
