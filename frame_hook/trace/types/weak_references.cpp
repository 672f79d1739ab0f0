// frame_hook/trace/types/weak_references.cpp — weakref.ref: made for a real object, and called.
//
// Each call reads the reference again, and its object is guarded like anything that is read. In the trace everything
// that was read stays alive; in plain Python it dies with its last owner. So a reference breaks if the trace may have
// dropped its object.
#include "frame_hook/trace/protocol/own_dict.h"
#include "frame_hook/trace/types/builtins.h"
#include "guards/cpython/weak_objects.h"

namespace framejit::frame_hook {

using guards::SourceKind;

namespace {

// Whether the path by which the trace reached `v` still leads to it: no part of it was written.
bool still_leads_to(Heap& heap, const Value* v) {
  const guards::SourceTable& sources = heap.facts.sources();
  for (guards::SourceId s = v->source; s != guards::kNoSource; s = sources[s].base) {
    const guards::Source& source = sources[s];
    const Value* here = heap.find(s);
    if (source.kind == SourceKind::referent || source.kind == SourceKind::stack) return false;
    if (source.kind == SourceKind::local) {
      const auto& locals = heap.facts.stack.frames().front()->locals;
      const auto slot = static_cast<size_t>(source.index);
      return slot < locals.size() && locals[slot] == here;
    }
    const Value* owner = source.base == guards::kNoSource ? nullptr : heap.find(source.base);
    if (source.kind == SourceKind::dict_item && sources[source.base].kind == SourceKind::instance_dict) {
      Value* instance = heap.find(sources[source.base].base);
      bool written = false;
      if (instance && instance->kind == ValueKind::instance)
        dict_owner(heap, as<InstanceValue>(instance))->find_attr(source.key.get(), &written);
      if (written) return false;
    } else if (owner && owner->mutated) {
      return false;
    }
  }
  return true;
}

// The object of a real weak reference.
Value* referent_of(Drops& drops, Value* reference) {
  PyObject* object = guards::weak_target(reference->object.get());
  const guards::SourceId source = drops.shadows.facts.sources().add(SourceKind::referent, reference->source);
  if (!object) return drops.shadows.heap.wrap(Py_None, source);
  Value* known = drops.shadows.heap.find(object);
  const bool lives = known && known->source != guards::kNoSource
                         ? still_leads_to(drops.shadows.heap, known)
                         : drops.shadows.tables().writes == 0 && !drops.dropped_real();
  if (!lives)
    graph_break(Reason::made_in_trace,
                "a weak reference to an object that the traced code may have dropped");
  return drops.shadows.heap.wrap(object, source);
}

}  // namespace

Value* call_weak_reference(Drops& drops, Value* v, const Arguments& args) {
  if (!args.positional.empty() || !args.keywords.empty())
    graph_break(Reason::unknown_callable, "a weak reference with arguments");
  drops.shadows.facts.type_of(v);
  return referent_of(drops, v);
}

namespace rows {

Value* weak_reference(Shadows& shadows, const Arguments& args) {
  if (!args.keywords.empty() || args.positional.empty() || args.positional.size() > 2)
    graph_break(Reason::unknown_callable, "weakref.ref");
  Value* referent = args.positional[0];
  if (args.positional.size() == 2 && !same_object(shadows, args.positional[1], shadows.heap.none()))
    graph_break(Reason::outside_effect, "a weak reference with a callback");
  if (!referent->object || (referent->kind != ValueKind::object && referent->source == guards::kNoSource))
    graph_break(Reason::made_in_trace, "a weak reference to an object that the trace made");
  shadows.facts.type_of(referent);
  const PyRef made = PyRef::steal(PyWeakref_NewRef(referent->object.get(), nullptr));
  if (!made) shadows.errors.raise_pending();
  return shadows.heap.wrap(made.get(),
                           shadows.facts.sources().add(SourceKind::weak_reference, shadows.facts.source_of(referent)));
}

}  // namespace rows

}  // namespace framejit::frame_hook
