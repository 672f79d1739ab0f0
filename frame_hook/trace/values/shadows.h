// frame_hook/trace/values/shadows.h — the contents of lists, tuples, sets and functions, as the trace sees them.
//
// A real list, tuple or set is guarded by its length (a set by its value) when its contents are first read; its items
// are wrapped one by one. From the first write on only the shadow counts (will_mutate). Nothing here runs code of the
// program; dicts are elsewhere (types/dicts.h), because their keys may have an __eq__ in Python.
#pragma once

#include "frame_hook/trace/machine/errors.h"
#include "frame_hook/trace/values/arguments.h"

namespace framejit::frame_hook {

class Shadows {
 public:
  Shadows(FrameTrace& trace, Errors& of_program)
      : errors(of_program), heap(errors.heap), facts(heap.facts), trace_(trace) {}

  Errors& errors;
  Heap& heap;
  Facts& facts;

  void load(ListValue* v);
  void load(SetValue* v);
  void load(FunctionValue* v);
  Value* item(ListValue* v, size_t i);
  Value* item(TupleValue* v, size_t i);
  SideTables& tables() { return trace_.side_tables; }
  // Real objects that the trace has written, in order of first write.
  const std::vector<Value*>& effects() const { return trace_.effects; }
  void add_effect(Value* v) { trace_.effects.push_back(v); }

 private:
  FrameTrace& trace_;
};

void guard_length(Facts& facts, TupleValue* v);
Value* payload_of(Value* v);                    // what a subclass of a builtin holds; else v
std::vector<Value*> items_of(Shadows& shadows, Value* v);  // of a tuple, list or set
PyObject* constant_of(Shadows& shadows, Value* v);  // borrowed object of an is_constant value; guards it deeply
int64_t specialise(Heap& heap, const graph::SymExpr& size);  // the number of a symbolic size; guards it
Value* specialised(Heap& heap, Value* v);       // a sym_int becomes its constant; other values stay
// What a concrete call gets: payloads, and numbers in place of symbols, also in tuples.
Value* without_symbols(Shadows& shadows, Value* v);
Arguments without_symbols(Shadows& shadows, const Arguments& args);
Value* cell_contents(Shadows& shadows, CellValue* cell);  // null if empty
bool same_object(Shadows& shadows, Value* a, Value* b);  // `is`; guards the answer
void guard_key(Shadows& shadows, Value* v);  // hashed by identity: guarded to differ from the other keys of the trace
bool is_plain(Shadows& shadows, Value* v);  // an immutable constant of builtin types; sym_ints are not
bool all_plain(Shadows& shadows, const Arguments& args);

}  // namespace framejit::frame_hook
