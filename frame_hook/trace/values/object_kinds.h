// frame_hook/trace/values/object_kinds.h — questions about real objects that are answered from their exact type,
// without Python code.
#pragma once

#include <Python.h>

#include <string>
#include <vector>

#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {

// int, float, complex, str, bytes, bool, None, Ellipsis, NotImplemented: immutable, compared by value.
bool is_exact_scalar(PyTypeObject* type);
// None, True, False, Ellipsis, NotImplemented.
bool is_singleton(PyObject* object);
// Immutable, a new object for each request, equal if == says so: devices, finfo, iinfo, ranges.
bool has_own_equality(PyObject* object);
// Objects that stand for themselves: types, modules, C functions and descriptors, code objects, dtypes, devices, enum
// members, ...
bool has_identity_constant(PyObject* object);
bool holds_only_scalars(PyObject* object);  // what an `equals` guard can compare
bool is_enum_member(PyObject* object);
bool is_enum_class(PyObject* object);
bool is_exception_type(PyTypeObject* type);  // BaseException, or a subclass
// An object that has no attributes worth shadowing, although its type keeps a dict: types, modules, C functions,
// descriptors.
bool is_plain_object(PyObject* object);
// A generator, or an iterator of itertools that may hold one: if it is dropped half-way, Python code may run.
bool may_be_half_way(PyTypeObject* type);
// Whether the object holds one, itself or through few objects. Functions, classes and modules are not searched.
bool holds_half_way(PyObject* object);
bool has_only_names(PyObject* dict);  // all keys are exact strs
// A number or bool of one of NumPy's own exact classes: immutable, compared bit by bit.
bool is_numpy_scalar(PyObject* object);
bool is_numpy_scalar_type(PyTypeObject* type);
// What the classes of module typing make from types (typing.Optional, Optional[int], TypeVars), and
// collections.abc.Callable[...]: immutable.
bool is_typing_form(PyObject* object);
// A subclass, not the class itself, of tuple, list, dict, set, frozenset, int, str, float or bytes.
bool is_builtin_subclass(PyTypeObject* type);
// The value of an instance of a subclass of int, float, str or bytes, as an object of the exact class; null for others.
PyRef exact_copy_of_scalar(PyObject* object);
PyRef real_set(PyTypeObject* type, PyObject* iterable);  // a set or frozenset
// None, a number, str, bytes or range, a number of NumPy, or a tuple, slice or frozenset of such objects.
bool is_plain(PyObject* object);
// Items of an exact set or frozenset in its order, borrowed from it.
std::vector<PyObject*> items_of_set(PyObject* set);
bool is_size_type(const PyTypeObject* type);  // torch.Size itself
bool is_torch_module(PyObject* object);  // an instance of nn.Module
bool calls_forward(PyCodeObject* code);  // what nn.Module itself runs when a module is called, or a copy of it

}  // namespace framejit::frame_hook
