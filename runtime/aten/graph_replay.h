// runtime/aten/graph_replay.h — which calls of a compiled graph are replays, and of which recording.
//
// The first call of each kind (sizes, stream, derived values) runs step by step: it initialises the libraries and shows
// where its inputs lie. The second one is recorded. Another thread must also run one call step by step before it may
// record. Inputs that stay in place are read there: weights, inputs that the program has marked, and inputs that lay at
// one address in both calls. The others are copied into the graph. An input of the last kind that moves later is copied
// from then on.
// The first recording of a stream hands out its own memory. If its outputs are still in use, another recording runs.
// Outputs of later recordings are copied. Modules that share this compiled graph have recordings of their own.
// The GIL must be held. While a thread records or replays, calls of other threads run step by step.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/aten/driver_graph.h"

namespace framejit::runtime {

class GraphReplay {
 public:
  // weights: per input, a parameter or buffer of a module.
  GraphReplay(std::string name, std::vector<std::string> input_names, std::vector<bool> weights,
              GraphMachinery& machinery);
  ~GraphReplay();
  GraphReplay(GraphReplay&&) noexcept;

  // Why a plan is never replayed; nullopt: it may be. Sets the device on which it runs.
  std::optional<Refused> refusal_of(const PlanRunner& runner, c10::Device& device) const;

  // True: the outputs are ready. False: nothing was done.
  Result<bool> replay(const ReplayCall& call);
  // Asked after replay() has done nothing. True: the call was recorded and replayed. marked: per input, whether the
  // program said that its address stays the same; may be empty.
  Result<bool> record(const ReplayCall& call, const std::vector<bool>& marked);

 private:
  struct Plan {
    const PlanRunner* runner;
    std::optional<Refused> refused;
    c10::Device device;
  };
  struct Kind;  // of calls
  const Plan& plan_of(const PlanRunner& runner);
  Kind* find_kind(const ReplayCall& call, void* stream) const;
  std::shared_ptr<Kind> add_kind(const ReplayCall& call, void* stream);
  bool is_same_module(const Kind& kind, const DriverGraph& graph, const ReplayCall& call) const;
  bool may_record(Kind& kind, const ReplayCall& call, const std::vector<bool>& marked);
  size_t recording_count() const;
  void log_refusal(const Refused& refused) const;
  void log_recording(const Kind& kind, const DriverGraph& graph) const;

  std::string name_;
  std::vector<std::string> input_names_;
  std::vector<bool> weights_;
  GraphMachinery* machinery_;
  std::vector<Plan> plans_;
  std::vector<std::shared_ptr<Kind>> kinds_;
  bool limit_is_said_ = false;
};

// Says why a graph runs step by step in a mode that replays graphs.
void log_not_replayed(const std::string& graph, const Refused& refused);

}  // namespace framejit::runtime
