#include "runtime/aten/random_state.h"

#include <mutex>

namespace framejit::runtime {
namespace {

void set(const GeneratorState& saved) {
  at::Generator generator = saved.generator;
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(saved.state);
}

std::vector<at::Generator> generators_of(const std::vector<GeneratorState>& states) {
  std::vector<at::Generator> generators;
  for (const GeneratorState& saved : states) generators.push_back(saved.generator);
  return generators;
}

}  // namespace

std::vector<GeneratorState> states_of(const std::vector<at::Generator>& generators) {
  std::vector<GeneratorState> states;
  states.reserve(generators.size());
  for (at::Generator generator : generators) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    states.push_back({generator, generator.get_state()});
  }
  return states;
}

RandomState::RandomState(const std::vector<at::Generator>& generators) : states_(states_of(generators)) {}

RandomState::~RandomState() {
  for (const GeneratorState& saved : states_) set(saved);
}

SameDraws::SameDraws(const std::vector<GeneratorState>& states) : now_(generators_of(states)) {
  for (const GeneratorState& saved : states) set(saved);
}

}  // namespace framejit::runtime
