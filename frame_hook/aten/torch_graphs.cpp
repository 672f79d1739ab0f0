#include "frame_hook/aten/torch_graphs.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/utils/pybind.h>

#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "frame_hook/trace/values/marks.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/py_ref.h"
#include "runtime/gpu_driver.h"

namespace framejit::frame_hook {
namespace {

using runtime::GpuDriver;
using runtime::GraphMachinery;

Error refused(const char* what, int code) {
  return {Reason::launch_failed, std::string("the driver refused to ") + what + ": error " + std::to_string(code)};
}

py::module_ torch_cuda() { return py::module_::import("torch.cuda"); }

py::object current_stream(c10::Device device) { return torch_cuda().attr("current_stream")(device.index()); }

// Torch's graphs read the seed and the offset of a generator from GPU memory, from one place for all graphs. Each
// replay by torch writes that place on its stream. So does the start of each capture, even for a graph that draws
// nothing. So every writer waits for the last graph that reads.
class Draws {
 public:
  void before_replay(const py::object& stream, void* handle) const {
    if (handle != last_handle_ && !last_.is_none()) stream.attr("wait_event")(last_);
  }
  void after_replay(const py::object& stream, void* handle) {
    if (last_.is_none()) last_ = torch_cuda().attr("Event")();
    last_.attr("record")(stream);
    last_handle_ = handle;
  }
  void before_capture(const py::object& own, const py::object& current) const {
    own.attr("wait_stream")(current);  // where the program may have replayed a graph of its own
    before_replay(own, nullptr);
  }
  void after_capture(const py::object& own, const py::object& current) {
    after_replay(own, nullptr);
    current.attr("wait_event")(last_);
  }

 private:
  py::object last_ = py::none();
  void* last_handle_ = nullptr;
};

class TorchGraph final : public GraphMachinery::Graph {
 public:
  // `launched`: what the driver may launch; null: torch's replay must run, because it sets the states of generators.
  TorchGraph(std::shared_ptr<void> pool_use, py::object graph, void* launched, const GpuDriver& driver,
             c10::Device device, Draws& draws)
      : pool_use_(std::move(pool_use)),
        graph_(std::move(graph)),
        replay_(graph_.attr("replay")),
        launched_(launched),
        driver_(driver),
        device_(device),
        draws_(draws) {}
  ~TorchGraph() override {
    if (!Py_IsInitialized()) {
      replay_.release();
      graph_.release();
      return;
    }
    const py::gil_scoped_acquire gil;
    replay_ = py::object();
    graph_ = py::object();
  }

  Result<void> replay(void* stream) override {
    if (launched_ != nullptr) {
      if (const int code = driver_.launch_graph(launched_, stream); code != 0) return refused("launch a graph", code);
      return {};
    }
    const py::object current = current_stream(device_);
    draws_.before_replay(current, stream);
    replay_();
    draws_.after_replay(current, stream);
    return {};
  }

 private:
  const std::shared_ptr<void> pool_use_;
  py::object graph_, replay_;
  void* const launched_;
  const GpuDriver& driver_;
  const c10::Device device_;
  Draws& draws_;
};

// Switches the stream of this thread for a while.
class OnStream {
 public:
  OnStream(c10::Device device, int64_t id)
      : device_guard_(device),
        guard_(device.type()),
        before_(guard_.exchangeStream(c10::Stream(c10::Stream::UNSAFE, device, id))) {}
  ~OnStream() { guard_.exchangeStream(before_); }
  OnStream(const OnStream&) = delete;

 private:
  const c10::DeviceGuard device_guard_;
  const c10::impl::VirtualGuardImpl guard_;
  const c10::Stream before_;
};

class Flagged {
 public:
  explicit Flagged(bool& flag) : flag_(flag) { flag_ = true; }
  ~Flagged() { flag_ = false; }
  Flagged(const Flagged&) = delete;

 private:
  bool& flag_;
};

class TorchGraphs final : public GraphMachinery {
 public:
  bool takes(c10::Device device) const override { return device.is_cuda() && driver() != nullptr; }

  void* stream_of(c10::Device device) override {
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
  }
  bool is_capturing(void* stream) override { return driver()->is_capturing(stream); }

  bool is_busy() const override { return is_capturing_; }

  bool shares_memory(c10::Device device, void* stream) const override {
    const auto lane = lanes_.find({device.index(), stream});
    return lane != lanes_.end() && lane->second && !lane->second->pool_use.expired();
  }

  Result<void> copy(void* to, const void* from, size_t bytes, void* stream) override {
    if (const int code = driver()->copy(to, from, bytes, stream); code != 0) return refused("copy", code);
    return {};
  }

  Result<Captured> capture(c10::Device device, void* stream, const std::vector<at::Generator>& generators,
                           const Work& work) override {
    try {
      FJ_TRY(Lane* lane, lane_of(device, stream));
      const Flagged capturing(is_capturing_);
      const std::shared_ptr<void> pool_use = use_pool(*lane);
      py::object graph = torch_cuda().attr("CUDAGraph")();
      bool has_draws = false;
      for (const at::Generator& generator : generators) {
        if (generator.device() != device) continue;
        has_draws = true;
        graph.attr("register_generator_state")(py::cast(generator));
      }
      Draws& draws = draws_[device.index()];
      FJ_TRY(std::vector<at::Tensor> outputs, captured(device, *lane, draws, graph, work));
      return Captured{std::make_shared<TorchGraph>(pool_use, graph, has_draws ? nullptr : launched(graph), *driver(),
                                                   device, draws),
                      std::move(outputs)};
    } catch (py::error_already_set& e) {
      return Error{Reason::gpu, e.what()};
    }
  }

