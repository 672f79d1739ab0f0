// frame_hook/trace/set_order.h — the order in which a set made by the trace gives its items.
//
// It follows from the hashes and from everything that was done to the set, so CPython itself is asked: the `order` of a SetValue is a
// real set of its keys that went through the same operations. It is null where a key is not plain (its hash would be an address of
// the moment of capture) or a real set was written: asking such a set of several items for its order is a graph break.
#pragma once

#include <vector>

#include "frame_hook/trace/value.h"

namespace framejit::frame_hook {

class Tracer;

struct SetOperand {  // of an operation on sets: a set, or anything that can be iterated
  std::vector<Value*> items;
  PyRef real;  // what CPython's own operation is given in its place; null: unknown
};
SetOperand set_operand(Tracer& t, Value* v);

PyRef real_set(PyTypeObject* type, PyObject* iterable);         // a set or frozenset
PyRef order_of(SetValue* set);                                  // a real set that iterates as this one does, or null
PyRef new_order(Tracer& t, PyTypeObject* type, const std::vector<Value*>& items);  // added one by one
void add_to_order(Tracer& t, SetValue* set, Value* item);
// Calls self.method(*operands); null where one of them is unknown.
PyRef call_order(Tracer& t, const PyRef& self, const char* method, const std::vector<SetOperand>& operands);
std::vector<Value*> ordered_items(Tracer& t, SetValue* set);    // as iteration gives them; guards or breaks
// The items in an order in which adding them one by one makes a set that iterates as this one does, where there is one.
std::vector<Value*> items_to_rebuild(SetValue* set);

}  // namespace framejit::frame_hook
