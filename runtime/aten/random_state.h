// runtime/aten/random_state.h — saved states of generators, for calls that do not finish: plain Python runs them again,
// and draws the same numbers.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <vector>

namespace framejit::runtime {

class RandomState {
 public:
  explicit RandomState(const std::vector<at::Generator>& generators);
  RandomState(const RandomState&) = delete;
  RandomState& operator=(const RandomState&) = delete;
  ~RandomState();  // restores the states, unless keep() was called

  void keep() { states_.clear(); }

 private:
  const std::vector<at::Generator>& generators_;
  std::vector<at::Tensor> states_;
};

}  // namespace framejit::runtime