 private:
  struct Lane {  // for captures of work on one of the program's streams
    py::object stream;
    int64_t stream_id;
    py::object pool;
    std::weak_ptr<void> pool_use = {};  // by all living graphs
  };

  static const GpuDriver* driver() {
    static const Result<const GpuDriver*> found = GpuDriver::find();
    return found.ok() ? found.value() : nullptr;
  }

  Result<Lane*> lane_of(c10::Device device, void* stream) {
    std::optional<Lane>& lane = lanes_[{device.index(), stream}];
    if (!lane) {
      FJ_TRY(void* own, driver()->make_stream(device.index()));
      py::object made = torch_cuda().attr("ExternalStream")(reinterpret_cast<uintptr_t>(own), device.index());
      const auto id = made.attr("stream_id").cast<int64_t>();
      lane.emplace(Lane{std::move(made), id, py::none()});
    }
    return &*lane;
  }

  // Torch no longer accepts a pool once its last graph is gone.
  static std::shared_ptr<void> use_pool(Lane& lane) {
    std::shared_ptr<void> use = lane.pool_use.lock();
    if (use) return use;
    lane.pool = torch_cuda().attr("graph_pool_handle")();
    lane.pool_use = use = std::make_shared<char>();
    return use;
  }

  // A capture that failed must still be ended; what torch says then is about the failure that is already known.
  static Result<std::vector<at::Tensor>> captured(c10::Device device, const Lane& lane, Draws& draws,
                                                  const py::object& graph, const Work& work) {
    const py::object current = current_stream(device);
    draws.before_capture(lane.stream, current);
    const OnStream on_stream(device, lane.stream_id);
    try {
      begin(graph, lane.pool);
      auto outputs = work();  // nothing waits for the GPU: other threads get the GIL soon enough
      graph.attr("capture_end")();
      draws.after_capture(lane.stream, current);
      return outputs;
    } catch (...) {
      const std::exception_ptr failure = std::current_exception();
      end_failed(device, lane, graph);
      draws.after_capture(lane.stream, current);
      std::rethrow_exception(failure);
    }
  }

  static void begin(const py::object& graph, const py::object& pool) {
    graph.attr("capture_begin")(py::arg("pool") = pool, py::arg("capture_error_mode") = "thread_local");
  }

  static void end_failed(c10::Device device, const Lane& lane, const py::object& graph) {
    for (const auto& end : {+[](c10::Device, const Lane&, const py::object& g) { g.attr("capture_end")(); },
                            // torch leaves this out if the stream's capture has become invalid
                            +[](c10::Device d, const Lane& l, const py::object&) {
                              py::module_::import("torch._C").attr("_cuda_endAllocateToPool")(d.index(), l.pool);
                            }}) {
      try {
        end(device, lane, graph);
        break;
      } catch (py::error_already_set&) {
      }
    }
    free_generator(device);
  }

  // Up to torch 2.11, a failed capture leaves the device's generator as if it continued, and nothing can be drawn any
  // more. The end of the next capture frees it.
  static void free_generator(c10::Device device) {
    try {
      const py::object graph = torch_cuda().attr("CUDAGraph")();
      begin(graph, torch_cuda().attr("graph_pool_handle")());
      py::module_::import("torch").attr("zeros")(1, py::arg("device") = py::cast(device));
      graph.attr("capture_end")();
    } catch (py::error_already_set&) {
    }
  }

  // Null if torch does not expose what the driver launches.
  static void* launched(const py::object& graph) {
    try {
      if (!py::hasattr(graph, "raw_cuda_graph_exec")) return nullptr;
      return reinterpret_cast<void*>(graph.attr("raw_cuda_graph_exec")().cast<uintptr_t>());
    } catch (py::error_already_set&) {
      return nullptr;
    }
  }

  std::map<std::pair<int, void*>, std::optional<Lane>> lanes_;
  std::map<int, Draws> draws_;  // by device
  bool is_capturing_ = false;
};

}  // namespace

GraphMachinery& torch_graphs() {
  static auto* const graphs = new TorchGraphs;  // its Python objects outlive the interpreter
  return *graphs;
}

std::vector<bool> inputs_marked_as_fixed(PyObject* const* inputs, size_t count) {
  std::vector<bool> marked;
  for (size_t i = 0; i < count; ++i)
    for (const char* name : {kStaticAddressMark, kTorchStaticAddressMark}) {
      PyRef value = PyRef::steal(PyObject_GetAttrString(inputs[i], name));
      drop_error();
      if (!value || value.get() == Py_None) continue;
      marked.resize(count, false);
      marked[i] = true;
    }
  return marked;
}

}  // namespace framejit::frame_hook
