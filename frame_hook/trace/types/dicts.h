// frame_hook/trace/types/dicts.h — the contents of dicts, as the trace sees them.
//
// A real dict is read key by key until its keys as a whole are needed. From the first write on only the shadow counts.
// A lookup in a dict or set may run the __hash__ and __eq__ of the key's class, which the tracer inlines. Nothing else
// here needs the tracer.
#pragma once

#include "frame_hook/trace/machine/drops.h"

namespace framejit::frame_hook {

class Tracer;

constexpr Py_hash_t kUnknownHash = -1;

class Dicts {
 public:
  Dicts(Tracer& tracer, Drops& of_program)
      : drops(of_program),
        shadows(drops.shadows),
        errors(shadows.errors),
        heap(shadows.heap),
        facts(shadows.facts),
        t_(tracer) {}

  Drops& drops;
  Shadows& shadows;
  Errors& errors;
  Heap& heap;
  Facts& facts;

  Py_hash_t hash(Value* key);      // of a dict's key or a set's item; its class may have a __hash__ in Python
  bool equal(Value* a, Value* b);  // identity, then ==

  void load(DictValue* v);       // all keys, in their order
  void load_keys(DictValue* v);  // all keys; code that looks at their order calls load()
  // `known` is the hash of the key, if it was computed: a __hash__ in Python is called once.
  Value* get(DictValue* v, Value* key, Py_hash_t known = kUnknownHash);  // null when absent (guarded)
  void set(DictValue* v, Value* key, Value* to, Py_hash_t known = kUnknownHash);
  bool remove(DictValue* v, Value* key, Py_hash_t known = kUnknownHash);  // false: it was absent

 private:
  Tracer& t_;
};

Py_hash_t hash_in_python(Dicts& dicts, Value* key);  // or kUnknownHash, if no Python code gives it

}  // namespace framejit::frame_hook
