// guards/cpython/lru_cache.h — the contents of a functools.lru_cache wrapper, read without calling it.
//
// The struct is private to CPython's _functools: the places of its members are found once, on samples.
#pragma once

#include <Python.h>

namespace framejit::guards {

bool is_lru_cache(PyObject* object);
// Borrowed: its dict from keys to entries; null: not a wrapper that can be read.
PyObject* lru_cache_of(PyObject* wrapper);
PyObject* lru_function_of(PyObject* wrapper);    // borrowed: the function that it calls
Py_ssize_t lru_limit_of(PyObject* wrapper);      // how many entries it keeps; -1: all
// A builtin function; its arguments are a wrapper, a result and the arguments of a call. It calls the wrapper as if the
// wrapper's function returned the result. The wrapper counts the call, keeps the result and evicts another entry as
// usual, and no code of the program runs. Borrowed.
PyObject* lru_account();
PyObject* lru_result_of(PyObject* entry);        // borrowed: the result in an entry of the dict
// The key under which a call with these arguments is cached (names: a tuple of the keywords, or null). New reference or
// null, no error set.
PyObject* lru_key(PyObject* wrapper, PyObject* const* args, Py_ssize_t positional, PyObject* names);

}  // namespace framejit::guards
