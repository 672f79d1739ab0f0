// frame_hook/trace/values/heap.h — the values of a trace: those that it makes, and one for each real object that it
// meets.
//
// wrap() looks at the exact type of a real object and adds no guard for it (except for members of enumerations, for
// subclasses of int, str, ..., and for a dict that is the __dict__ of an instance). Equal pointers are equal identity:
// one real mutable object has one Value. Nothing here runs code of the program.
#pragma once

#include "frame_hook/trace/values/dynamic_sources.h"
#include "frame_hook/trace/values/facts.h"

namespace framejit::frame_hook {

class Heap {
 public:
  Heap(FrameTrace& trace, Facts& of_values, const DynamicSources& dynamic, TensorFrontend& frontend)
      : facts(of_values), trace_(trace), dynamic_(dynamic), frontend_(frontend) {}
  void reset();  // a new attempt begins

  Facts& facts;
  Recording& recording() { return *trace_.recording; }     // results of its calls are values

  // ---- what the trace makes
  template <class T>
  T* make(ValueKind kind, PyTypeObject* type);
  Value* null_value();
  Value* constant_value(PyObject* object);  // borrowed; no guard: a constant of the program
  Value* object_value(PyObject* object, guards::SourceId source);  // borrowed; stands for itself
  Value* none();
  Value* boolean(bool b);
  Value* integer(int64_t i);
  Value* size_value(const graph::SymExpr& e);  // int constant or SymIntValue
  Value* string(std::string_view exact);  // guards/cpython/names.h
  TupleValue* tuple(std::vector<Value*> items);
  ListValue* list(std::vector<Value*> items);
  DictValue* dict();
  bool is_constant(Value* v);  // has a concrete immutable value, with all that it holds (no guard yet)
  static bool is_constant_object(PyObject* object);

  // ---- what is real
  Value* wrap(PyObject* object, guards::SourceId source);  // a real object reached by `source` (borrowed)
  Value* wrap_result(PyObject* object);  // new reference: result of a recorded or pure call, tensors inside
  // The traced tensor of this result belongs to this value.
  void adopt(TensorValue* v) { known_.by_traced[v->traced.get()] = v; }
  // The value of a real object, or of what was reached by a source; null: the trace has not met it.
  Value* find(PyObject* object) {
    Value** known = known_.by_object.find(object);
    return known ? *known : nullptr;
  }
  Value* find(guards::SourceId source) const {
    return source < known_.by_source.size() ? known_.by_source[source] : nullptr;
  }
  // A real dict that is the __dict__ of instances has its items in one place: they are attributes of this instance.
  // Null: the trace has met none.
  InstanceValue*& dict_owner(PyObject* dict) { return known_.dict_owners[dict]; }
  void guard_owner(guards::SourceId dict, InstanceValue* owner);  // that this is its __dict__
  const std::vector<Value*>& all() const { return trace_.values.values(); }  // in the order in which they were made
  bool has_half_way() const { return has_half_way_; }  // the trace has met a real generator, or an iterator that may
                                                       // hold one

 private:
  FrameTrace& trace_;
  const DynamicSources& dynamic_;
  TensorFrontend& frontend_;
  struct Known {
    PointerMap<PyObject, Value*> by_object;  // real mutable objects -> their one value
    PointerMap<PyObject, InstanceValue*> dict_owners;
    std::vector<Value*> by_source;  // source -> the value that was wrapped there
    PointerMap<PyObject, Value*> by_traced;  // traced tensors -> their value
  } known_;
  Value *null_ = nullptr, *none_ = nullptr, *true_ = nullptr, *false_ = nullptr;
  bool has_half_way_ = false;

  Value* made(PyObject* object);  // new reference; null: out of memory
  Value* wrap_fresh(PyObject* object, guards::SourceId source);
  Value* wrap_int(PyObject* object, guards::SourceId source);
  Value* wrap_instance(PyObject* object, guards::SourceId source);
  Value* wrap_container(PyObject* object, guards::SourceId source);
  Value* wrap_callable(PyObject* object, guards::SourceId source);
  Value* wrap_result_container(PyObject* object);
};

template <class T>
T* Heap::make(ValueKind kind, PyTypeObject* type) {
  T* v = trace_.values.make<T>();
  v->kind = kind;
  v->type = type;
  v->type_guarded = v->value_guarded = v->identity_guarded = true;
  return v;
}

// A real iterator; null: not one whose state can be read.
IteratorValue* wrap_iterator(Heap& heap, PyObject* object, guards::SourceId source);

}  // namespace framejit::frame_hook
