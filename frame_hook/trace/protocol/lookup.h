// frame_hook/trace/protocol/lookup.h — what a class has under a name, along its MRO; nothing is bound or called.
//
// A class in which something was looked up is guarded once, as unchanged. What was found needs no guard of its own.
#pragma once

#include <initializer_list>
#include <string>

#include "frame_hook/trace/values/shadows.h"

namespace framejit::frame_hook {

struct Found {                                               // an object found along a type's MRO
  PyObject* object = nullptr;                                // borrowed
  guards::SourceId source = guards::kNoSource;
  Value* written = nullptr;                                  // what the trace wrote in its place
};
Found look_up(Shadows& shadows, PyTypeObject* type, guards::SourceId type_source, PyObject* name);
Found look_up(Shadows& shadows, Value* v, PyObject* name);  // along type(v); the type is guarded unchanged
PyObject* own_class_attribute(PyTypeObject* type, PyObject* name);  // in the dict of this class only; borrowed
// The class of an object as the error of a missing attribute names it: CPython 3.13 adds the module if a slot is empty.
std::string class_of_missing(PyTypeObject* type, PyObject* name);
void guard_descriptor_class(Facts& facts, const Found& found);
Value* found_value(Heap& heap, const Found& found);  // the object itself; identity of C descriptors is known

// ---- special methods in Python, or anything else but the slot of a builtin class in C
Found find_special(Shadows& shadows, Value* v, const char* name);  // without an object: there is none
bool has_any_special(Shadows& shadows, Value* v, std::initializer_list<const char*> names);
// C functions read what a number or a tuple of a Python class holds. Some of them call methods of the class instead:
// whether v's class has such methods.
bool c_functions_may_ask(Shadows& shadows, Value* v);

}  // namespace framejit::frame_hook
