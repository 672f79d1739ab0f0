// frame_hook/trace/protocol/protocol.h — what the files of the object protocol (attributes, calls, operators,
// containers, builtins) share.
//
// Layers: the members of Tracer dispatch as CPython does (Python overrides are inlined). The raw_* functions below do
// what the builtin types themselves do, on shadows, and never look at overrides. Rows of builtins.def and special.def
// map the identity of a C function, descriptor or type to a CFunction.
#pragma once

#include <initializer_list>
#include <string_view>

#include "frame_hook/trace/machine/tracer.h"
#include "guards/cpython/names.h"

namespace framejit::frame_hook {

PyObject* record_of_warnings();                // the list that catch_warnings(record=True) fills now; null: none
std::string describe(Value* v);                // "a list", "function f": for break details

// While a callee inlined under this guard runs, the frame's instruction cannot be resumed after the callee.
class Unresumable {
 public:
  explicit Unresumable(const CallStack& stack) : frame_(stack.frames().empty() ? nullptr : stack.frames().back()) {
    if (frame_) saved_ = std::exchange(frame_->on_return, OnReturn::not_resumable);
  }
  ~Unresumable() { if (frame_) frame_->on_return = saved_; }
  Unresumable(const Unresumable&) = delete;
  Unresumable& operator=(const Unresumable&) = delete;

