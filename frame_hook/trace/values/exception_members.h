// frame_hook/trace/values/exception_members.h — the members that C classes of exceptions add to BaseException:
// StopIteration.value, SystemExit.code, ImportError.msg, OSError.errno, ...
//
// An exception that the trace made keeps them under their descriptors (InstanceValue::members), apart from its
// attributes: a class of the program may hide a member under its own attribute, slot or property. They hold what the C
// constructor and initialiser write, as in Objects/exceptions.c, and not what `args` says. A member that is not listed
// is NULL, and reads as None. Nothing here runs code of the program.
#pragma once

#include <functional>

#include "frame_hook/trace/values/arguments.h"
#include "frame_hook/trace/values/heap.h"

namespace framejit::frame_hook {

PyObject* member_descriptor(PyObject* type, const char* name);  // of an exception class of CPython; borrowed
bool is_exception_member(PyObject* descriptor);  // a member of a C class of exceptions, not a slot of the program

// Whether all C members of such an exception are objects that can be written, so that `members` is all of its C state.
bool has_known_members(PyTypeObject* type);
// Breaks if C code would derive the class or the members from the arguments of __new__ or __init__.
void refuse_parsed_arguments(PyTypeObject* type, size_t given);
// What the initialiser of the C class `owner` writes. The keywords are known to be valid.
void initialise_exception(Heap& heap, PyTypeObject* owner, InstanceValue* v, const Arguments& args);
bool takes_keyword(PyTypeObject* owner, std::string_view name);  // the initialiser of `owner` does

Value* find_member(const InstanceValue* v, PyObject* descriptor);  // null: NULL
Value* read_member(Heap& heap, const InstanceValue* v, PyObject* descriptor);  // breaks if it is not known
void write_member(InstanceValue* v, PyObject* descriptor, Value* to);
// Takes the members of a real exception. value: makes the value of an object, or null if there is none (then the result
// is false).
bool copy_members(PyObject* real, InstanceValue* to, const std::function<Value*(PyObject*)>& value);

}  // namespace framejit::frame_hook
