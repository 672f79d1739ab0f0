// frame_hook/trace/types/set_order.h — the order in which a set made by the trace gives its items.
//
// It follows from the hashes and from everything that was done to the set, so CPython itself is asked: the `order` of a
// SetValue is a real set of its keys that went through the same operations; that of a real set that is written begins
// as the real one is, which is guarded. It is null where a key is not plain (its hash would be an address of the moment
// of capture): asking such a set of several items for its order is a graph break.
#pragma once

#include <vector>

#include "frame_hook/trace/values/value.h"

namespace framejit::frame_hook {

class Errors;
class Tracer;

struct SetOperand {  // of an operation on sets: a set, or anything that can be iterated
  std::vector<Value*> items;
  bool is_set = false;
  PyRef real;  // what CPython's own operation is given in its place; null: unknown
};
SetOperand set_operand(Tracer& t, Value* v);

PyRef real_set(PyTypeObject* type, PyObject* iterable);         // a set or frozenset
PyRef order_of(Tracer& t, SetValue* set);  // a real set that iterates as this one does, or null; guards
PyRef new_order(Tracer& t, PyTypeObject* type,
                const std::vector<Value*>& items);  // added one by one; also a dict with these keys
void adopt_order(Tracer& t, SetValue* set);                     // of a real set that is about to be written
void add_to_order(Tracer& t, SetValue* set, Value* item);
// Calls self.method(*operands); null where one of them is unknown.
PyRef call_order(Errors& errors, const PyRef& self, const char* method, const std::vector<SetOperand>& operands);
std::vector<Value*> ordered_items(Tracer& t, SetValue* set);    // as iteration gives them; guards or breaks
// What fill_in_places needs to make a set that iterates as this one does: its items as a real set of them, `*order`,
// gives them. Any order and null where its own is not known.
std::vector<Value*> items_to_rebuild(SetValue* set, PyRef* order);
// Fills an empty set or frozenset: items[i] lies where the i-th item of `order`, which is equal to it, lies. Later
// changes act as they would on `order`. False with MemoryError set.
bool fill_in_places(PyObject* set, PyObject* order, const std::vector<PyObject*>& items);

}  // namespace framejit::frame_hook
