// runtime/aten/random_state.cpp — see random_state.h.
#include "runtime/aten/random_state.h"

#include <mutex>

namespace framejit::runtime {

RandomState::RandomState(const std::vector<at::Generator>& generators) : generators_(generators) {
  states_.reserve(generators.size());
  for (at::Generator g : generators) {
    const std::lock_guard<std::mutex> lock(g.mutex());
    states_.push_back(g.get_state());
  }
}

RandomState::~RandomState() {
  for (size_t i = 0; i < states_.size(); ++i) {
    at::Generator g = generators_[i];
    const std::lock_guard<std::mutex> lock(g.mutex());
    g.set_state(states_[i]);
  }
}

}  // namespace framejit::runtime
