// frame_hook/trace/protocol/protocol.h — the object protocol: attributes, calls and operators, as CPython dispatches
// them.
//
// Overrides in Python are inlined. What the builtin types themselves do is in types/containers.h and types/builtins.h.
#pragma once

#include <initializer_list>
#include <string_view>

#include "frame_hook/trace/machine/tracer.h"
#include "guards/cpython/names.h"

namespace framejit::frame_hook {

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
inline SetValue* set_of(Value* v) { return payload_as<SetValue>(v, ValueKind::set); }
inline bool is_list_or_tuple(Value* v) { return list_of(v) || tuple_of(v); }
inline bool is_int(Value* v) {
  return v->kind == ValueKind::sym_int || (v->kind == ValueKind::object && v->object && PyLong_Check(v->object.get()));
}
Value* exact_int(Shadows& shadows, Value* v);  // of a bool or an object of a subclass, as int.__int__() returns it
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
std::string repr_text(Tracer& t, Value* v);
std::string plain_text(Shadows& shadows, Value* v, const char* what);  // of a str; TypeError otherwise
Value* itself_if_unchanged(Shadows& shadows, Value* v, Value* result);
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

// ---- operators
// NB_* of opcode.h; kInPlace more for the in-place ones.
constexpr int kAdd = 0, kAnd = 1, kFloorDivide = 2, kMatrixMultiply = 4, kMultiply = 5, kRemainder = 6, kOr = 7,
              kPower = 8, kSubtract = 10, kTrueDivide = 11, kXor = 12, kInPlace = 13;
const char* symbol_of_operator(int op);  // "+", of one that is not in place
const char* function_of_comparison(int op);  // of Py_LT: "lt", a function of module operator
// The operands of a function of module operator. That function looks for special methods in the classes of tensors. So
// the classes are guarded, and a method that the program put there breaks.
Arguments operands(Facts& facts, std::initializer_list<const char*> specials, std::vector<Value*> of);

// ---- patterns: the values of their parts as a tuple, or None
Value* mapping_pattern(Tracer& t, Value* mapping, Value* keys);
Value* class_pattern(Tracer& t, Value* subject, Value* type, size_t positional, const std::vector<Value*>& names);

// ---- calls
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
void refuse_foreign_codecs(Shadows& shadows, const Arguments& args);  // of self, encoding, errors
Value* run_plain(Tracer& t, PyObject* callable, const Arguments& args);       // concretely on plain arguments, or break

}  // namespace framejit::frame_hook
