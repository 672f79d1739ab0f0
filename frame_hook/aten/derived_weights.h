// frame_hook/aten/derived_weights.h — when weights of a compiled call are derived from, for which module, and whether
// what was derived may be used.
//
// The compiled graph is shared by all instances of a module; each has derived values of its own, since its weights are
// others. All of this is touched with the GIL held. Values go as soon as a module that owns one of their weights does.
// A weight itself is referenced by nobody here, not even weakly: torch.utils.swap_tensors refuses such tensors.
#pragma once

#include <Python.h>

#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "frame_hook/aten/compiled_call.h"
#include "guards/py_ref.h"
#include "runtime/aten/derived_values.h"

namespace framejit::frame_hook {

class DerivedWeights {
 public:
  // Null where nothing can be derived from: no input is a weight, or the settings say no.
  static std::shared_ptr<DerivedWeights> make(const graph::CompiledGraph& compiled, const RecordedValues& values,
                                              Freezing freezing);

  // What runs in the plain plan's place; no runner: nothing does.
  struct Use {
    const runtime::PlanRunner* runner = nullptr;
    std::shared_ptr<const runtime::DerivedValues> values;
    const std::vector<uint32_t>* held_inputs = nullptr;  // copied_inputs() of the runner's plan
  };
  Use ask(const at::Tensor* const* inputs);
  // Whether the weights of the last call have stayed for so many calls that derive() is worth it.
  bool is_due() const { return !due_.empty(); }
  void derive(const std::vector<PyRef>& owners);  // inside of a compile
  void drop();    // all values, for want of memory

  // Of all that there are in this process.
  static void drop_all();

  ~DerivedWeights();
  DerivedWeights(const DerivedWeights&) = delete;

 private:
  using Tensor = c10::TensorImpl;
  struct Instance {
    int64_t calls = 0;   // since its weights changed
    uint32_t losses = 0; // how often they have changed
    std::shared_ptr<const runtime::DerivedValues> values;
    std::vector<PyRef> references;  // weak, to the owners of its weights
  };

  DerivedWeights(const graph::CompiledGraph& compiled, const RecordedValues& values, Freezing freezing);
  int64_t calls_before(const Instance& instance) const;
  void make_runner();
  void keep(const Tensor* key, std::shared_ptr<const runtime::DerivedValues> values, const std::vector<PyRef>& owners);
  void lose(Instance& instance, const std::string& source);
  void stop(const std::string& reason);
  static PyObject* on_death(PyObject* capsule, PyObject* reference);

  const std::string name_;
  const runtime::Trust trust_;
  std::optional<graph::CompiledGraph> compiled_;  // until something was made of it, or nothing can be
  std::vector<uint32_t> weights_;                 // which inputs are
  std::vector<std::string> names_;                // of the inputs
  std::vector<at::Tensor> constants_;
  std::vector<c10::IValue> opaques_;
  std::optional<runtime::DerivedRecipes> recipes_;
  std::optional<runtime::PlanRunner> runner_;
  std::vector<uint32_t> held_inputs_;
  std::unordered_map<const Tensor*, Instance> instances_;  // by the first weight
  std::vector<at::Tensor> due_;  // the weights of the instance that derive() is for, from the call until then
  std::weak_ptr<DerivedWeights> self_;
};

}  // namespace framejit::frame_hook
