// guards/cpython/iterators.h — the next items of CPython's own iterators, read without advancing them.
//
// Iterators over lists, tuples, dicts, sets, ranges and reversed lists and tuples have items. zip, enumerate, map and
// filter have parts: the iterators that they draw from. The structs are private to CPython. Before they are used, they
// are compared, once, with the behaviour of real iterators.
#pragma once

#include <Python.h>

#include <cstdint>

namespace framejit::guards {

bool has_items(PyTypeObject* iterator_type);     // one of the exact types above
bool has_parts(PyTypeObject* iterator_type);
// How many items are left; -1: its next step raises (its dict or set changed size), or its state cannot be read.
int64_t items_left(PyObject* iterator);
// The k-th of the items that are left: borrowed, null if there is none. For an iterator over the items of a dict, `key`
// picks the key, otherwise the value. Ints that a range makes are kept for ever; those too far from zero are null.
PyObject* peek_item(PyObject* iterator, int64_t k, bool key);
// Part i, borrowed. zip, map: their iterators; -1 is the function of map and filter, and for zip whether it is strict.
// enumerate: 0 is the iterator, 1 the next index.
PyObject* iterator_part(PyObject* iterator, int64_t i);
int64_t part_count(PyObject* iterator);          // without the function, and without the index
bool is_strict_zip(PyObject* iterator);
PyObject* container_of(PyObject* iterator);      // the container of an iterator with items; null: exhausted, or a range
void skip_in_enumerate(PyObject* enumerate, int64_t count);  // moves only the index; only if part 1 could be read

}  // namespace framejit::guards
