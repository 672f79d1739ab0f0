#include "frame_hook/trace/values/exception_members.h"

#include <structmember.h>

#include <algorithm>

namespace framejit::frame_hook {

namespace {

PyTypeObject* class_of(PyObject* type) { return reinterpret_cast<PyTypeObject*>(type); }
bool is_class(PyTypeObject* type, PyObject* of) { return PyType_IsSubtype(type, class_of(of)); }

// The members of C classes between `type` and BaseException, with their descriptors.
template <class Visit>
void each_member(PyTypeObject* type, Visit&& visit) {
  for (; type && type != class_of(PyExc_BaseException); type = type->tp_base) {
    if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) continue;
    for (const PyMemberDef* member = type->tp_members; member && member->name; ++member)
      visit(*member, member_descriptor(reinterpret_cast<PyObject*>(type), member->name));
  }
}

// The keywords of initialisers. Each writes the member of its name, NULL if it is not given.
struct Keyword {
  PyObject* const& type;
  const char* name;
};
constexpr Keyword kKeywords[] = {{PyExc_AttributeError, "name"},  {PyExc_AttributeError, "obj"},
                                 {PyExc_NameError, "name"},       {PyExc_ImportError, "name"},
                                 {PyExc_ImportError, "path"},
#if PY_VERSION_HEX >= 0x030C0000
                                 {PyExc_ImportError, "name_from"}
#endif
};

}  // namespace

PyObject* member_descriptor(PyObject* type, const char* name) {
  PyObject* descriptor = _PyType_Lookup(class_of(type), interned(name));
  FJ_ASSERT(descriptor && Py_IS_TYPE(descriptor, &PyMemberDescr_Type), name);
  return descriptor;
}

bool is_exception_member(PyObject* descriptor) {
  PyTypeObject* owner = reinterpret_cast<PyDescrObject*>(descriptor)->d_type;
  return Py_IS_TYPE(descriptor, &PyMemberDescr_Type) && !(owner->tp_flags & Py_TPFLAGS_HEAPTYPE) &&
         is_class(owner, PyExc_BaseException) && owner != class_of(PyExc_BaseException);
}

bool has_known_members(PyTypeObject* type) {
  bool known = true;
  each_member(type, [&](const PyMemberDef& member, PyObject*) {
    known = known && member.type == T_OBJECT && !(member.flags & READONLY);
  });
  return known;
}

void refuse_parsed_arguments(PyTypeObject* type, size_t given) {
  if ((is_class(type, PyExc_OSError) && given > 1) || (is_class(type, PyExc_SyntaxError) && given > 1) ||
      is_class(type, PyExc_UnicodeEncodeError) || is_class(type, PyExc_UnicodeDecodeError) ||
      is_class(type, PyExc_UnicodeTranslateError) || is_class(type, PyExc_BaseExceptionGroup))
    graph_break(Reason::unknown_callable, std::string("class ") + type->tp_name);
}

bool takes_keyword(PyTypeObject* owner, std::string_view name) {
  return std::any_of(std::begin(kKeywords), std::end(kKeywords),
                     [&](const Keyword& k) { return name == k.name && is_class(owner, k.type); });
}

void initialise_exception(Heap& heap, PyTypeObject* owner, InstanceValue* v, const Arguments& args) {
  const std::vector<Value*>& given = args.positional;
  v->payload = heap.tuple(given);
  const auto write = [&](PyObject* type, const char* name, Value* to) {
    write_member(v, member_descriptor(type, name), to);
  };
  if (is_class(owner, PyExc_StopIteration)) write(PyExc_StopIteration, "value", given.empty() ? heap.none() : given[0]);
  if (is_class(owner, PyExc_SystemExit) && !given.empty())
    write(PyExc_SystemExit, "code", given.size() == 1 ? given[0] : v->payload);
  if (is_class(owner, PyExc_ImportError)) write(PyExc_ImportError, "msg", given.size() == 1 ? given[0] : nullptr);
  if (is_class(owner, PyExc_SyntaxError) && !given.empty()) write(PyExc_SyntaxError, "msg", given[0]);
  for (const Keyword& keyword : kKeywords) {
    if (!is_class(owner, keyword.type)) continue;
    const auto named = [&](const auto& argument) { return std::string_view(text_of(argument.first)) == keyword.name; };
    const auto at = std::find_if(args.keywords.begin(), args.keywords.end(), named);
    write(keyword.type, keyword.name, at == args.keywords.end() ? nullptr : at->second);
  }
}

Value* find_member(const InstanceValue* v, PyObject* descriptor) {
  for (const auto& [known, value] : v->members)
    if (known.get() == descriptor) return value;
  return nullptr;
}

Value* read_member(Heap& heap, const InstanceValue* v, PyObject* descriptor) {
  if (Value* value = find_member(v, descriptor)) return value;
  if (!has_known_members(v->type))
    graph_break(Reason::unknown_attribute,
                std::string(v->type->tp_name) + "." + text_of(reinterpret_cast<PyDescrObject*>(descriptor)->d_name));
  return heap.none();
}

void write_member(InstanceValue* v, PyObject* descriptor, Value* to) {
  const auto at = std::find_if(v->members.begin(), v->members.end(),
                               [&](const auto& member) { return member.first.get() == descriptor; });
  if (at != v->members.end()) v->members.erase(at);
  if (to) v->members.emplace_back(PyRef::borrow(descriptor), to);
}

bool copy_members(PyObject* real, InstanceValue* to, const std::function<Value*(PyObject*)>& value) {
  to->members.clear();
  bool done = true;
  each_member(to->type, [&](const PyMemberDef& member, PyObject* descriptor) {
    if (member.type != T_OBJECT) return;
    PyObject* const held = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(real) + member.offset);
    Value* const copied = held && done ? value(held) : nullptr;
    done = done && (copied || !held);
    write_member(to, descriptor, copied);
  });
  return done;
}

}  // namespace framejit::frame_hook
