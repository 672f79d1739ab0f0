// guards/guard_body.h — the contents of a GuardProgram, shared by the files that compile, run and explain it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "guards/cpython/weak_objects.h"
#include "guards/guard_program.h"
#include "guards/size_guards.h"
#include "guards/step.h"

namespace framejit::guards {

struct GuardProgram::Body {
  GuardSet set;
  std::vector<Step> steps;
  mutable std::vector<BlockRecord> records;
  mutable std::optional<DistinctRecord> distinct;
  std::vector<uint32_t> register_of_source;
  uint32_t register_count = 0;
  bool computes = false;  // has sources that make objects: computed, size, ...
  SizeGuards sizes;
  WeakObjects weak;
  PyRef code;  // of the frame, held weakly: for the names of locals

  // Index of the first step from `start` on that fails, or -1. Does not look at modes and sizes.
  int first_failing_step(const RunState& run, size_t start = 0) const;
  PyCodeObject* live_code() const;
  // Every number that differs, from step `failed` on (GuardFailure::changed).
  std::vector<std::string> all_changed(const RunState& run, int failed) const;
};

// Texts of guards: guards/guard_text.cpp.
std::string text_of(const Guard& guard, const SourceTable& sources, PyCodeObject* code);
// `object`: the current object of the guard's source.
std::string text_of_failure(const Guard& guard, PyObject* object, const SourceTable& sources, PyCodeObject* code);

// The current value that a guard compares, as text; "" if it compares no single value.
std::string text_of_now(const Guard& guard, PyObject* object);

// Where the guards bind a symbol: an int (dim -1), or a size of a tensor.
struct SymbolPlace {
  SourceId source;
  int dim;
  std::string suffix() const { return dim < 0 ? "" : ".size(" + std::to_string(dim) + ")"; }
};
std::optional<SymbolPlace> find_symbol(const GuardSet& set, size_t id);

// Fills a body: guards/guard_compiler.cpp.
class GuardCompiler {
 public:
  explicit GuardCompiler(GuardProgram::Body& body) : body_(body), set_(body.set) {}
  Result<void> run(const std::vector<SourceId>& wanted);

 private:
  struct Node {                          // of the tree of needed sources
    bool needed = false, in_block = false;
    SourceId first_child = kNoSource, last_child = kNoSource, next_sibling = kNoSource;  // in order of need
    uint32_t first_guard = 0, guard_count = 0;                                           // in guard_order_
  };

  std::vector<SourceId> merge_types();
  bool is_computed(SourceId source) const {
    return set_.sources[source].kind == SourceKind::computed || set_.sources[source].kind == SourceKind::size;
  }
  void need(SourceId source);
  void add_guards();
  std::span<const uint32_t> guards_of(const Node& node) const {
    return {guard_order_.data() + node.first_guard, node.guard_count};
  }
  Result<void> emit_source(SourceId source);
  Result<void> emit_fetch(SourceId source);
  Result<void> emit_guard(uint32_t index);
  Result<void> emit_block(SourceId source, StepCode block);
  Result<void> emit_relations();
  std::optional<StepCode> block_of(const Node& node) const;
  bool is_pinned(const Guard& guard) const;
  bool is_absence(const Guard& guard) const { return guard.kind == GuardKind::is && !guard.object; }
  Result<Py_hash_t> hash_of(PyObject* key) const;
  PyRef hold_key(const PyRef& key);  // of a dict
  PyRef hold_keys(const PyRef& keys);
  void weaken();

  GuardProgram::Body& body_;
  GuardSet& set_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> guard_order_;    // indices of guards by source, the cheapest first
  std::vector<uint32_t> relations_;  // same, distinct, same_number: emitted when both registers are filled
};

}  // namespace framejit::guards
