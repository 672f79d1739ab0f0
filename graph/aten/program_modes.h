// graph/aten/program_modes.h — modes of torch that the kernel of a user's op may read.
#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

namespace framejit::graph {

struct ProgramModes {
  struct Autocast {
    bool is_on;
    at::ScalarType dtype;
    bool operator==(const Autocast&) const = default;
  };
  Autocast cpu, cuda;
  bool grad, inference;
  bool operator==(const ProgramModes&) const = default;

  static ProgramModes now() {
    return {of(at::kCPU), of(at::kCUDA), c10::GradMode::is_enabled(), c10::InferenceMode::is_enabled()};
  }

 private:
  static Autocast of(at::DeviceType device) {
    return {at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)};
  }
};

}  // namespace framejit::graph
