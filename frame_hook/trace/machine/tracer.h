// frame_hook/trace/machine/tracer.h — executes a frame symbolically from one instruction on, inlining every Python
// call.
//
// In: the live frame (read only), its Code, what earlier recompiles learnt (TraceHints). Out: FrameTrace: the
// recording, guards, effects, and the exit (a value returned, or the state of all frames before the instruction that
// broke).
// Invariants: tracing writes nothing outside of the trace, except modes of torch, which it restores. A second trace of
// the same frame takes the same steps. If the frame stack at a break cannot be resumed in place, trace_frame starts
// over and stops cleanly before an instruction where it can.
//
// Each member is implemented in the folder of its subject: machine/ (the loop, handlers_*.cpp for each opcode family,
// calls of Python functions, exceptions, exits), protocol/ (attributes, calls, operators, items, iteration), types/
// (dicts, writes, weak references), torch/ (recorded calls).
#pragma once

#include <deque>
#include <span>
#include <unordered_set>

#include "frame_hook/trace/machine/attempts.h"
#include "frame_hook/trace/machine/drops.h"
#include "frame_hook/trace/torch/traced_tensors.h"
#include "guards/cpython/frame_access.h"

namespace framejit::frame_hook {

void guard_keyword_order(Facts& facts, const Arguments& args);  // if the callee looks at it

class Tracer {
 public:
  Tracer(TensorFrontend& frontend, const TraceOptions& options);
  Tracer(const Tracer&) = delete;                          // its parts refer to each other

 private:
  FrameTrace trace_;
  TraceOptions options_;

 public:  // parts with one subject each, which run no code of the program; a function that needs only one of them takes
          // only that one
  CallStack stack;
  Facts facts{trace_, stack};
  DynamicSources dynamic;
  Heap heap;
  Errors errors{heap};
  Drops drops{trace_, errors};
  Shadows shadows{errors};
  OpenNumbers numbers{trace_, dynamic, shadows};
  TracedTensors tensors;
  Attempts attempts{trace_, stack, options_};

  // Traces `frame` from instruction `start` (an index into code->instructions). Never leaves a Python error set. Throws
  // InternalError only for our own bugs. Ctrl-C during tracing stays pending.
  FrameTrace trace_frame(const guards::FrameAccess& frame, std::shared_ptr<const Code> code, size_t start);

  // ---- using values (adds guards)
  void guard_key(Value* v);                // hashed by identity: guarded to differ from the other keys of the trace
  bool truth(Value* v);                                    // inlines __bool__, __len__; breaks on a tensor
  std::optional<graph::SymExpr> as_size(Value* v);         // int or SymInt, without specialising
  int64_t as_index(Value* v);                              // a concrete int (specialises a symbol)
  bool same_object(Value* a, Value* b);                    // `is`
  Value* identity_of(Value* v);                            // id(v)
  Value* referent_of(Value* reference);                    // the object of a real weak reference

  // ---- object protocol (may inline Python code, raise symbolically, break)
  Value* get_attribute(Value* v, PyObject* name);
  Value* find_attribute(Value* v, PyObject* name);         // null when AttributeError
  void set_attribute(Value* v, PyObject* name, Value* to);
  void delete_attribute(Value* v, PyObject* name);
  Value* lookup_special(Value* v, const char* name);       // type(v).name bound to v, or null
  Value* call(Value* callable, const Arguments& args);
  Value* call(Value* callable, std::initializer_list<Value*> positional);
  Value* binary_operator(int op, Value* a, Value* b);      // NB_* of opcode.h, in-place ones too
  Value* unary_operator(const char* special, Value* v);    // "__neg__", "__invert__", "__pos__"
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

  // ---- containers with shadows
  void load(DictValue* v);                                 // all keys, in their order
  void load_keys(DictValue* v);                            // all keys; code that looks at their order calls load()
  Value* dict_get(DictValue* v, Value* key);               // null when absent (guarded)
  void dict_set(DictValue* v, Value* key, Value* to);
  bool dict_delete(DictValue* v, Value* key);
  void will_mutate(Value* v);                              // registers the effect of a real object

  // ---- Python functions
  Value* call_function(FunctionValue* function, const Arguments& args);
  Value* resume_generator(GeneratorValue* generator, Value* sent, Value* thrown);  // null when finished
  Value* run_frame(std::shared_ptr<SymbolicFrame> frame);  // to its return; a generator's yield returns too
  Value* cell_contents(CellValue* cell);                   // null if empty

  // ---- recorded and concrete calls
  Value* call_recorded(PyObject* callable, const Arguments& args);  // with traced tensors inside args
  Value* call_pure(PyObject* callable, const Arguments& args);      // concretely; every argument constant
  PyRef materialise(
      Value* v);  // a real object for a recorded or pure call: constants, traced tensors, fresh containers of them
  bool contains_tensor(Value* v);
  uint64_t writes() const { return writes_; }  // to real objects, so far

  TensorFrontend& frontend() { return frontend_; }
  Recording& recording() { return *trace_.recording; }
  ProtocolState& protocol();                               // made on first use, one per trace

 private:
  friend struct OpcodeHandlers;
  TensorFrontend& frontend_;
  uint64_t writes_ = 0;
  guards::FrameAccess live_{};

  bool still_leads_to(const Value* v) const;
  PyRef materialise_items(Value* v, const std::vector<Value*>& items);
  bool instance_truth(Value* v);
  Value* binary_operator_with_own_errors(int op, Value* a, Value* b);
  Value* unary_operator_with_own_errors(const char* special, Value* v);
  Value* compare_with_own_errors(int op, Value* a, Value* b);
  bool contains_with_own_errors(Value* container, Value* item);
  Value* get_item_with_own_errors(Value* v, Value* key);
  void set_item_with_own_errors(Value* v, Value* key, Value* to);
  void delete_item_with_own_errors(Value* v, Value* key);
  Value* iterate_with_own_errors(Value* v);
  Value* existing_attribute(Value* v, PyObject* name);
  std::unordered_map<const GeneratorValue*, uint64_t> generator_made_at_;
  PyCodeObject* root_code_ = nullptr;
  void reset(const guards::FrameAccess& frame);
  bool attempt(const guards::FrameAccess& frame, const std::shared_ptr<const Code>& code,
               size_t start);  // false: start over
  bool run_root(std::shared_ptr<SymbolicFrame> root);
  bool accept_exit();  // false: it cannot be rebuilt, and the next attempt stops earlier
  void guard_effects_apart();
  struct Obstacle { uint64_t step; std::string what; };
  std::optional<Obstacle> find_obstacle();  // what cannot be rebuilt at the exit, and the step to stop before
  std::shared_ptr<SymbolicFrame> root_frame(const guards::FrameAccess& frame, std::shared_ptr<const Code> code,
                                            size_t start);
  std::vector<Value*> keys_;                               // keys that guard_key() has told apart

  // Frames and exceptions
  std::unordered_map<PyCodeObject*, std::shared_ptr<const Code>> codes_;
  std::unordered_map<PyCodeObject*, CodeCache> code_caches_;
  std::shared_ptr<const Code> decoded(PyCodeObject* code);
  std::shared_ptr<SymbolicFrame> new_frame(FunctionValue* function);
  Value* builtins_of(FunctionValue* function);
  void prepare_frame(SymbolicFrame& frame, std::shared_ptr<const Code> code);
  void bind_arguments(FunctionValue* function, const Arguments& args, SymbolicFrame& frame);
  void run_instructions(SymbolicFrame& frame);
  void enter_handler(SymbolicFrame& frame, Value* exception);  // re-raises if there is no handler
};

}  // namespace framejit::frame_hook
