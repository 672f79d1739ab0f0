// frame_hook/trace/machine/drops.cpp — finds generators and iterators that a drop would end half-way.
#include "frame_hook/trace/machine/drops.h"

#include "frame_hook/trace/machine/reachable.h"
#include "frame_hook/trace/values/object_kinds.h"

namespace framejit::frame_hook {

using guards::SourceKind;

namespace {

// A real object that a frame holds: dropping it there may drop the last reference.
bool is_held_by_frame(Facts& facts, Value* v) {
  const SourceKind kind = v->source == guards::kNoSource ? SourceKind::constant : facts.sources()[v->source].kind;
  return kind == SourceKind::local || kind == SourceKind::stack || kind == SourceKind::cell_contents ||
         kind == SourceKind::iterator_part;
}

// The dropped object must not be a generator in later calls either.
void guard_dropped(Facts& facts, Value* v) {
  if (!is_held_by_frame(facts, v)) return;
  facts.type_of(v);
  if (v->kind != ValueKind::iterator) return;
  if (v->object && !v->value_guarded) guard_parts(facts, as<IteratorValue>(v));
  for (Value* part : as<IteratorValue>(v)->operands) guard_dropped(facts, part);
}

}  // namespace

// A real generator that the trace drops lives on until the exit. Plain Python runs its cleanup code at the drop.
void Drops::drop(Value* v, Value* kept) {
  Heap& heap = shadows.heap;
  Facts& facts = shadows.facts;
  if (!v || v->kind == ValueKind::null || v->kind == ValueKind::tensor) return;
  guard_dropped(facts, v);
  dropped_real_ = dropped_real_ || (v->kind != ValueKind::object && v->kind != ValueKind::function && v->object &&
                                    is_held_by_frame(facts, v));
  std::vector<Value*> dropped;
  if (is_held_by_frame(facts, v) && holds_half_way(v->object.get())) dropped.push_back(v);
  if (!heap.has_half_way() && dropped.empty()) return;
  Reachable([&](Value* part) {
    if (part->object && may_be_half_way(part->type)) dropped.push_back(part);
  }).walk(v);
  if (dropped.empty()) return;
  Reachable held([&](Value* part) { std::erase(dropped, part); });
  if (kept) held.walk(kept);
  for (Value* written : trace_.effects) held.walk(written);
  for (const auto& frame : facts.stack.frames()) {
    for (Value* entry : frame->stack) held.walk(entry);
    for (Value* local : frame->locals) held.walk(local);
  }
  if (!dropped.empty())
    graph_break(Reason::real_iterator, std::string(dropped.front()->type->tp_name) + " that is dropped here");
}

// An object that a del statement drops may die at once, and weak references show that.
void Drops::drop_by_del(Value* v) {
  drop(v);
  if (v->kind == ValueKind::tensor || !v->object || !is_held_by_frame(shadows.facts, v)) return;
  if (PyType_SUPPORTS_WEAKREFS(Py_TYPE(v->object.get())) && *PyObject_GET_WEAKREFS_LISTPTR(v->object.get()))
    graph_break(Reason::outside_effect, "del of an object with weak references");
}

void Drops::drop_locals(SymbolicFrame& f) {
  const std::vector<Value*> locals = std::exchange(f.locals, {});
  for (Value* v : locals) drop(v, f.result);
}

}  // namespace framejit::frame_hook
