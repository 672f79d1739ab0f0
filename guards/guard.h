// guards/guard.h — what a trace relied on, in any order, duplicates merged.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/shape_env.h"
#include "guards/change.h"
#include "guards/source.h"
#include "runtime/base/hash_index.h"

namespace framejit::guards {

enum class GuardKind : uint8_t {
#define GUARD(name, flags, text) name,
#include "guards/guard_kinds.def"
#undef GUARD
};

// The facts about a tensor; the implementation reads TensorImpl (guards/aten). A dimension may be bound to a symbol.
class TensorFacts {
 public:
  virtual ~TensorFacts() = default;
  // True if `tensor` has these facts; writes the values of the bound symbols. Runs no Python code and leaves no
  // exception.
  virtual bool matches(PyObject* tensor, int64_t* symbols) const = 0;
  virtual std::optional<TensorDifference> difference(PyObject* tensor) const = 0;  // nothing if it matches
  std::string mismatch(PyObject* tensor) const;  // the same as text: "size(0) == 4 but is 5"
  virtual std::string text() const = 0;
  // The dimensions whose constant size differs, if nothing but sizes and strides differs (automatic dynamic).
  virtual std::vector<int> differing_dims(PyObject* tensor) const = 0;
  // Those whose stride differs, if the sizes fit and the strides have the same order.
  virtual std::vector<int> differing_strides(PyObject* tensor) const = 0;
};

// Process-wide modes that kernels and traces depend on (grad mode, autocast, default dtype, ...), as one comparable
// record.
class ModeFacts {
 public:
  virtual ~ModeFacts() = default;
  virtual bool matches() const = 0;
  virtual std::string mismatch() const = 0;
  virtual std::string change() const { return mismatch(); }  // for users
};

using LineId = uint32_t;                     // of GuardSet::line
inline constexpr LineId kNoLine = UINT32_MAX;

struct Guard {
  GuardKind kind;
  SourceId source = kNoSource;
  PyRef object;                              // `is`, type_is, equals, dict keys ...
  int64_t number = 0;                        // length; int_range: symbol index; type_unchanged: class_state
  SourceId other = kNoSource;  // same, distinct, same_number
  std::shared_ptr<const TensorFacts> facts;  // tensor
  LineId line = kNoLine;                     // the user's line that caused it
};

class GuardSet {
 public:
  SourceTable sources;
  Guard* add(Guard guard);                   // the new guard, valid until the next add; null if an equal one exists
  const std::vector<Guard>& guards() const { return guards_; }
  std::vector<graph::SizeFact> size_facts;   // over symbols that tensor and int_range guards bind
  std::vector<graph::SymExpr> sizes;         // of the sources of kind size
  std::vector<std::shared_ptr<const ModeFacts>> modes;
  size_t symbol_count = 0;

  // "model.py:31 Net.forward"; is_of_torch: it calls torch's own Python code, which asks.
  LineId add_line(std::string text, bool is_of_torch = false);
  const std::string& line(LineId id) const;  // "" for kNoLine
  bool is_of_torch(LineId id) const { return id != kNoLine && lines_[id].is_of_torch; }

 private:
  friend class GuardCompiler;                // makes references to mortal objects weak
  std::vector<Guard> guards_;
  HashIndex index_;
  struct Line {
    std::string text;
    bool is_of_torch;
  };
  std::vector<Line> lines_;
};

}  // namespace framejit::guards
