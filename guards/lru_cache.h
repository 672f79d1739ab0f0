// guards/lru_cache.h — what a functools.lru_cache wrapper has cached, read without calling it.
//
// The struct is private to CPython's _functools: where its members are is found out on samples, once.
#pragma once

#include <Python.h>

namespace framejit::guards {

bool is_lru_cache(PyObject* object);
PyObject* lru_cache_of(
    PyObject* wrapper);       // borrowed: its dict from keys to entries; null: not a wrapper that can be read
PyObject* lru_function_of(PyObject* wrapper);    // borrowed: what it calls
Py_ssize_t lru_limit_of(PyObject* wrapper);      // how many entries it keeps; -1: all
// A builtin function of a wrapper, a result and arguments: calls the wrapper as if its function returned the result. It
// counts the call, keeps the result and gives up another entry as ever, and nothing of the program runs. Borrowed.
PyObject* lru_account();
PyObject* lru_result_of(PyObject* entry);        // borrowed: what an entry of the dict holds
// The key under which a call with these arguments is cached (names: a tuple of the keywords, or null). New reference or
// null, no error set.
PyObject* lru_key(PyObject* wrapper, PyObject* const* args, Py_ssize_t positional, PyObject* names);

}  // namespace framejit::guards
