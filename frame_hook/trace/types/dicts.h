// frame_hook/trace/types/dicts.h — the contents of dicts, as the trace sees them.
//
// A real dict is read key by key until its keys as a whole are needed. From the first write on only the shadow counts.
// Looking up a key may run the __hash__ and __eq__ of its class, which the tracer inlines: that is all that a dict
// needs of the tracer.
#pragma once

#include "frame_hook/trace/values/shadows.h"

namespace framejit::frame_hook {

class Tracer;

class Dicts {
 public:
  Dicts(Tracer& tracer, Shadows& of_values)
      : shadows(of_values), errors(shadows.errors), heap(shadows.heap), facts(shadows.facts), t_(tracer) {}

  Shadows& shadows;
  Errors& errors;
  Heap& heap;
  Facts& facts;

  void load(DictValue* v);       // all keys, in their order
  void load_keys(DictValue* v);  // all keys; code that looks at their order calls load()
  Value* get(DictValue* v, Value* key);  // null when absent (guarded)
  void set(DictValue* v, Value* key, Value* to);
  bool remove(DictValue* v, Value* key);  // false: it was absent

 private:
  Tracer& t_;
};

}  // namespace framejit::frame_hook