 private:
  std::shared_ptr<SymbolicFrame> frame_;
  OnReturn saved_ = OnReturn::not_resumable;
};

// ---- facts
Value* contents_of(Heap& heap, Value* v);  // payload_of, also through a real mappingproxy
bool shows_ordered_dict(Value* v);                           // an OrderedDict, or a mappingproxy of one
template <class T> T* payload_as(Value* v, ValueKind kind) {
  Value* p = payload_of(v);
  return p->kind == kind ? static_cast<T*>(p) : nullptr;
}
inline DictValue* dict_of(Value* v) { return payload_as<DictValue>(v, ValueKind::dict); }
inline ListValue* list_of(Value* v) { return payload_as<ListValue>(v, ValueKind::list); }
inline TupleValue* tuple_of(Value* v) { return payload_as<TupleValue>(v, ValueKind::tuple); }
bool is_deque(Value* v);  // of collections.deque or a subclass: its payload is a list
inline SetValue* set_of(Value* v) { return payload_as<SetValue>(v, ValueKind::set); }
inline bool is_int(Value* v) {
  return v->kind == ValueKind::sym_int || (v->kind == ValueKind::object && v->object && PyLong_Check(v->object.get()));
}
inline bool is_none(Facts& facts, Value* v) {  // or not given; guards the answer
  if (!v) return true;
  facts.type_of(v);
  return v->kind == ValueKind::object && v->object && v->object.get() == Py_None;
}
inline bool is_not_implemented(Value* v) {
  return v->kind == ValueKind::object && v->object && v->object.get() == Py_NotImplemented;
}
// An open float as a 0-dim tensor for an op with the tensor `beside`; null: it is a constant there. `promotes`: the
// number takes part in the promotion of dtypes.
Value* float_input(Tracer& t, Value* number, Value* beside, bool promotes = true);
// The TypeError of an operation that v's class does not have; if it has the operation in C, the trace breaks.
[[noreturn]] void raise_unless_in_c(Errors& errors, Value* v, bool in_c, const std::string& message);
// A class of a C extension computes in its own way (np.float64(2.0) * 2 is not a float): breaks if v is a number of
// such a class.
void refuse_unknown_arithmetic(Value* v, const char* what);
std::string plain_text(Shadows& shadows, Value* v, const char* what);  // of a str; TypeError otherwise
PyTypeObject* builtin_base(PyTypeObject* type);              // the C class that defines the layout of its instances

// ---- attributes
struct Found {                                               // an object found along a type's MRO
  PyObject* object = nullptr;                                // borrowed
  guards::SourceId source = guards::kNoSource;
  Value* written = nullptr;                                  // what the trace wrote in its place
};
Found look_up(Shadows& shadows, PyTypeObject* type, guards::SourceId type_source, PyObject* name);
PyObject* own_class_attribute(PyTypeObject* type, PyObject* name);  // in the dict of this class only; borrowed
Found look_up(Shadows& shadows, Value* v, PyObject* name);  // along type(v); the type is guarded unchanged
void guard_descriptor_class(Facts& facts, const Found& found);
Value* found_value(Heap& heap, const Found& found);  // the object itself; identity of C descriptors is known
Value* bind(Tracer& t, const Found& found, Value* self, PyTypeObject* type, Value* type_value);  // descriptor __get__
Value* attribute_or_null(Tracer& t, Value* v,
                         PyObject* name);  // null: AttributeError; a SymbolicRaise from Python code passes through
Value* generic_attribute(Tracer& t, Value* v, PyObject* name);   // object.__getattribute__
Value* type_attribute(Tracer& t, Value* type, PyObject* name);   // type.__getattribute__
Value* class_attribute(Tracer& t, Value* type, PyObject* name);  // type.name: a metaclass may have a __getattribute__
Value* super_attribute(Tracer& t, SuperValue* v, PyObject* name);
Value* own_attribute(Heap& heap, Value* v, PyObject* name);  // from the instance dict only
// To null: delete.
void set_own_attribute(Drops& drops, OpenNumbers& numbers, Value* v, PyObject* name, Value* to);
void drop_own_attribute(Drops& drops, InstanceValue* v, PyObject* name);  // because it is written or deleted
std::vector<PyObject*> own_names(Facts& facts,
                                 InstanceValue* v);  // keys of the instance dict in order; those of a real one are
                                                     // guarded
bool has_own_dict(Facts& facts, Value* v);
DictValue* instance_dict(Errors& errors, InstanceValue* v);  // the value of __dict__
DictValue* module_dict(Heap& heap, Value* module);
// The value that the trace wrote to a data attribute of `owner` itself; null: none.
Value* written_class_data(const SideTables& tables, PyTypeObject* owner, PyObject* name);
// The mark of mark_static_address; null: none was set in the trace.
Value* written_mark(const SideTables& tables, Value* tensor, PyObject* name);
// .grad as the trace has written it; null: it has not.
Value* written_gradient(const SideTables& tables, const TensorValue* v);
void write_gradient(SideTables& tables, TensorValue* v, Value* to);
void generic_set_attribute(Tracer& t, Value* v, PyObject* name, Value* to);  // object.__setattr__; to null: __delattr__
Value* function_attribute(Tracer& t, FunctionValue* f, PyObject* name);
DictValue* function_dict(Errors& errors, FunctionValue* f);  // the value of __dict__
// type(v).name bound to v if Python code (or anything but the builtin's own C slot) implements it; null otherwise.
Value* python_special(Tracer& t, Value* v, const char* name);
Value* type_special(Tracer& t, Value* v, const char* name);      // the same; of a class: its metaclass's
bool has_any_special(Shadows& shadows, Value* v, std::initializer_list<const char*> names);  // python_special has one
// C functions read what a number or a tuple of a Python class holds. Some of them call methods of the class instead:
// whether v's class has such methods.
bool c_functions_may_ask(Shadows& shadows, Value* v);
bool is_subclassed_number(Value* v);  // of a Python class that extends int, float or complex
PyTypeObject* method_wrapper_type();                            // of object().__str__
MethodValue* make_method(Heap& heap, Value* function, Value* self);
void load_method(Heap& heap, MethodValue* m);
InstanceValue* make_instance(Heap& heap, PyTypeObject* type);
Value* mapping_proxy(Heap& heap, Value* mapping);

// One level of recursion in the tracer's own code, for values that hold themselves or are very deep.
struct Nested {
  explicit Nested(const char* what) {
    if (depth >= 200) graph_break(Reason::recursion_limit, what);
    ++depth;
  }
  ~Nested() { --depth; }
  Nested(const Nested&) = delete;
  static inline int depth = 0;
};

// ---- calls
using CFunction = Value* (*)(Tracer& t, const Arguments& args);
CFunction find_c_function(PyObject* callable);               // builtins.def, special.def
bool runs_concretely(PyObject* callable);                    // has a CONCRETE row
Value* call_type(Tracer& t, Value* type, const Arguments& args);
Value* standard_construct(Tracer& t, Value* type_value, PyTypeObject* type, const Arguments& args);  // type.__call__
Value* builtin_new(Tracer& t, PyTypeObject* type, const Arguments& args);     // C __new__ of the class that defines the
                                                                              // layout
Value* call_exception(Errors& errors, PyObject* type, std::initializer_list<Value*> args);
[[noreturn]] void raise_with(Errors& errors, PyObject* type, std::initializer_list<Value*> args);
bool is_torch_c_function(PyObject* callable);
std::string name_of_callable(PyObject* callable);
// Binds the arguments of a C function: names in order, '$' before the first keyword-only one; missing optional ones are
// null.
std::vector<Value*> parse(Errors& errors, const Arguments& args, const char* function,
                          std::initializer_list<const char*> names, size_t required);
void only_positional(Errors& errors, const Arguments& args, const char* function, size_t least, size_t most);
Value* call_lru_cache(Tracer& t, Value* wrapper, const Arguments& args);       // a real one
Value* call_weak_reference(Drops& drops, Value* reference, const Arguments& args);
Value* call_getter(Tracer& t, Value* getter, const Arguments& args);  // operator.itemgetter, attrgetter
void refuse_foreign_codecs(Shadows& shadows, const Arguments& args);  // of self, encoding, errors
Value* run_plain(Tracer& t, PyObject* callable, const Arguments& args);       // concretely on plain arguments, or break

// torch/special.cpp: a Python function that must not simply be inlined; null: inline it.
Value* call_special_function(Tracer& t, FunctionValue* function, const Arguments& args);

// ---- the implementations of builtin containers
Value* raw_get_item(Tracer& t, Value* v, Value* key);
// The operands of a function of module operator. That function looks for special methods in the classes of tensors. So
// the classes are guarded, and a method that the program put there breaks.
Arguments operands(Facts& facts, std::initializer_list<const char*> specials, std::vector<Value*> of);
bool type_compares_in_c(PyObject* type);  // for a union, which compares its types
Value* type_subscript(Tracer& t, Value* v,
                      Value* key);  // of a type or a form of module typing, by types; null: something else
void raw_set_item(Tracer& t, Value* v, Value* key, Value* to);
void raw_delete_item(Tracer& t, Value* v, Value* key);
bool raw_contains(Tracer& t, Value* v, Value* item);
std::optional<int64_t> raw_length(Dicts& dicts, Value* v);
Value* raw_iterate(Tracer& t, Value* v);
std::optional<bool> raw_equal(Tracer& t, Value* a, Value* b);   // ==, nothing: NotImplemented
void will_mutate(Shadows& shadows, Value* v);  // registers the effect of a real object
void list_append(Shadows& shadows, ListValue* list, Value* item);
void list_extend(Tracer& t, ListValue* list, Value* iterable);
void deque_extend(Tracer& t, Value* deque, Value* iterable);
using PutItem = std::function<void(Value* key, Value* value)>;
void dict_update(Tracer& t, DictValue* dict, Value* other);
void update_mapping(Tracer& t, Value* self, Value* other);      // self.update(other)
// PyDict_Merge: puts each item; false: not a mapping. into: the dict that `put` fills, if that is all it does.
bool merge_mapping(Tracer& t, Value* mapping, const PutItem& put, DictValue* into = nullptr);
SetValue* make_set(Dicts& dicts, PyTypeObject* type, const std::vector<Value*>& items);  // added one by one
SetValue* make_set(Dicts& dicts, PyTypeObject* type, const std::vector<Value*>& items,
                   PyRef order);  // set_order.h; null: unknown, or not asked for
SetValue* set_from(Tracer& t, PyTypeObject* type, Value* iterable);
void set_update(Tracer& t, SetValue* set, Value* other);        // set.update(other)
bool set_add(Dicts& dicts, SetValue* set, Value* item);  // false: it was already there
int find_in_set(Dicts& dicts, SetValue* set, Value* item);  // position or -1
// The common items that CPython takes: those of the smaller set, or those of `other` if both are of equal size or it is
// not a set.
std::vector<Value*> common_items(Dicts& dicts, SetValue* self, SetValue* other, bool of_other);
Py_hash_t returned_hash(Shadows& shadows, Value* result);  // of a __hash__ in Python
bool keys_equal(Dicts& dicts, Value* a, Value* b);  // without Python code if their classes allow it
bool is_hashed_by_python(Value* key);                           // its class has a __hash__ in Python
bool is_identity_key(Value* key);                               // hashed and compared by identity
Value* make_view(Heap& heap, DictValue* dict, ViewValue::What what);
// Of a dict or set: its keys differ from those at the time when the iterator was made.
bool changed_while_iterated(const IteratorValue* it);
IteratorValue* make_iterator(Heap& heap, IteratorValue::Over over, PyTypeObject* type, std::vector<Value*> operands);
Value* refuse_set_as_item(Value* item);  // looking for a set in a set means looking for a frozenset
bool is_size(Value* v);                                            // a torch.Size
Value* sequence_like(Heap& heap, Value* model,
                     std::vector<Value*> items);  // tuple or list of the model's kind (torch.Size stays one)
struct SliceBounds { int64_t start, stop, step, count; };
std::optional<SliceBounds> slice_bounds(Tracer& t, Value* key, int64_t length);  // nothing: key is not a slice
std::string repr_text(Tracer& t, Value* v);

}  // namespace framejit::frame_hook
