// frame_hook/aten/derived_weights.h — when values are derived from the weights of a compiled call, for which module,
// and whether they may be used.
//
// All instances of a module share the compiled graph, but each has its own derived values, because its weights differ.
// An instance is identified by the objects that own its weights, whatever weights they hold now. Its values are dropped
// when one of the owners dies. Weights are referenced here only during a call, and not even weakly otherwise:
// torch.utils.swap_tensors refuses tensors that somebody else references.
//
// The GIL must be held. Several threads may be in calls: the state of a call lies on its stack.
#pragma once

#include <Python.h>

#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "frame_hook/aten/compiled_call.h"
#include "guards/cpython/py_ref.h"
#include "runtime/aten/derived_values.h"

namespace framejit::frame_hook {

class DerivedWeights {
 public:
  // Null if nothing can be derived: no input is a weight, or the settings forbid it.
  static std::shared_ptr<DerivedWeights> make(const graph::CompiledGraph& compiled, const RecordedValues& values,
                                              Deriving deriving);

  // The plan to run instead of the plain one. A null runner: run the plain plan.
  struct Use {
    const runtime::PlanRunner* runner = nullptr;
    std::shared_ptr<const runtime::DerivedValues> values;
    const std::vector<uint32_t>* held_inputs = nullptr;  // copied_inputs() of the runner's plan
  };
  // Sets owners.due if the weights have been unchanged for so many calls that it is worth deriving from them.
  Use ask(const at::Tensor* const* inputs, WeightOwners& owners);

  // Drops all derived values of this process, because memory ran out.
  static void drop_all();

  ~DerivedWeights();
  DerivedWeights(const DerivedWeights&) = delete;

 private:
  struct Instance {
    std::vector<PyObject*> owners;  // borrowed; only their addresses are used
    int64_t calls = 0;              // since its weights changed
    uint32_t losses = 0;            // how often they have changed
    bool had_values = false;        // that were dropped since
    uint64_t last_use = 0, since = 0;  // calls of ask() are numbered: the last one, the first of `calls`
    std::shared_ptr<const runtime::DerivedValues> values;
    std::vector<PyRef> references;  // weak, to the owners, as long as there are values
  };
  class Due;

  DerivedWeights(const graph::CompiledGraph& compiled, const RecordedValues& values, Deriving deriving);
  Instance& instance_of(PyObject* const* owners, size_t count);
  void forget_some();
  int64_t calls_before(const Instance& instance) const;
  void derive(const Due& due);
  void derive_now(const Due& due);
  void make_runner();
  void keep(const Due& due, std::shared_ptr<const runtime::DerivedValues> values);
  static bool drop_idlest(const Instance& instance, const std::vector<at::Tensor>& weights,
                          runtime::InTheWay in_the_way);
  void warn_not_watched(const std::string& why) const;
  static void lose(Instance& instance);
  void refuse(const Due& due, const std::string& reason);
  void stop(const std::string& reason);
  std::string sources_of(const runtime::DerivedValues& values) const;
  static PyObject* on_death(PyObject* capsule, PyObject* reference);

  const std::string name_, place_;  // place_: the user's line where the graph begins
  const runtime::Trust trust_;
  const bool is_at_once_;
  std::optional<graph::CompiledGraph> compiled_;  // empty once it was used, or nothing can be derived
  std::vector<uint32_t> weights_;                 // indices of inputs; empty: do not try again
  std::vector<std::string> names_;                // of the inputs
  std::vector<at::Tensor> constants_;
  std::vector<c10::IValue> opaques_;
  std::optional<runtime::Derivations> derivations_;
  std::optional<runtime::PlanRunner> runner_;     // set once
  std::vector<uint32_t> held_inputs_;
  std::unordered_multimap<const PyObject*, Instance> instances_;  // by the first owner
  size_t forgets_at_;                             // forget_some() runs at this many instances
  std::weak_ptr<DerivedWeights> self_;
};

}  // namespace framejit::frame_hook
