// runtime/aten/random_state.h — saved states of generators: for calls that do not finish, which plain Python runs
// again, and for forwards that run once more. They draw the same numbers.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <vector>

namespace framejit::runtime {

struct GeneratorState {
  at::Generator generator;
  at::Tensor state;
};
std::vector<GeneratorState> states_of(const std::vector<at::Generator>& generators);

class RandomState {
 public:
  explicit RandomState(const std::vector<at::Generator>& generators);
  RandomState(const RandomState&) = delete;
  RandomState& operator=(const RandomState&) = delete;
  ~RandomState();  // restores the states, unless keep() was called

  void keep() { states_.clear(); }

 private:
  std::vector<GeneratorState> states_;
};

// Sets the generators to their states before the forward. The destructor restores the states that they had.
class SameDraws {
 public:
  explicit SameDraws(const std::vector<GeneratorState>& states);

 private:
  RandomState now_;
};

}  // namespace framejit::runtime
