// frame_hook/trace/torch/outside_state.cpp — see outside_state.h.
//
// A value that is used gets a guard, and a flag of the value says so. These flags are cleared at the beginning and put
// back at the end. A guard that exists is not added twice.
#include "frame_hook/trace/torch/outside_state.h"

#include <span>
#include <utility>

#include "frame_hook/trace/values/library_files.h"
#include "frame_hook/trace/values/object_kinds.h"

namespace framejit::frame_hook {

using guards::SourceId;
using guards::SourceKind;

OutsideState::OutsideState(Heap& heap, std::vector<Value*> passed, const FloatTensors& floats)
    : heap_(heap), passed_(std::move(passed)), floats_(floats), uses_before_(floats.uses().size()) {
  for (Value* v : heap_.all()) {
    before_.push_back({v->value_guarded, v->identity_guarded, v->mutated});
    if (v->source != guards::kNoSource) v->value_guarded = v->identity_guarded = false;
    if (!v->object) v->mutated = false;
  }
}

OutsideState::~OutsideState() {
  for (size_t i = 0; i < before_.size(); ++i) {
    Value* const v = heap_.all()[i];
    v->value_guarded = v->value_guarded || before_[i].value;
    v->identity_guarded = v->identity_guarded || before_[i].identity;
    v->mutated = v->mutated || before_[i].mutated;
  }
}

// Writes to real objects are counted elsewhere.
bool OutsideState::is_written() const {
  for (size_t i = 0; i < before_.size(); ++i)
    if (const Value* v = heap_.all()[i]; !v->object && v->mutated) return true;
  return false;
}

OutsideState::Known OutsideState::known() const {
  Known found;
  std::vector<const Value*> open(passed_.begin(), passed_.end());
  while (!open.empty()) {
    const Value* v = open.back();
    open.pop_back();
    if (v == nullptr || !found.insert(v).second) continue;
    if (v->kind == ValueKind::tuple)
      for (const Value* item : static_cast<const TupleValue*>(v)->items) open.push_back(item);
  }
  return found;
}

std::string OutsideState::what_is_read() const {
  const Known held = known();
  for (const Value* v : heap_.all())
    if (!held.contains(v) && is_state(v, held) && !is_library(v->source)) return text_of(v->source);
  std::unordered_set<SourceId> passed;
  std::vector<SourceId> others;
  for (const auto& [number, source] : std::span(floats_.uses()).subspan(uses_before_)) {
    if (!held.contains(number)) others.push_back(source);
    else add_operands(source, passed);
  }
  for (SourceId source : others) {
    std::unordered_set<SourceId> operands;
    add_operands(source, operands);
    for (SourceId operand : operands)
      if (!passed.contains(operand) && !held.contains(heap_.find(operand))) return text_of(operand);
  }
  return "";
}

// Adds the sources that a number is computed from.
void OutsideState::add_operands(SourceId source, std::unordered_set<SourceId>& to) const {
  const guards::Source& at = heap_.facts.sources()[source];
  if (at.kind == SourceKind::constant) return;
  if (at.kind != SourceKind::computed) return void(to.insert(source));
  add_operands(at.base, to);
  if (at.index >= 0) add_operands(static_cast<SourceId>(at.index), to);
}

std::string OutsideState::text_of(SourceId source) const {
  const guards::SourceTable& sources = heap_.facts.sources();
  SourceId root = source;
  while (sources[root].base != guards::kNoSource) root = sources[root].base;
  const SourceKind kind = sources[root].kind;
  if (kind == SourceKind::local || kind == SourceKind::stack) return "something that an argument holds";
  return sources.text(source, nullptr);
}

// The use of a symbolic int leaves no trace. So it counts if the code may reach it, through a global or an object that
// it holds.
bool OutsideState::is_state(const Value* v, const Known& known) const {
  if (v->source == guards::kNoSource) return false;
  if (v->kind != ValueKind::sym_int) return v->object && v->value_guarded && holds_only_scalars(v->object.get());
  const guards::SourceTable& sources = heap_.facts.sources();
  SourceId root = v->source;
  for (; sources[root].base != guards::kNoSource; root = sources[root].base)
    if (known.contains(heap_.find(sources[root].base))) return true;
  return sources[root].kind != SourceKind::local && sources[root].kind != SourceKind::stack;
}

// Whether it belongs to torch or the standard library. Defaults of functions count as code.
bool OutsideState::is_library(SourceId source) const {
  const guards::SourceTable& sources = heap_.facts.sources();
  for (SourceId at = source; at != guards::kNoSource; at = sources[at].base) {
    const SourceKind kind = sources[at].kind;
    if (kind == SourceKind::function_defaults || kind == SourceKind::function_kwdefaults ||
        kind == SourceKind::builtins)
      return true;
    const Value* v = heap_.find(at);
    PyObject* const object = v ? v->object.get() : nullptr;
    PyObject* const dict = !object ? nullptr : PyModule_Check(object) ? PyModule_GetDict(object) : object;
    if (!dict || !PyDict_Check(dict) || !PyDict_GetItemString(dict, "__name__")) continue;
    PyObject* const file = PyDict_GetItemString(dict, "__file__");
    return !file || is_never_the_program(file);
  }
  return false;
}

}  // namespace framejit::frame_hook
