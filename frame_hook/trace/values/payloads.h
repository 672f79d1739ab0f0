// frame_hook/trace/values/payloads.h — what a value is for C code: the contents, number or text that it holds.
//
// C code reads what an instance of a subclass holds, whatever the class says. Nothing here runs code of the program.
#pragma once

#include <string>

#include "frame_hook/trace/values/shadows.h"

namespace framejit::frame_hook {

// ---- contents
Value* contents_of(Heap& heap, Value* v);  // payload_of, also through a real mappingproxy
bool shows_ordered_dict(Value* v);         // an OrderedDict, or a mappingproxy of one
template <class T>
T* payload_as(Value* v, ValueKind kind) {
  Value* p = payload_of(v);
  return p->kind == kind ? static_cast<T*>(p) : nullptr;
}
inline DictValue* dict_of(Value* v) { return payload_as<DictValue>(v, ValueKind::dict); }
inline ListValue* list_of(Value* v) { return payload_as<ListValue>(v, ValueKind::list); }
inline TupleValue* tuple_of(Value* v) { return payload_as<TupleValue>(v, ValueKind::tuple); }
inline SetValue* set_of(Value* v) { return payload_as<SetValue>(v, ValueKind::set); }
inline bool is_list_or_tuple(Value* v) { return list_of(v) || tuple_of(v); }

// ---- numbers and texts
inline bool is_int(Value* v) {
  return v->kind == ValueKind::sym_int || (v->kind == ValueKind::object && v->object && PyLong_Check(v->object.get()));
}
inline bool is_exact_int(Value* v) {
  return v->kind == ValueKind::sym_int ||
         (v->kind == ValueKind::object && v->object && PyLong_CheckExact(v->object.get()));
}
Value* exact_int(Shadows& shadows, Value* v);  // of a bool or an object of a subclass, as int.__int__() returns it
bool is_subclassed_number(Value* v);           // of a Python class that extends int, float or complex
std::string plain_text(Shadows& shadows, Value* v, const char* what);  // of a str; TypeError otherwise

// ---- singletons
inline bool is_none(Facts& facts, Value* v) {  // or not given; guards the answer
  if (!v) return true;
  facts.type_of(v);
  return v->kind == ValueKind::object && v->object && v->object.get() == Py_None;
}
inline bool is_not_implemented(Value* v) {
  return v->kind == ValueKind::object && v->object && v->object.get() == Py_NotImplemented;
}

// ---- unknown classes
// The TypeError of an operation that v's class does not have; if it has the operation in C, the trace breaks.
[[noreturn]] void raise_unless_in_c(Errors& errors, Value* v, bool in_c, const std::string& message);
// A class of a C extension computes in its own way (np.float64(2.0) * 2 is not a float): breaks if v is a number of
// such a class.
void refuse_unknown_arithmetic(Value* v, const char* what);

}  // namespace framejit::frame_hook
