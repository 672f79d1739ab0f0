// guards/step.h — one instruction of a guard program: a fetch into a register, a check of one, or the head of a dict
// block.
//
// A block is the set of lookups in one dict, or along the MRO of one type. Its head knows the registers that the
// lookups fill. If the version of the dict or type passed before, the registers are filled from the record and the
// lookups are skipped. Versions of dicts are unique among all states of all dicts, those of types among all states of
// all types. The last block are the pairs that must be two objects each: it is skipped if the objects are those that
// passed last.
#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

#include "guards/cpython/frame_access.h"
#include "guards/guard.h"

namespace framejit::guards {

enum class StepCode : uint8_t {
#define SOURCE(name, text, words) fetch_##name,
#include "guards/source_kinds.def"
#undef SOURCE
#define GUARD(name, flags, text) guard_##name,
#include "guards/guard_kinds.def"
#undef GUARD
  dict_block,
  type_block,
  distinct_block,
};

inline constexpr uint32_t kNoRegister = UINT32_MAX;

struct Step {
  explicit Step(StepCode step_code) : code(step_code) {}
  StepCode code;
  bool may_be_absent = false;  // a fetch whose guard says that there is no such object
  uint32_t base = kNoRegister; // fetch: register of the base; check: the checked one; block: the dict or type
  uint32_t target = 0;         // fetch: register; check: register of the other source; block: index of its record
  uint32_t origin = 0;         // fetch: SourceId; check: index of the guard
  union {
    PyObject* object = nullptr;  // kept alive, or watched for its death, by the program
    const TensorFacts* facts;
  };
  // Index, offset, length, tag, symbol; block: steps to skip; computed: register of the second operand, or -1.
  int64_t number = 0;
  union {
    Py_hash_t hash = 0;        // of `object` as a dict key
    mutable uint64_t seen;     // type_unchanged: the version tag of the type when it last held
  };
};

struct RunState {
  const FrameAccess& frame;
  PyObject** registers;
  int64_t* symbols;
  const GuardSet* set = nullptr;  // for sources of kind size
};

// The versions that passed before. Direct mapped; it grows while versions collide, so that an entry that serves 32
// instances of a class keeps one record for each.
class BlockRecord {
 public:
  BlockRecord(uint32_t first_register, uint32_t registers) : first_(first_register), count_(registers) {}
  // True if `version` passed before; fills the registers.
  bool recall(uint64_t version, PyObject** registers) const {
    const size_t way = way_of(version);
    if (versions_[way] != version || version == 0) return false;
    const PyObject* const* values = values_.data() + way * count_;
    for (uint32_t i = 0; i < count_; ++i) registers[first_ + i] = const_cast<PyObject*>(values[i]);
    return true;
  }
  void remember(uint64_t version, PyObject* const* registers);

 private:
  static constexpr uint32_t kMostWays = 128, kMostValues = 4096;
  bool can_grow() const { return (1u << log_ways_) < kMostWays && (count_ << log_ways_) < kMostValues; }
  size_t way_of(uint64_t version) const {
    return log_ways_ == 0 ? 0 : (version * 0x9E3779B97F4A7C15ull) >> (64 - log_ways_);
  }
  uint32_t first_, count_;
  uint32_t log_ways_ = 0;
  std::vector<uint64_t> versions_ = {0};
  // Borrowed from the dict or type while its version stays the same.
  std::vector<PyObject*> values_ = std::vector<PyObject*>(count_);
};

// The objects that were told apart last. They may be gone since: only their addresses count.
class DistinctRecord {
 public:
  explicit DistinctRecord(std::vector<uint32_t> registers)
      : registers_(std::move(registers)), passed_(registers_.size()) {}
  bool recall(PyObject* const* registers) const {
    for (size_t i = 0; i < passed_.size(); ++i)
      if (registers[registers_[i]] != passed_[i]) return false;
    return true;
  }
  void remember(PyObject* const* registers) {
    for (size_t i = 0; i < passed_.size(); ++i) passed_[i] = registers[registers_[i]];
  }

 private:
  std::vector<uint32_t> registers_;
  std::vector<const PyObject*> passed_;
};

// A number that no other state of any dict has, or 0 if this dict has none.
inline uint64_t dict_version(PyObject* object) {
#if PY_VERSION_HEX >= 0x030E0000
  return 0;
#else
  auto* dict = reinterpret_cast<PyDictObject*>(object);
#if PY_VERSION_HEX >= 0x030D0000
  // CPython 3.13: storing an attribute in inline values (Objects/dictobject.c, store_instance_attr) does not change the
  // version.
  if (dict->ma_values) return 0;
#endif
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return dict->ma_version_tag;
#pragma GCC diagnostic pop
#endif
}

// 0 for a type without a tag: it was modified since its last lookup.
inline uint64_t type_version(PyObject* object) {
  auto* type = reinterpret_cast<PyTypeObject*>(object);
#if PY_VERSION_HEX < 0x030D0000
  if (!(type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG)) return 0;
#endif
  return type->tp_version_tag;
}

}  // namespace framejit::guards
