// frame_hook/trace/types/containers.h — what the builtin types themselves do, on shadows: items, operators,
// comparisons, iteration. The raw_* functions never look at overrides.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "frame_hook/trace/machine/tracer.h"

namespace framejit::frame_hook {

// ---- kinds
bool is_deque(Value* v);  // of collections.deque or a subclass: its payload is a list
bool is_size(Value* v);   // a torch.Size
// Tuple or list of the model's kind (torch.Size stays one).
Value* sequence_like(Heap& heap, Value* model, std::vector<Value*> items);

// ---- items
std::optional<int64_t> raw_length(Dicts& dicts, Value* v);
Value* raw_get_item(Tracer& t, Value* v, Value* key);
void raw_set_item(Tracer& t, Value* v, Value* key, Value* to);
void raw_delete_item(Tracer& t, Value* v, Value* key);
bool raw_contains(Tracer& t, Value* v, Value* item);
struct SliceBounds {
  int64_t start, stop, step, count;
};
std::optional<SliceBounds> slice_bounds(Tracer& t, Value* key, int64_t length);  // nothing: key is not a slice
// Of a type or a form of module typing, by types; null: something else.
Value* type_subscript(Tracer& t, Value* v, Value* key);

// ---- operators
// Of containers; null: NotImplemented.
Value* container_operator(Tracer& t, BinaryOp op, Value* a, Value* b, bool in_place);
// Whether C code of v's class adds numbers. CPython asks it before it concatenates with a sequence on the other side.
bool adds_in_c(Facts& facts, Value* v);
// "..." % values, where a value needs its __str__ or __repr__ inlined first.
Value* format_percent(Tracer& t, Value* format, Value* values);
Value* raw_compare(Tracer& t, int op, Value* a, Value* b);     // Py_LT ...; null: NotImplemented
std::optional<bool> raw_equal(Tracer& t, Value* a, Value* b);  // ==; nothing: NotImplemented
bool type_compares_in_c(PyObject* type);                       // for a union, which compares its types

// ---- iteration
Value* raw_iterate(Tracer& t, Value* v);
Value* raw_next(Tracer& t, IteratorValue* it);  // null at the end
// CPython's iterators of these kinds stay exhausted once they have ended. The others ask their parts again.
bool remembers_its_end(IteratorValue::Over over);
IteratorValue* make_iterator(Heap& heap, IteratorValue::Over over, PyTypeObject* type, std::vector<Value*> operands);
// Of a dict or set: its keys differ from those at the time when the iterator was made.
bool changed_while_iterated(const IteratorValue* it);
Value* make_view(Heap& heap, DictValue* dict, ViewValue::What what);

// ---- lists
void list_extend(Tracer& t, ListValue* list, Value* iterable);
void deque_extend(Tracer& t, Value* deque, Value* iterable);

// ---- dicts
using PutItem = std::function<void(Value* key, Value* value)>;
void dict_update(Tracer& t, DictValue* dict, Value* other);
void update_mapping(Tracer& t, Value* self, Value* other);  // self.update(other)
// PyDict_Merge: puts each item; false: not a mapping. into: the dict that `put` fills, if that is all it does.
bool merge_mapping(Tracer& t, Value* mapping, const PutItem& put, DictValue* into = nullptr);

// ---- sets and keys
SetValue* make_set(Dicts& dicts, PyTypeObject* type, const std::vector<Value*>& items);  // added one by one
// order: set_order.h; null: unknown, or not asked for.
SetValue* make_set(Dicts& dicts, PyTypeObject* type, const std::vector<Value*>& items, PyRef order);
SetValue* set_from(Tracer& t, PyTypeObject* type, Value* iterable);
void set_update(Tracer& t, SetValue* set, Value* other);    // set.update(other)
bool set_add(Dicts& dicts, SetValue* set, Value* item);     // false: it was already there
int find_in_set(Dicts& dicts, SetValue* set, Value* item);  // position or -1
Value* refuse_set_as_item(Value* item);  // looking for a set in a set means looking for a frozenset
// The common items that CPython takes: those of the smaller set, or those of `other` if both are of equal size or it is
// not a set.
std::vector<Value*> common_items(Dicts& dicts, SetValue* self, SetValue* other, bool of_other);
bool keys_equal(Dicts& dicts, Value* a, Value* b);  // without Python code if their classes allow it
bool is_hashed_by_python(Value* key);  // its class has a __hash__ in Python
bool is_identity_key(Value* key);  // hashed and compared by identity
Py_hash_t returned_hash(Shadows& shadows, Value* result);  // of a __hash__ in Python

}  // namespace framejit::frame_hook
