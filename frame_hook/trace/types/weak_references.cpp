// frame_hook/trace/types/weak_references.cpp — weakref.ref: made for a real object, and called.
//
// Each call reads the reference again, and its object is guarded like anything that is read. In the trace everything
// that was read stays alive; in plain Python it dies with its last owner. So a reference breaks if the trace may have
// dropped its object.
#include "frame_hook/trace/types/builtins.h"
#include "guards/cpython/weak_objects.h"

namespace framejit::frame_hook {

using guards::SourceKind;

// Whether the path by which the trace reached `v` still leads to it: no part of it was written.
bool Tracer::still_leads_to(const Value* v) const {
  for (guards::SourceId s = v->source; s != guards::kNoSource; s = trace_.guards.sources[s].base) {
    const guards::Source& source = trace_.guards.sources[s];
    const Value* here = heap.find(s);
    if (source.kind == SourceKind::referent || source.kind == SourceKind::stack) return false;
    if (source.kind == SourceKind::local) {
      const auto& locals = stack.frames().front()->locals;
      const auto slot = static_cast<size_t>(source.index);
      return slot < locals.size() && locals[slot] == here;
    }
    const Value* owner = source.base == guards::kNoSource ? nullptr : heap.find(source.base);
    if (source.kind == SourceKind::dict_item && trace_.guards.sources[source.base].kind == SourceKind::instance_dict) {
      const Value* instance = heap.find(trace_.guards.sources[source.base].base);
      bool written = false;
      if (instance && instance->kind == ValueKind::instance)
        static_cast<const InstanceValue*>(instance)->find_attr(source.key.get(), &written);
      if (written) return false;
    } else if (owner && owner->mutated) {
      return false;
    }
  }
  return true;
}

Value* Tracer::referent_of(Value* reference) {
  PyObject* object = guards::weak_target(reference->object.get());
  const guards::SourceId source = facts.sources().add(SourceKind::referent, reference->source);
  if (!object) return heap.wrap(Py_None, source);
  Value* known = heap.find(object);
  const bool lives =
      known && known->source != guards::kNoSource ? still_leads_to(known) : writes_ == 0 && !drops.dropped_real();
  if (!lives)
    graph_break(Reason::made_in_trace,
                "a weak reference to an object that the traced code may have dropped");
  return heap.wrap(object, source);
}

Value* call_weak_reference(Tracer& t, Value* v, const Arguments& args) {
  if (!args.positional.empty() || !args.keywords.empty())
    graph_break(Reason::unknown_callable, "a weak reference with arguments");
  t.facts.type_of(v);
  return t.referent_of(v);
}

namespace rows {

Value* weak_reference(Tracer& t, const Arguments& args) {
  if (!args.keywords.empty() || args.positional.empty() || args.positional.size() > 2)
    graph_break(Reason::unknown_callable, "weakref.ref");
  Value* referent = args.positional[0];
  if (args.positional.size() == 2 && !t.same_object(args.positional[1], t.heap.none()))
    graph_break(Reason::outside_effect, "a weak reference with a callback");
  if (!referent->object || (referent->kind != ValueKind::object && referent->source == guards::kNoSource))
    graph_break(Reason::made_in_trace, "a weak reference to an object that the trace made");
  t.facts.type_of(referent);
  const PyRef made = PyRef::steal(PyWeakref_NewRef(referent->object.get(), nullptr));
  if (!made) t.errors.raise_pending();
  return t.heap.wrap(made.get(), t.facts.sources().add(SourceKind::weak_reference, t.facts.source_of(referent)));
}

}  // namespace rows

}  // namespace framejit::frame_hook
