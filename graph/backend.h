// graph/backend.h — the interface between capture and code generation: a functional graph goes in, an executable comes
// out.
//
// The driver gets a Backend by name ("framejit", "interp", "eager"). A backend keeps nothing of the graph.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/size_program.h"
#include "runtime/executable.h"

namespace framejit::graph {

// Runs executables of one graph on the inputs of the call that the graph is compiled for. The program sees no change,
// as long as the graph's ops only compute.
class PlanTimer {
 public:
  virtual ~PlanTimer() = default;
  // Seconds of one run; infinity if the run was abandoned after about `most` seconds. An Error: a step failed or threw.
  virtual Result<double> seconds(const std::shared_ptr<const runtime::Executable>& executable, double most) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  // Whether composite ops are decomposed for this backend. If not, it takes the recorded ops.
  virtual bool takes_core_ops() const { return true; }
  virtual Result<runtime::Executable> compile(const Graph& functional) = 0;
  // spent: per input, whether it is a saved value that only this plan reads. The plan may overwrite it after its last
  // use.
  virtual Result<runtime::Executable> compile_backward(const Graph& functional, const std::vector<bool>& /*spent*/) {
    return compile(functional);
  }
  // For callers that accept a longer compile for a faster plan: choices may be made by timing. decided: the choices
  // made, for derive().
  virtual Result<runtime::Executable> compile_timed(const Graph& functional, PlanTimer&, std::string& decided) {
    decided.clear();
    return compile(functional);
  }
  // For graphs some of whose inputs (`weights`) stay the same from call to call. Values that depend only on those
  // inputs may become derived values. The executable has no derived values if none would pay off.
  virtual Result<runtime::Executable> derive(const Graph&, const std::vector<bool>& /*weights*/,
                                             const std::string& /*decided*/) {
    return runtime::Executable{};
  }
  // The loader of the kernels of its executables.
  virtual runtime::KernelLoader& loader() = 0;
};

runtime::DeviceId runtime_device(Device device);
// The place where a node runs: the place of its last result.
runtime::Place place_of(const Graph& graph, const Node& node);

// Every node is an extern call, nothing is fused: graph/eager_backend.cpp. Takes a functional graph, or a recorded
// graph as it is.
std::unique_ptr<Backend> make_eager_backend();

// Shared by all backends: fills size program slots for the SymExprs of one plan.
class PlanSizes {
 public:
  explicit PlanSizes(runtime::CallPlan& plan) : program_(plan.size_program) {}
  runtime::Size size(const SymExpr& e);
  std::vector<runtime::Size> sizes(const SymSizes& e);
  runtime::Buffer buffer(const TensorMeta& meta);
  runtime::PlanArg arg(const Arg& a, const std::vector<runtime::BufferId>& buffer_of_value);

 private:
  SizeProgram program_;
};

}  // namespace framejit::graph
