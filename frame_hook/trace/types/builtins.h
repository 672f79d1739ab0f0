// frame_hook/trace/types/builtins.h — calls of C code. Rows of builtins.def and special.def map the identity of a C
// function, descriptor or type to a handler. Some C classes of the standard library have objects that can be called.
#pragma once

#include "frame_hook/trace/machine/parts.h"

namespace framejit::frame_hook {

using CFunction = Value* (*)(Tracer& t, const Arguments& args);
// Finds the objects that rows name, and other originals, before the program has replaced many of them.
void take_rows();
CFunction find_c_function(PyObject* callable);  // null: no row
bool runs_concretely(PyObject* callable);       // has a CONCRETE row

namespace rows {
#define ROW(module, path, handler, ...) Value* handler(HandlerPart<__VA_ARGS__>& t, const Arguments& args);
#define CONCRETE(module, path)
#include "frame_hook/trace/types/builtins.def"
#include "frame_hook/trace/torch/special.def"
#undef CONCRETE
#undef ROW
}  // namespace rows

Value* call_lru_cache(Tracer& t, Value* wrapper, const Arguments& args);  // a real one
Value* call_weak_reference(Drops& drops, Value* reference, const Arguments& args);
Value* call_getter(Tracer& t, Value* getter, const Arguments& args);  // operator.itemgetter, attrgetter

// A slot wrapper of a builtin class, by its name ("__getitem__"), on the shadow of self. Null: not a known one.
Value* call_slot(Tracer& t, PyTypeObject* owner, std::string_view name, const Arguments& args);

PyObject* record_of_warnings();  // the list that catch_warnings(record=True) fills now; null: none
bool is_instance(Tracer& t, Value* v, Value* cls);
bool is_subclass(Tracer& t, Value* cls, Value* of);
bool is_real_instance(Tracer& t, Value* v, PyTypeObject* wanted);  // as type.__instancecheck__ answers
[[noreturn]] void raise_unless_class(Tracer& t, Value* v);         // the first argument of issubclass() is not a type
void sort_list(Tracer& t, ListValue* list, Value* key, Value* reverse);  // list.sort() of a list that may be written

}  // namespace framejit::frame_hook
