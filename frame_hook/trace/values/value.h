// frame_hook/trace/values/value.h — what the tracer computes with.
//
// Concrete first: a value carries the real object that it stands for, if one exists (`object`), and where it came from
// (`source`). Values that the trace makes have neither until a recipe rebuilds them. The Trace owns the values, and
// plain pointers address them. Equal pointers mean equal identity: one real mutable object has one Value in a trace
// (Heap::wrap).
//
// Laziness: a value with a source has no guard yet. Code that uses its type calls Facts::type_of, and code that uses
// its value calls constant_of: these add the guards. Real lists, dicts, tuples and instances are read item by item
// through their sources. A write first loads the whole container (its length or keys are guarded); from then on it
// works on the shadow.
#pragma once

#include <Python.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "frame_hook/bytecode/operators.h"
#include "frame_hook/trace/values/object_kinds.h"
#include "graph/sym_expr.h"
#include "guards/cpython/names.h"
#include "guards/cpython/py_ref.h"
#include "guards/guard.h"
#include "guards/source.h"
#include "runtime/base/pointer_map.h"

namespace framejit::frame_hook {

enum class ValueKind : uint8_t {
#define VALUE(name, type) name,
#include "frame_hook/trace/values/value_kinds.def"
#undef VALUE
};

struct SymbolicFrame;

struct Value {
  ValueKind kind = ValueKind::null;
  bool type_guarded = false;     // its type_is guard exists, or none is needed (no source)
  // Its type_is guard exists: paths through type(source) go through the type itself.
  bool type_is_fixed = false;
  bool value_guarded = false;    // its equals / is guard exists, or none is needed because the value is known
  bool identity_guarded = false; // its is guard exists, or none is needed because the object is known
  bool mutated = false;          // differs from `object` now, or was written: applied at the commit point
  PyTypeObject* type = nullptr;  // exact type; read it through Facts::type_of
  PyRef object;                  // the real object; null for values made in the trace
  guards::SourceId source = guards::kNoSource;
  virtual ~Value() = default;
};

struct TensorValue : Value {
  PyRef traced;                  // the traced tensor; null until first used, for a real tensor
  int input = -1;                // index of the recording input
};

struct SymIntValue : Value {     // type int
  graph::SymExpr expr;
};

// Items of a real tuple or list are wrapped when they are first read; a null entry is "not read yet".
struct TupleValue : Value {
  std::vector<Value*> items;
  bool length_guarded = false;
};
struct ListValue : Value {
  std::vector<Value*> items;
  // `items` has the right length (guarded for a real list); before that, it holds only what was appended.
  bool loaded = false;
  bool being_sorted = false;     // list.sort() runs: the list looks empty, and must not be written
  uint32_t changes = 0;          // of a deque: how often it changed, for its iterators
  int64_t limit = -1;            // of a deque: its maxlen; -1: none
};

// Keys are values with a concrete, hashable key object (or identity-hashed instances), in insertion order.
struct DictEntry {
  Value* key;
  Value* value;                  // null: not read yet (real dict); of unloaded globals: deleted
  Py_hash_t hash = -1;           // of the key, -1: not computed yet
};
struct InstanceValue;
// Items of a real dict that were read one by one, by hash of the key; a null value is guarded to be absent.
class DictReads {
 public:
  template <class Same>  // same(key): whether it is this one. Null: not read yet.
  Value** find(Py_hash_t hash, Same&& same) {
    const uint32_t at = index_.find(static_cast<size_t>(hash), [&](uint32_t i) { return same(items_[i].first.get()); });
    return at == HashIndex::kNone ? nullptr : &items_[at].second;
  }
  void add(Py_hash_t hash, PyObject* key, Value* value) {
    index_.insert(static_cast<size_t>(hash), static_cast<uint32_t>(items_.size()));
    items_.emplace_back(PyRef::borrow(key), value);
  }
  bool empty() const { return items_.empty(); }

