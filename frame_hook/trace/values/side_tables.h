// frame_hook/trace/values/side_tables.h — what a trace has done and made that no value holds.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "frame_hook/trace/values/arguments.h"

namespace framejit::frame_hook {

// A torch guard object made in the trace. before: the modes that its exit restores, null while it is not entered;
// inside: the modes that its entry set.
struct ModeGuard {
  Value* argument = nullptr;
  std::shared_ptr<void> before, inside;
};

// Of a functools.lru_cache wrapper: calls in the trace whose results were not cached before.
struct TracedCache {
  PyRef keys;                                        // a dict: key -> index in results
  std::vector<Value*> results;
  size_t misses = 0, room_for = 0;                   // room_for: guarded
};

struct ClassData {  // a data attribute of a class that the trace has written
  PyTypeObject* type;
  PyRef name;
  Value* value;
};
struct WrittenClassData {
  std::vector<ClassData> values;  // in order of first write
  Value* find(PyTypeObject* owner, PyObject* name) const;  // of `owner` itself; null: none was written
  void set(PyTypeObject* owner, PyObject* name, Value* to);
};

struct GivenWarning {  // by warnings.warn(); the exit gives it
  Value *category, *message;
  Value* globals;  // of the frame that it names
  PyRef file;  // of that frame
  int line;
  uint64_t step;  // to stop before, if it cannot wait until the exit
};

struct WrittenGradients {
  std::vector<std::pair<TensorValue*, Value*>> values;  // what .grad is now: a tensor or None
  Value* find(const TensorValue* v) const;  // null: none was written
  void set(TensorValue* v, Value* to);
  std::unordered_map<const Value*, uint64_t> new_leaves;  // tensors that the trace made leaves; the step to stop before
                                                          // if one would leave it
  // An autograd.Function with a traced gradient: the step to stop before if that is differentiated. Of the first one.
  std::optional<uint64_t> first_function;
};

struct SideTables {
  uint64_t writes = 0;  // to real objects, so far
  std::vector<Value*> distinct_keys;  // that guard_key() has told apart
  WrittenClassData class_data;
  std::vector<Value*> taken_locks;  // at any time in the trace
  WrittenGradients gradients;
  std::unordered_map<PyObject*, TracedCache> caches;  // by wrapper
  std::unordered_map<Value*, PyRef> identities;  // objects that stand for values made in the trace, in keys
  bool relies_on_no_listener = false;
  std::unordered_map<Value*, ModeGuard> mode_guards;
  // Of real callables: their effect is known, and happens at the exit.
  std::vector<std::pair<Value*, Arguments>> calls_at_exit;
  std::vector<GivenWarning> warnings;
  std::unordered_map<Value*, Py_hash_t> item_hashes;  // results of __hash__ when objects were put into sets
  std::unordered_map<PyObject*, ArrayValue*> arrays;  // NumPy's, made in the trace
  struct ContextSet {
    Value* value;
    InstanceValue* token;
  };
  // ContextVar -> what the trace has set and not reset, innermost last.
  std::unordered_map<PyObject*, std::vector<ContextSet>> context_values;
};

}  // namespace framejit::frame_hook
