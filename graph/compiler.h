// graph/compiler.h — from what a capture hands over to what runs: graph passes, a backend, binding.
//
// Capture knows no pass, no backend and no plan; it asks the compiler of this process. A compile touches no Python
// object, so the caller may let other threads run meanwhile, unless plans are timed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "graph/backend.h"

namespace framejit::graph {

// What a finished recording hands over. The values of its constants and opaque arguments stay with the recording: the
// graph numbers them.
struct JointLayout;
struct TrainingGraphs;
struct CapturedGraph {
  Graph graph;        // with the views, the writes and the source lines that were recorded
  std::string where;  // the user's line of the first op: where the graph begins
  std::vector<bool> weights = {};  // per input: whether it is a parameter or buffer of a module; empty: none is
  std::shared_ptr<const JointLayout> joint = {};  // the graph is a forward and its backward
};
std::string where_it_begins(const Graph& graph);

struct CompiledGraph {
  Graph functional;  // what the backend was given; its shapes hold the facts that passes took for granted
  std::shared_ptr<const runtime::BoundExecutable> executable;
  std::string backend;         // the one that compiled it
  std::vector<bool> weights;   // as they were captured
  std::shared_ptr<const TrainingGraphs> training;  // of a joint graph: `functional` and `executable` are its forward
  std::string decided = {};    // choices made by timing, in the backend's own format
};

// Makes a timer for plans of one functional graph. `loader` loads their kernels.
using MakeTimer = std::function<std::unique_ptr<PlanTimer>(const ShapeEnv& shapes, runtime::KernelLoader& loader)>;

using BackendFactory = std::function<std::unique_ptr<Backend>()>;

class Compiler {
 public:
  void add_backend(const std::string& name, BackendFactory factory);
  std::vector<std::string> backend_names() const;

  // `make_timer`: if given, the backend may decide by timing. If the backend cannot compile the graph, the result is
  // the Error "kernel_refused".
  Result<CompiledGraph> compile(CapturedGraph captured, const std::string& backend,
                                const MakeTimer& make_timer = nullptr);

  // The same graph with derived values in place of values that depend on its weights alone. Null: it would have no
  // derived values. The Error "not_derived": it would have none because sizes of weights are symbols.
  Result<std::shared_ptr<const runtime::BoundExecutable>> derive(const CompiledGraph& compiled);

  // The backward for the gradients that are given (per tangent) and wanted (per gradient): an executable with one
  // backward plan. If the backend cannot compile it, it runs op by op.
  Result<std::shared_ptr<const runtime::BoundExecutable>> compile_backward(const TrainingGraphs& graphs,
                                                                           const std::string& backend,
                                                                           const std::vector<bool>& given,
                                                                           const std::vector<bool>& wanted);
  // Op by op: a forward that autograd records (graph/forward_again.h).
  Result<std::shared_ptr<const runtime::BoundExecutable>> compile_by_ops(const Graph& functional);

 private:
  // One instance per process, so that identical kernels are compiled once. Null: no such name.
  Backend* find_backend(const std::string& name);

  mutable std::mutex mutex_;
  std::map<std::string, BackendFactory> factories_;
  std::map<std::string, std::unique_ptr<Backend>> made_;
};

// The compiler of this process. Whoever owns a backend adds it.
Compiler& compiler();

}  // namespace framejit::graph
