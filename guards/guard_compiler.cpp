// guards/guard_compiler.cpp — from a set of guards to the flat program.
//
// The needed sources form a forest over the frame, constants, and numbers computed from them. It is walked level by
// level, so that the facts that differ most between calls (types and tensors of the locals) come first and each path is
// fetched once. All lookups in one dict, or along one type's MRO, make a block. The version of the dict or type fixes
// the identity of an item, and the value of an immutable one: guards on these are checked inside the block. A type that
// is known exactly is one source, no matter how many instances lead to it.
#include <algorithm>
#include <set>
#include <utility>

#include "guards/class_state.h"
#include "guards/cpython/interrupts.h"
#include "guards/describe.h"
#include "guards/guard_body.h"
#include "guards/guard_functions.h"

namespace framejit::guards {
namespace {

StepCode fetch_code(SourceKind kind) { return static_cast<StepCode>(kind); }
StepCode guard_code(GuardKind kind) {
  return static_cast<StepCode>(static_cast<int>(StepCode::guard_is) + static_cast<int>(kind));
}

enum GuardFlag : uint8_t { kNone = 0, kIdentity = 1, kRelation = 2, kDict = 4, kKey = 8, kPinned = 16, kKeys = 32 };
constexpr int kFlags[] = {
#define GUARD(name, flags, text) flags,
#include "guards/guard_kinds.def"
#undef GUARD
};
bool has(GuardKind kind, GuardFlag flag) { return (kFlags[static_cast<size_t>(kind)] & flag) != 0; }

bool is_block_guard(GuardKind kind) { return has(kind, kDict) || kind == GuardKind::length; }
bool is_heap_type(PyObject* object) {
  return object && PyType_Check(object) && (reinterpret_cast<PyTypeObject*>(object)->tp_flags & Py_TPFLAGS_HEAPTYPE);
}

}  // namespace

Result<void> GuardCompiler::run(const std::vector<SourceId>& wanted) {
  const std::vector<SourceId> merged = merge_types();
  nodes_.resize(set_.sources.size());
  body_.register_of_source.assign(set_.sources.size(), kNoRegister);
  for (SourceId source : wanted) need(merged[source]);
  add_guards();
  std::vector<SourceId> queue;
  queue.reserve(nodes_.size());
  for (SourceId id = 0; id < nodes_.size(); ++id)
    if (nodes_[id].needed && set_.sources[id].base == kNoSource && !is_computed(id)) queue.push_back(id);
  body_.steps.reserve(set_.guards_.size() + nodes_.size());
  for (size_t at = 0; at < queue.size(); ++at) {
    FJ_TRY_VOID(emit_source(queue[at]));
    for (SourceId child = nodes_[queue[at]].first_child; child != kNoSource; child = nodes_[child].next_sibling)
      queue.push_back(child);
  }
  // Computed sources, and everything reached from them, come after their operands, in the order of the trace.
  for (SourceId id : merged) {
    if (!nodes_[id].needed || body_.register_of_source[id] != kNoRegister) continue;
    body_.computes |= is_computed(id);
    FJ_TRY_VOID(emit_source(id));
  }
  FJ_TRY_VOID(emit_relations());
  for (SourceId id = 0; id < merged.size(); ++id) body_.register_of_source[id] = body_.register_of_source[merged[id]];
  body_.sizes = SizeGuards(set_.size_facts);
  weaken();
  return {};
}

// type(x), if a guard fixes the exact type of x, becomes the type itself, and so do the paths through it: 32 blocks of
// one class share the guards of their class. Returns the replacement of each source.
std::vector<SourceId> GuardCompiler::merge_types() {
  SourceTable& sources = set_.sources;
  std::vector<PyRef> exact(sources.size());
  for (const Guard& guard : set_.guards_)
    if (guard.kind == GuardKind::type_is) exact[guard.source] = guard.object;
  std::vector<SourceId> merged(sources.size());
  for (SourceId id = 0; id < merged.size(); ++id) {
    const Source source = sources[id];
    if (source.kind == SourceKind::type_of && exact[source.base]) {
      merged[id] = sources.add(SourceKind::constant, kNoSource, 0, exact[source.base].get());
    } else {
      const SourceId base = source.base == kNoSource ? kNoSource : merged[source.base];
      const int32_t index = source.kind == SourceKind::computed && source.index >= 0
                                ? static_cast<int32_t>(merged[source.index])
                                : source.index;
      merged[id] =
          base == source.base && index == source.index ? id : sources.add(source.kind, base, index, source.key.get());
    }
  }
  std::vector<Guard> guards = std::move(set_.guards_);
  set_.guards_.clear();
  set_.index_.clear();
  set_.guards_.reserve(guards.size());
  for (Guard& guard : guards) {
    if (guard.source != kNoSource) guard.source = merged[guard.source];
    if (guard.other != kNoSource) guard.other = merged[guard.other];
    const bool is_equality = guard.kind == GuardKind::same || guard.kind == GuardKind::same_number;
    if (!is_equality || guard.source != guard.other) set_.add(std::move(guard));
  }
  return merged;
}

void GuardCompiler::need(SourceId source) {
  if (source == kNoSource || nodes_[source].needed) return;
  nodes_[source].needed = true;
  const SourceId base = set_.sources[source].base;
  if (base == kNoSource) return;
  need(base);
  if (set_.sources[source].kind == SourceKind::computed) {
    if (set_.sources[source].index >= 0) need(static_cast<SourceId>(set_.sources[source].index));
    return;
  }
  Node& parent = nodes_[base];
  (parent.first_child == kNoSource ? parent.first_child : nodes_[parent.last_child].next_sibling) = source;
  parent.last_child = source;
}

void GuardCompiler::add_guards() {
  std::vector<bool> is_tensor(set_.sources.size());  // the facts of a tensor have its exact class
  for (const Guard& guard : set_.guards_)
    if (guard.kind == GuardKind::tensor) is_tensor[guard.source] = true;
  const auto is_repeated = [&](const Guard& guard) {
    return guard.kind == GuardKind::type_is && guard.source != kNoSource && is_tensor[guard.source];
  };
  for (uint32_t i = 0; i < set_.guards_.size(); ++i) {
    const Guard& guard = set_.guards_[i];
    if (is_repeated(guard)) continue;
    need(guard.source);
    need(guard.other);
    if (has(guard.kind, kRelation)) relations_.push_back(i);
    else ++nodes_[guard.source].guard_count;
  }
  uint32_t total = 0;
  for (Node& node : nodes_) node.first_guard = std::exchange(total, total + std::exchange(node.guard_count, 0));
  guard_order_.resize(total);
  for (uint32_t i = 0; i < set_.guards_.size(); ++i) {
    if (has(set_.guards_[i].kind, kRelation) || is_repeated(set_.guards_[i])) continue;
    Node& node = nodes_[set_.guards_[i].source];
    uint32_t at = node.first_guard + node.guard_count++;
    for (; at > node.first_guard && set_.guards_[i].kind < set_.guards_[guard_order_[at - 1]].kind; --at)
      guard_order_[at] = guard_order_[at - 1];
    guard_order_[at] = i;
  }
}

std::optional<StepCode> GuardCompiler::block_of(const Node& node) const {
  for (SourceId child = node.first_child; child != kNoSource; child = nodes_[child].next_sibling) {
    if (set_.sources[child].kind == SourceKind::dict_item) return StepCode::dict_block;
    if (set_.sources[child].kind == SourceKind::type_lookup) return StepCode::type_block;
  }
  for (uint32_t guard : guards_of(node))
    if (has(set_.guards_[guard].kind, kDict)) return StepCode::dict_block;
  return std::nullopt;
}

// Whether a guard in a block holds for as long as the item is the same object. A guard on an exact type does so only if
// nothing can assign __class__.
bool GuardCompiler::is_pinned(const Guard& guard) const {
  if (guard.kind == GuardKind::equals && PySet_CheckExact(guard.object.get())) return false;
  const bool can_change_class =
      is_heap_type(guard.object.get()) || guard.object.get() == reinterpret_cast<PyObject*>(&PyModule_Type);
  if (guard.kind == GuardKind::type_is && can_change_class) return false;
  return has(guard.kind, kPinned);
}

Result<void> GuardCompiler::emit_source(SourceId source) {
  Node& node = nodes_[source];
  const std::optional<StepCode> block = block_of(node);
  if (!node.in_block) FJ_TRY_VOID(emit_fetch(source));
  for (uint32_t index : guards_of(node)) {
    const Guard& guard = set_.guards_[index];
    if (node.in_block && is_pinned(guard)) continue;
    if (block == StepCode::dict_block && is_block_guard(guard.kind)) continue;
    FJ_TRY_VOID(emit_guard(index));
  }
  if (block) FJ_TRY_VOID(emit_block(source, *block));
  return {};
}

Result<void> GuardCompiler::emit_block(SourceId source, StepCode block) {
  Node& node = nodes_[source];
  const size_t head = body_.steps.size();
  const uint32_t first = body_.register_count;
  Step step(block);
  step.base = body_.register_of_source[source];
  step.target = static_cast<uint32_t>(body_.records.size());
  step.origin = source;
  body_.steps.push_back(step);
  for (uint32_t index : guards_of(node)) {
    if (block == StepCode::dict_block && is_block_guard(set_.guards_[index].kind)) FJ_TRY_VOID(emit_guard(index));
  }
  for (SourceId child = node.first_child; child != kNoSource; child = nodes_[child].next_sibling) {
    const SourceKind kind = set_.sources[child].kind;
    if (kind != SourceKind::dict_item && kind != SourceKind::type_lookup) continue;
    FJ_TRY_VOID(emit_fetch(child));
    nodes_[child].in_block = true;
    for (uint32_t index : guards_of(nodes_[child])) {
      if (is_pinned(set_.guards_[index])) FJ_TRY_VOID(emit_guard(index));
    }
  }
  body_.steps[head].number = static_cast<int64_t>(body_.steps.size() - head);
  body_.records.emplace_back(first, body_.register_count - first);
  return {};
}

// The pairs of k objects are k * k / 2 guards, so they become a block if they are more than the objects.
Result<void> GuardCompiler::emit_relations() {
  const auto is_other = [&](uint32_t index) { return set_.guards_[index].kind != GuardKind::distinct; };
  const auto pairs = std::ranges::stable_partition(relations_, is_other);
  for (auto at = relations_.begin(); at != pairs.begin(); ++at) FJ_TRY_VOID(emit_guard(*at));
  std::set<uint32_t> objects;
  for (uint32_t index : pairs)
    for (SourceId source : {set_.guards_[index].source, set_.guards_[index].other})
      objects.insert(body_.register_of_source[source]);
  if (pairs.size() > objects.size()) {
    Step head(StepCode::distinct_block);
    head.number = static_cast<int64_t>(pairs.size() + 1);
    body_.steps.push_back(head);
    body_.distinct.emplace(std::vector<uint32_t>(objects.begin(), objects.end()));
  }
  for (uint32_t index : pairs) FJ_TRY_VOID(emit_guard(index));
  return {};
}

Result<Py_hash_t> GuardCompiler::hash_of(PyObject* key) const {
  const Py_hash_t hash = PyObject_Hash(key);
  if (hash != -1) return hash;
  drop_error();
  return Error{Reason::bad_guard, "a dict key that cannot be hashed: " + describe(key)};
}

Result<void> GuardCompiler::emit_fetch(SourceId id) {
  const Source& source = set_.sources[id];
  Step step(fetch_code(source.kind));
  step.base = source.base == kNoSource ? kNoRegister : body_.register_of_source[source.base];
  step.target = body_.register_of_source[id] = body_.register_count++;
  step.origin = id;
  step.object = source.key.get();
  step.number = source.kind == SourceKind::computed && source.index >= 0
                    ? static_cast<int64_t>(body_.register_of_source[source.index])
                    : source.index;
  if (source.kind == SourceKind::dict_item) {
    FJ_TRY(step.hash, hash_of(source.key.get()));
  }
  if (step.object && source.kind == SourceKind::member && Py_TYPE(step.object) == &PyMemberDescr_Type)
    step.object = PyDescr_NAME(step.object);
  const Node& node = nodes_[id];
  for (uint32_t index : guards_of(node)) step.may_be_absent |= is_absence(set_.guards_[index]);
  if (step.may_be_absent && (node.guard_count > 1 || node.first_child != kNoSource))
    return Error{Reason::bad_guard, "guards on something absent"};
  body_.computes |= source.kind == SourceKind::weak_reference || source.kind == SourceKind::tensor_number;
  body_.steps.push_back(step);
  return {};
}

Result<void> GuardCompiler::emit_guard(uint32_t index) {
  Guard& guard = set_.guards_[index];
  Step step(guard_code(guard.kind));
  step.base = body_.register_of_source[guard.source];
  step.origin = index;
  step.number = guard.number;
  if (has(guard.kind, kKeys)) guard.object = hold_keys(guard.object);
  step.object = guard.object.get();
  if (has(guard.kind, kRelation)) step.target = body_.register_of_source[guard.other];
  if (guard.kind == GuardKind::tensor) step.facts = guard.facts.get();
  if (has(guard.kind, kKey)) { FJ_TRY(step.hash, hash_of(step.object)); }
  if (guard.kind == GuardKind::cache_agrees) {
    FJ_TRY(step.hash, hash_of(PyTuple_GET_ITEM(step.object, 0)));
  }
  if (guard.kind == GuardKind::type_unchanged && guard.number == 0) {
    if (!guard.object || !PyType_Check(guard.object.get()))
      return Error{Reason::bad_guard, "type_unchanged without a type"};
    step.number = guard.number = static_cast<int64_t>(class_state(reinterpret_cast<PyTypeObject*>(guard.object.get())));
  }
  if (guard.kind == GuardKind::int_range) set_.symbol_count = std::max<size_t>(set_.symbol_count, guard.number + 1);
  body_.steps.push_back(step);
  return {};
}

PyRef GuardCompiler::hold_key(const PyRef& key) {
  return is_compared_by_identity(key.get()) ? body_.weak.hold(key) : key;
}

PyRef GuardCompiler::hold_keys(const PyRef& keys) {
  const Py_ssize_t n = PyTuple_GET_SIZE(keys.get());
  PyRef held = PyRef::steal(PyTuple_New(n));
  for (Py_ssize_t i = 0; i < n; ++i)
    PyTuple_SET_ITEM(held.get(), i, hold_key(PyRef::borrow(PyTuple_GET_ITEM(keys.get(), i))).release());
  return held;
}

// Steps keep plain pointers; this decides what keeps their objects alive. A source that is constant stays as it is,
// unless a guard holds its object weakly: a key of a dict is such a source too.
void GuardCompiler::weaken() {
  for (Guard& guard : set_.guards_) {
    if (has(guard.kind, kIdentity) || is_heap_type(guard.object.get())) guard.object = body_.weak.hold(guard.object);
    else if (has(guard.kind, kKey)) guard.object = hold_key(guard.object);
  }
  for (Source& source : set_.sources.sources_) {
    if (is_heap_type(source.key.get()) || body_.weak.holds(source.key.get())) source.key = body_.weak.hold(source.key);
    else if (source.kind == SourceKind::dict_item) source.key = hold_key(source.key);
  }
}

}  // namespace framejit::guards
