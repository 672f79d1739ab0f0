// frame_hook/trace/types/set_order.h — the order in which a set made by the trace iterates.
//
// The order follows from the hashes and from everything that was done to the set, so CPython itself computes it. The
// `order` of a SetValue is a real set of its keys that went through the same operations. If the trace writes to a real
// set, `order` begins as a copy of it, and the state of the real set is guarded. `order` is null if a key is not plain,
// because its hash would be an address at the time of capture. Asking such a set for its order is a graph break, if it
// has several items.
#pragma once

#include <vector>

#include "frame_hook/trace/values/value.h"

namespace framejit::frame_hook {

class Errors;
class Shadows;
class Tracer;

struct SetOperand {  // an operand of an operation on sets: a set, or any iterable
  std::vector<Value*> items;
  bool is_set = false;
  PyRef real;  // what CPython's own operation gets in its place; null: unknown
};
SetOperand set_operand(Tracer& t, Value* v);

PyRef order_of(Shadows& shadows, SetValue* set);  // a real set that iterates as this one does, or null; guards
PyRef new_order(Shadows& shadows, PyTypeObject* type,
                const std::vector<Value*>& items);  // added one by one; also a dict with these keys
void adopt_order(Shadows& shadows, SetValue* set);  // for a real set that is about to be written
void add_to_order(Shadows& shadows, SetValue* set, Value* item);
// Calls self.method(*operands); null if one of them is unknown.
PyRef call_order(Errors& errors, const PyRef& self, const char* method, const std::vector<SetOperand>& operands);
std::vector<Value*> ordered_items(Shadows& shadows, SetValue* set);  // in order of iteration; guards or breaks
// What fill_in_places needs to make a set that iterates like this one: its items in the order of the real set `*order`
// of them. If the order is not known, `*order` is null and the items have any order.
std::vector<Value*> items_to_rebuild(SetValue* set, PyRef* order);
// Fills an empty set or frozenset: items[i] gets the place of the i-th item of `order`, which is equal to it. Later
// changes act as they would on `order`. False with MemoryError set.
bool fill_in_places(PyObject* set, PyObject* order, const std::vector<PyObject*>& items);

}  // namespace framejit::frame_hook
