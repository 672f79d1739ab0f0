// runtime/aten/driver_graph.h — one graph of a GPU's driver that stands for the steps of a plan.
//
// A graph reads and writes fixed addresses. An input is read in place (then its address is checked in each call), or
// copied into a slot of the graph. An output is the graph's own memory, handed out as a new tensor: the next replay
// would overwrite it, so is_free() says whether everything that was handed out is gone. A graph that copies out hands
// out fresh memory and is always free. Views of inputs are views of the call's own inputs.
// A written input that is read in place has its new value after the graph has run. A slot is copied back to its input.
// In both cases the input gets a new version.
// Used with the GIL held; if a thread releases it during a replay, the graph stays marked as busy.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/aten/graph_machinery.h"
#include "runtime/aten/plan_runner.h"

namespace framejit::runtime {

enum class GraphRefusal : uint8_t {
#define GRAPH_REFUSAL(name, what, hint) name,
#include "runtime/aten/graph_refusals.def"
#undef GRAPH_REFUSAL
};
struct GraphRefusalRow {
  const char* name;
  const char* what;
  const char* hint;
};
const GraphRefusalRow& row_of(GraphRefusal refusal);

struct Refused {
  GraphRefusal refusal;
  std::string detail;
};

// One call of a plan. `values`: the owner of `between->derived`, if any.
struct ReplayCall {
  const PlanRunner& runner;
  ValuesBetweenPlans* between;
  std::shared_ptr<const void> values;
  const at::Tensor* const* inputs;
  const int64_t* symbols;
  at::Tensor* outputs;
};

class DriverGraph {
 public:
  struct Place {
    c10::Device device;
    void* stream;
  };
  // Null: `refused` says why. is_copied: per input.
  static std::shared_ptr<DriverGraph> make(GraphMachinery& machinery, Place place, const ReplayCall& call,
                                           const std::vector<bool>& is_copied, Refused& refused);
  ~DriverGraph();
  DriverGraph(const DriverGraph&) = delete;

  bool fits(const at::Tensor* const* inputs) const;           // inputs that are read in place have not moved
  bool has_moved(uint32_t input, const at::Tensor& tensor) const;
  bool is_busy() const { return is_busy_; }
  bool is_free() const;
  bool copies_out() const { return copies_out_; }
  Result<void> replay(GraphMachinery& machinery, const ReplayCall& call);

  size_t fixed_count() const { return fixed_.size(); }
  int64_t bytes() const { return bytes_; }  // of slots and outputs

 private:
  struct Fixed {
    uint32_t input;
    bool is_written;
    const void* data;
  };
  struct Slot {
    uint32_t input;
    at::Tensor tensor;
  };
  struct Memory;  // of outputs that share a storage
  struct Output {
    int64_t of_input = -1;  // a view of that input; else of memory_[memory]
    size_t memory = 0;
    bool is_defined = false;
    caffe2::TypeMeta dtype;
    c10::DispatchKeySet keys;
    std::vector<int64_t> sizes, strides;
    int64_t offset = 0;     // of a view of an input: from where the input begins
  };

  DriverGraph(Place place, bool copies_out) : place_(place), copies_out_(copies_out) {}
  std::vector<at::Tensor> place_inputs(const ReplayCall& call, const std::vector<bool>& is_copied);
  bool note_outputs(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& given, Refused& refused);
  Result<void> copy_in(GraphMachinery& machinery, const at::Tensor* const* inputs) const;
  void commit_writes(const ReplayCall& call) const;
  static void give_back(void* lease);
  c10::Storage lease(const std::shared_ptr<Memory>& memory) const;
  c10::Storage fresh(const Memory& memory) const;

  const Place place_;
  const bool copies_out_;  // after each replay, since replays of other graphs write over them
  bool is_busy_ = false;
  std::shared_ptr<GraphMachinery::Graph> graph_;
  std::shared_ptr<const void> values_;                    // derived values that the graph reads
  std::vector<Fixed> fixed_;
  std::vector<Slot> slots_;
  std::vector<std::pair<uint32_t, int64_t>> writes_;      // input, its slot or -1
  std::vector<std::shared_ptr<Memory>> memory_;
  std::vector<Output> outputs_;
  int64_t bytes_ = 0;
};

}  // namespace framejit::runtime
