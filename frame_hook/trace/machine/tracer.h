// frame_hook/trace/machine/tracer.h — what a trace is made with: parts with one subject each, and the object protocol.
//
// A member is implemented in the folder of its subject: protocol/ (attributes, calls, operators, items, iteration),
// types/ (lengths).
#pragma once

#include "frame_hook/bytecode/operators.h"
#include "frame_hook/trace/machine/machine.h"
#include "frame_hook/trace/torch/real_calls.h"

namespace framejit::frame_hook {

class Tracer {
 public:
  Tracer(FrameTrace& trace, const TraceOptions& options, TensorFrontend& frontend);
  Tracer(const Tracer&) = delete;                          // its parts refer to each other
  void reset(PyCodeObject* code);                          // a new attempt begins at a frame of this code

 private:
  FrameTrace& trace_;
  TensorFrontend& frontend_;

 public:  // parts which run no code of the program; a function that needs only one of them takes only that one
  CallStack stack;
  Facts facts{trace_, stack};
  DynamicSources dynamic;
  Heap heap;
  Errors errors{heap};
  Shadows shadows{trace_, errors};
  Drops drops{trace_, shadows};
  OpenNumbers numbers{trace_, dynamic, shadows};
  TracedTensors tensors;
  Attempts attempts;

  // Parts that may run code of the program.
  Dicts dicts{*this, drops};
  RealCalls calls{dicts, tensors, attempts};
  Machine machine;

  // ---- using values (adds guards)
  bool truth(Value* v);                                    // inlines __bool__, __len__; breaks on a tensor
  std::optional<graph::SymExpr> as_size(Value* v);         // int or SymInt, without specialising
  int64_t as_index(Value* v);                              // a concrete int (specialises a symbol)

  // ---- object protocol (may inline Python code, raise symbolically, break)
  Value* get_attribute(Value* v, PyObject* name);
  Value* find_attribute(Value* v, PyObject* name);         // null when AttributeError
  void set_attribute(Value* v, PyObject* name, Value* to);
  void delete_attribute(Value* v, PyObject* name);
  Value* lookup_special(Value* v, const char* name);       // type(v).name bound to v, or null
  Value* call(Value* callable, const Arguments& args);
  Value* call(Value* callable, std::initializer_list<Value*> positional);
  Value* binary_operator(BinaryOp op, Value* a, Value* b, bool in_place = false);
  Value* unary_operator(UnaryOp op, Value* v);
  Value* compare(int op, Value* a, Value* b);              // Py_LT ...
  bool contains(Value* container, Value* item);
  Value* get_item(Value* v, Value* key);
  void set_item(Value* v, Value* key, Value* to);
  void delete_item(Value* v, Value* key);
  Value* iterate(Value* v);                                // iter(v)
  Value* next_item(Value* iterator,
                   Value** stop = nullptr);  // null at the end; *stop: the StopIteration of a __next__ in Python
  std::vector<Value*> unpack(Value* iterable);             // list(v) as values
  // Takes an item, passes it to `use`, takes the next: for C code that writes or calls Python code while it iterates.
  // If the iterable or `use` raises, earlier items stay used. asks_length: calls its __len__ first, as list() does.
  void for_each(Value* iterable, const std::function<void(Value*)>& use, bool asks_length = false);
  std::optional<int64_t> length(Value* v);
  Value* format(Value* v, Value* spec);                    // format(v, spec); spec may be null
  Value* to_string(Value* v);                              // str(v)
  Value* to_repr(Value* v);

  TensorFrontend& frontend() { return frontend_; }
  Recording& recording() { return *trace_.recording; }

 private:
  bool instance_truth(Value* v);
  Value* binary_operator_with_own_errors(BinaryOp op, Value* a, Value* b, bool in_place);
  Value* unary_operator_with_own_errors(UnaryOp op, Value* v);
  Value* compare_with_own_errors(int op, Value* a, Value* b);
  bool contains_with_own_errors(Value* container, Value* item);
  Value* get_item_with_own_errors(Value* v, Value* key);
  void set_item_with_own_errors(Value* v, Value* key, Value* to);
  void delete_item_with_own_errors(Value* v, Value* key);
  Value* iterate_with_own_errors(Value* v);
  Value* existing_attribute(Value* v, PyObject* name);
};

}  // namespace framejit::frame_hook
