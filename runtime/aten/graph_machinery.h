// runtime/aten/graph_machinery.h — what records and replays graphs of a GPU's driver (CUDA graphs, HIP graphs).
//
// frame_hook/aten/torch_graphs.cpp has the real one, torch's own; tests have one that needs no GPU.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

#include "runtime/base/result.h"

namespace framejit::runtime {

class GraphMachinery {
 public:
  class Graph {
   public:
    virtual ~Graph() = default;
    virtual Result<void> replay(void* stream) = 0;  // enqueues all of it
  };
  // Enqueues the work to be recorded, and returns the tensors that a replay fills. Under a capture nothing runs.
  using Work = std::function<Result<std::vector<at::Tensor>>()>;
  struct Captured {
    std::shared_ptr<Graph> graph;
    std::vector<at::Tensor> outputs;
  };

  virtual ~GraphMachinery() = default;
  virtual bool takes(c10::Device device) const = 0;
  virtual void* stream_of(c10::Device device) = 0;    // the current one of this thread
  virtual bool is_capturing(void* stream) = 0;  // work that is enqueued there is captured
  virtual bool is_busy() const = 0;  // a thread that has released the GIL is capturing
  // Graphs of one stream share the memory that they need while they run: they are replayed on it alone. An Error or an
  // exception: nothing was enqueued anywhere, and `work` may run again.
  virtual Result<Captured> capture(c10::Device device, void* stream, const std::vector<at::Generator>& generators,
                                   const Work& work) = 0;
  // Whether this stream has graphs. Their replays overwrite whatever lies in the memory of a new graph, except outputs
  // that were recorded before them.
  virtual bool shares_memory(c10::Device device, void* stream) const = 0;
  virtual Result<void> copy(void* to, const void* from, size_t bytes, void* stream) = 0;
};

}  // namespace framejit::runtime
