// frame_hook/aten/derived_weights.h — when values are derived from the weights of a compiled call, for which module,
// and whether they may be used.
//
// The compiled graph is shared by all instances of a module; each has derived values of its own, since its weights are
// others. An instance is known by the objects that own its weights, whatever weights these hold now. Its values go as
// soon as one of the owners does. Weights are referenced here during a call alone, not even weakly otherwise:
// torch.utils.swap_tensors refuses tensors that somebody else references.
//
// All of this is touched with the GIL held. Threads meet here: what belongs to one call lies on its stack.
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
  // Null where nothing can be derived from: no input is a weight, or the settings say no.
  static std::shared_ptr<DerivedWeights> make(const graph::CompiledGraph& compiled, const RecordedValues& values,
                                              Deriving deriving);

  // What runs in the plain plan's place; no runner: nothing does.
  struct Use {
    const runtime::PlanRunner* runner = nullptr;
    std::shared_ptr<const runtime::DerivedValues> values;
    const std::vector<uint32_t>* held_inputs = nullptr;  // copied_inputs() of the runner's plan
  };
  // Sets owners.due when the weights have stayed for so many calls that deriving from them is worth it.
  Use ask(const at::Tensor* const* inputs, WeightOwners& owners);

  // Drops the values of all that there are in this process, for want of memory.
  static void drop_all();

  ~DerivedWeights();
  DerivedWeights(const DerivedWeights&) = delete;

 private:
  struct Instance {
    std::vector<PyObject*> owners;  // borrowed, for their addresses alone
    int64_t calls = 0;              // since its weights changed
    uint32_t losses = 0;            // how often they have changed
    bool had_values = false;        // that went since
    uint64_t last_use = 0, since = 0;  // by the count of all questions: the last one, and the first of `calls`
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

  const std::string name_;
  const runtime::Trust trust_;
  const bool is_at_once_;
  std::optional<graph::CompiledGraph> compiled_;  // until something was made of it, or nothing can be
  std::vector<uint32_t> weights_;                 // which inputs are; none: nothing is tried again
  std::vector<std::string> names_;                // of the inputs
  std::vector<at::Tensor> constants_;
  std::vector<c10::IValue> opaques_;
  std::optional<runtime::DerivedRecipes> recipes_;
  std::optional<runtime::PlanRunner> runner_;     // set once
  std::vector<uint32_t> held_inputs_;
  std::unordered_multimap<const PyObject*, Instance> instances_;  // by the first owner
  size_t forgets_at_;                             // so many instances
  std::weak_ptr<DerivedWeights> self_;
};

}  // namespace framejit::frame_hook
