// frame_hook/trace/values/identity.cpp — whether two values are one object.
#include <algorithm>

#include "frame_hook/trace/values/object_kinds.h"
#include "frame_hook/trace/values/payloads.h"
#include "frame_hook/trace/values/shadows.h"

namespace framejit::frame_hook {

using guards::GuardKind;
using guards::kNoSource;
using guards::SourceKind;

bool same_object(Shadows& shadows, Value* a, Value* b) {
  if (a == b) return true;
  Facts& facts = shadows.facts;
  if (a->kind == ValueKind::identity && b->kind == ValueKind::identity) specialised(shadows.heap, a);
  if (a->object && b->object && a->object.get() == b->object.get()) {
    if (a->kind == ValueKind::sym_int || b->kind == ValueKind::sym_int)
      return constant_of(shadows, a) == constant_of(shadows, b);
    if (a->identity_guarded && b->identity_guarded) return true;
    if (a->source == kNoSource || b->source == kNoSource) return facts.guard_identity(a), facts.guard_identity(b), true;
    guards::Guard guard;
    guard.kind = GuardKind::same;
    guard.source = a->source;
    guard.other = b->source;
    facts.add_guard(std::move(guard));
    return true;
  }
  if (!a->object || !b->object) {  // one was made in the trace, or is an int of a symbol
    const bool has_symbol = a->kind == ValueKind::sym_int || b->kind == ValueKind::sym_int;
    if (has_symbol && is_exact_int(a) && is_exact_int(b))  // equal small ints are one object
      graph_break(Reason::memory_address, "the identity of a symbolic size");
    if (b->kind == ValueKind::object && is_singleton(b->object.get())) facts.guard_identity(b);
    if (a->kind == ValueKind::object && is_singleton(a->object.get())) facts.guard_identity(a);
    if (a->object && a->source != kNoSource) facts.type_of(a);
    if (b->object && b->source != kNoSource) facts.type_of(b);
    return false;
  }
  // Two real objects: different types tell them apart; otherwise they are guarded to be distinct.
  if (a->type != b->type && facts.type_of(a) != facts.type_of(b)) return false;
  guards::SourceTable& sources = facts.sources();
  auto source_of = [&](Value* v) {
    return v->source != kNoSource ? v->source : sources.add(SourceKind::constant, kNoSource, 0, v->object.get());
  };
  if (a->identity_guarded && b->identity_guarded) return false;
  guards::Guard guard;
  guard.kind = GuardKind::distinct;
  guard.source = a->source != kNoSource ? a->source : source_of(b);
  guard.other = a->source != kNoSource ? source_of(b) : source_of(a);
  facts.add_guard(std::move(guard));
  return false;
}

// For a dict or set made in the trace, it does not matter which object a key is, only that two keys are two objects: 32
// instances of a block share an entry. Beyond a few keys the guards, one per pair, would cost more than an entry for
// each instance.
void guard_key(Shadows& shadows, Value* v) {
  constexpr size_t kMostKeys = 24;
  shadows.facts.type_of(v);  // an object of another class may be unhashable, or equal to a key
  std::vector<Value*>& keys = shadows.tables().distinct_keys;
  if (v->identity_guarded || std::find(keys.begin(), keys.end(), v) != keys.end()) return;
  if (v->source == kNoSource || keys.size() >= kMostKeys) return shadows.facts.guard_identity(v);
  for (Value* other : keys) same_object(shadows, v, other);
  keys.push_back(v);
}

}  // namespace framejit::frame_hook
