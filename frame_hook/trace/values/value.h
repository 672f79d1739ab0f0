// frame_hook/trace/values/value.h — what the tracer computes with.
//
// Concrete first: a value carries the real object that it stands for, where one exists (`object`), and where it came
// from (`source`). What the trace makes has neither until a recipe rebuilds it. Values are owned by their Trace and
// addressed by plain pointers; equal pointers are equal identity: one real mutable object has one Value in a trace
// (Heap::wrap).
//
// Laziness: a value with a source has no guard yet. Whoever uses its type asks Facts::type_of, whoever uses its value
// asks Tracer::constant: these add the guards. Real lists, dicts, tuples and instances are read item by item through
// their sources; a write first loads a container fully (its length or keys guarded) and from then on works on the
// shadow.
#pragma once

#include <Python.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/sym_expr.h"
#include "guards/guard.h"
#include "guards/py_ref.h"
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
  bool type_is_fixed =
      false;    // its type_is guard exists: what is reached through type(source) is reached through the type
  bool value_guarded = false;    // its equals / is guard exists, or none is needed: the value is known
  bool identity_guarded = false; // its is guard exists, or none is needed: which object it is, is known
  bool mutated = false;          // differs from `object` now, or was written: replayed at the commit point
  PyTypeObject* type = nullptr;  // exact type; read it through Facts::type_of
  PyRef object;                  // the real object, null for what the trace made
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
  bool loaded =
      false;  // items has the right length (guarded for a real list); before, it holds what was appended alone
  bool being_sorted = false;     // list.sort() runs: the list looks empty, and must not be written
  uint32_t changes = 0;          // of a deque: how often it was changed, for its iterators
};

// Keys are values with a concrete, hashable key object (or identity-hashed instances). Insertion order kept.
struct DictEntry {
  Value* key;
  Value* value;                  // null: not read yet (real dict); of unloaded globals: deleted
  Py_hash_t hash = -1;           // of the key, -1: not computed yet
};
struct InstanceValue;
// Items of a real dict that were read one by one, by hash of the key; a null value: guarded to be absent.
class DictReads {
 public:
  template <class Same>  // same(key): is it this one? Null: not read yet.
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
  bool is_globals = false;  // never loaded for a write: entries are the written keys alone, replayed key by key
  uint32_t removals = 0;                     // how often something was taken out
  guards::LineId keys_line = guards::kNoLine;  // of the user, that caused the loading
  std::vector<DictValue*> order_from;  // real dicts whose order `entries` follow, and that are not guarded to be in it
  InstanceValue* owner =
      nullptr;  // this is the __dict__ of a traced instance: its attributes, not `entries`, are the truth
};
struct SetValue : Value {
  std::vector<Value*> items;     // in insertion order, unique
  bool loaded = false;
  PyRef order;                   // of one made in the trace: set_order.h
  uint32_t removals = 0;         // how often something was taken out
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

// attrs: attributes written or deleted (null) in the trace, then the object's own through its source.
struct InstanceValue : Value {
  std::vector<std::pair<PyRef, Value*>> attrs;  // names interned
  PointerMap<PyObject, std::pair<PyRef, Value*>>
      read;  // own attributes of `object` read so far, names interned; null: guarded to be absent
  DictValue* dict = nullptr;     // the value of __dict__, once the trace asked for it (its `owner` is this)
  Value* payload =
      nullptr;  // what a subclass of dict, list, tuple, set, int, str, ... holds, as a Value of the builtin kind
  Value* find_attr(PyObject* name, bool* known) const;
};

// next(): the next item or null at the end; may raise. state describes it for recipes (kind, operands, position).
// A real one (`object`) of CPython's own types stays as it is until the exit, which takes from it what the trace took.
// `real`: one with items, position counts those taken. zip, map and filter have no state but their parts; of enumerate,
// operands[1] is the index and step counts the items taken.
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
struct IdentityValue : Value {   // type int; equal when `of` are the same object
  Value* of = nullptr;
  uint64_t made_at = 0;          // the step to stop before when it would leave the trace
};
// The array itself, which the trace computes with and writes to; each call gets its own. A view's root has its memory.
struct ArrayValue : Value {
  PyRef array;
  ArrayValue* root = nullptr;
  bool is_shared =
      false;  // of a root: a tensor has its memory too, so that it is neither written any more nor leaves the trace
  uint64_t shared_at = 0;        // the step to stop before when it would
};
struct SuperValue : Value { Value* start_type; Value* self; Value* self_type; };
struct ViewValue : Value { DictValue* dict; enum class What : uint8_t { keys, values, items } what; };

struct FloatFormula {  // an open float computed from others: a function of module operator of its operands
  const char* function;
  Value *a, *b;
  size_t depth;  // of formulas in formulas
  guards::SourceId source = guards::kNoSource;  // once somebody has asked for it: operands may be shared many times
};

PyObject* interned(std::string_view text);  // borrowed, immortal
PyObject* real_type(Value* v);  // the type object that v stands for, or null (not guarded)

template <class T> T* as(Value* v) { return static_cast<T*>(v); }

// Owns the values of a trace: made in chunks, destroyed together in order of making.
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
