// guards/guard.h — what a trace relied on, in any order, duplicates merged.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/shape_env.h"
#include "guards/source.h"

namespace framejit::guards {

enum class GuardKind : uint8_t {
#define GUARD(name, text) name,
#include "guards/guard_kinds.def"
#undef GUARD
};

// What was seen of a tensor; the implementation reads TensorImpl (guards/aten). A dimension may be bound to a symbol.
class TensorFacts {
 public:
  virtual ~TensorFacts() = default;
  // True when `tensor` has these facts; writes the values of the bound symbols. No Python code, no exception left.
  virtual bool matches(PyObject* tensor, int64_t* symbols) const = 0;
  // "size(0) == 4 but is 5"; empty when it matches.
  virtual std::string mismatch(PyObject* tensor) const = 0;
  virtual std::string text() const = 0;
  // The dimension whose size differs, when sizes are all that differs (automatic dynamic); -1 otherwise.
  virtual std::vector<int> differing_dims(PyObject* tensor) const = 0;
};

// Process-wide modes that kernels and traces depend on (grad mode, autocast, default dtype, ...), as one comparable record.
class ModeFacts {
 public:
  virtual ~ModeFacts() = default;
  virtual bool matches() const = 0;
  virtual std::string mismatch() const = 0;
};

struct Guard {
  GuardKind kind;
  SourceId source = kNoSource;
  PyRef object;                              // `is`, type_is, equals, dict keys ...
  int64_t number = 0;                        // length; int_range, float_value: symbol index; type_version: tag
  SourceId other = kNoSource;                // same, distinct
  std::shared_ptr<const TensorFacts> facts;  // tensor
  std::string because;                       // user line that caused it: "model.py:31 Net.forward"
};

class GuardSet {
 public:
  SourceTable sources;
  void add(Guard guard);                     // merges equal ones
  const std::vector<Guard>& guards() const { return guards_; }
  std::vector<graph::SizeFact> size_facts;   // over symbols that tensor, int_range guards bind
  std::vector<std::shared_ptr<const ModeFacts>> modes;
  size_t symbol_count = 0;
  size_t float_count = 0;

  // Speculation: drop what was added since.
  size_t mark() const { return guards_.size(); }
  void rollback(size_t mark);

 private:
  friend class GuardCompiler;                // makes references to mortal objects weak
  std::vector<Guard> guards_;
  std::unordered_multimap<size_t, size_t> index_;
};

}  // namespace framejit::guards