 private:
  std::vector<std::pair<PyRef, Value*>> items_;
  HashIndex index_;
};
struct DictValue : Value {
  std::vector<DictEntry> entries;            // when loaded; deleted entries are erased
  bool loaded = false;                       // all keys known (keys guarded for a real dict)
  DictReads read;                            // items read one by one before loading
  bool is_globals = false;  // never loaded for a write: entries are only the written keys, applied key by key
  uint32_t removals = 0;                     // how often something was removed
  guards::LineId keys_line = guards::kNoLine;  // the user's line that caused the loading
  std::vector<DictValue*> order_from;  // real dicts whose order `entries` follow, and whose order is not guarded yet
  // This is the __dict__ of a traced instance: its attributes count, not `entries`. Of a real dict, the instance that
  // keeps its items: Heap::dict_owner.
  InstanceValue* owner = nullptr;
};
struct SetValue : Value {
  std::vector<Value*> items;     // in insertion order, unique
  bool loaded = false;
  PyRef order;                   // of a set made in the trace: set_order.h
  uint32_t removals = 0;         // how often something was removed
};
struct SliceValue : Value { Value *start, *stop, *step; };
struct CellValue : Value {
  Value* contents = nullptr;     // null: empty
  bool loaded = false;
};

struct FunctionValue : Value {
  PyCodeObject* code = nullptr;  // borrowed from `object` or `code_ref`
  PyRef code_ref;
  Value* globals = nullptr;      // DictValue
  Value* name = nullptr; Value* qualname = nullptr;
  Value* defaults = nullptr;     // TupleValue or null; loaded lazily for a real function
  Value* kwdefaults = nullptr;   // DictValue or null
  std::vector<Value*> closure;   // CellValues
  bool loaded = false;           // code guarded; defaults, kwdefaults, closure read (real function)
  std::vector<std::pair<PyRef, Value*>> attrs;  // written function attributes, __annotations__, ...
};

struct MethodValue : Value { Value* function; Value* self; };

// attrs: attributes written or deleted (null) in the trace; all others are the object's own, through its source.
struct InstanceValue : Value {
  std::vector<std::pair<PyRef, Value*>> attrs;  // names interned
  // Own attributes of `object` read so far, names interned; null: guarded to be absent.
  PointerMap<PyObject, std::pair<PyRef, Value*>> read;
  std::vector<std::pair<PyRef, Value*>> members;  // of an exception made in the trace: exception_members.h
  DictValue* dict = nullptr;  // made in the trace: the value of __dict__, after it was read (its `owner` is this)
  // Keeps the attributes of the real __dict__: this one, or the first of those that share it. Null: not asked yet.
  InstanceValue* dict_owner = nullptr;
  // What a subclass of dict, list, tuple, set, int, str, ... holds, as a Value of the builtin kind.
  Value* payload = nullptr;
  Value* find_attr(PyObject* name, bool* known) const {
    for (const auto& [written, value] : attrs)
      if (written.get() == name) return *known = true, value;
    return *known = false, nullptr;
  }
};

// next(): the next item, or null at the end; may raise. Kind, operands and position are its state, from which recipes
// rebuild it. A real iterator (`object`) of one of CPython's own types stays unchanged until the exit, which then takes
// the items that the trace took. `real`: one with items; position counts those taken. zip, map and filter have no state
// besides their parts. For enumerate, operands[1] is the index, and step counts the items taken.
struct IteratorValue : Value {
  enum class Over : uint8_t {
    sequence,
    reversed,
    range,
    zip,
    enumerate,
    map,
    filter,
    dict_view,
    callable,
    chain,
    islice,
    deque,
    get_item,
    text,
    repeat,
    count,
    snapshot,
    zip_longest,
    accumulate,
    starmap,
    takewhile,
    dropwhile,
    pairwise,
    real
  } over;
  std::vector<Value*> operands;
  int64_t position = 0;
  int64_t step = 1, stop = 0;    // range
  uint32_t removals = 0;         // of the dict or set, when the iterator was made; of a deque: its changes
  bool exhausted = false;
};
struct GeneratorValue : Value {
  FunctionValue* function = nullptr;
  std::shared_ptr<SymbolicFrame> frame;
  enum class State : uint8_t { created, suspended, running, finished } state = State::created;
  Value* return_value = nullptr;
};
struct IdentityValue : Value {  // type int; equal if `of` is the same object
  Value* of = nullptr;
  uint64_t made_at = 0;          // the step to stop before if it would leave the trace
};
// The array itself, which the trace computes with and writes to; each call gets its own copy. A view uses the memory of
// its root.
struct ArrayValue : Value {
  PyRef array;
  ArrayValue* root = nullptr;
  // Of a root: shares its memory with a tensor, so it is no longer written and never leaves the trace.
  bool is_shared = false;
  uint64_t shared_at = 0;        // the step to stop before if it would
};
struct SuperValue : Value { Value* start_type; Value* self; Value* self_type; };
struct ViewValue : Value { DictValue* dict; enum class What : uint8_t { keys, values, items } what; };

struct FloatFormula {  // an open float computed from others
  BinaryOp op;
  Value *a, *b;
  size_t depth;  // nesting of formulas
  guards::SourceId source = guards::kNoSource;  // set when it has been asked for: formulas may share operands many
                                                // times
};

// The type object that v stands for, or null (not guarded).
inline PyObject* real_type(Value* v) { return v->object && PyType_Check(v->object.get()) ? v->object.get() : nullptr; }

template <class T> T* as(Value* v) { return static_cast<T*>(v); }

// Owns the values of a trace: made in chunks, destroyed together in order of creation.
class ValueArena {
 public:
  ValueArena() = default;
  ValueArena(ValueArena&&) = default;
  ValueArena& operator=(ValueArena&& other);
  ~ValueArena() { clear(); }
  template <class T>
  T* make() {
    T* v = new (allocate(sizeof(T))) T();
    values_.push_back(v);
    return v;
  }
  void clear();
  const std::vector<Value*>& values() const { return values_; }

 private:
  static constexpr size_t kChunk = 32 * 1024;
  struct Chunk { std::unique_ptr<std::byte[]> data; size_t used; };
  void* allocate(size_t size);

  std::vector<Chunk> chunks_;
  std::vector<Value*> values_;
};

}  // namespace framejit::frame_hook
