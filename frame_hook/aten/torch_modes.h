// frame_hook/aten/torch_modes.h — the modes of torch that traced code may change, as a value.
//
// Grad and inference mode, autocast (on, dtypes, cache, nesting), default dtype. All are thread-local except the
// default dtype.
#pragma once

#include <c10/core/AutogradState.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <optional>
#include <string>

namespace framejit::frame_hook {

class TorchModes {
 public:
  static TorchModes current();
  void apply() const;
  bool operator==(const TorchModes& other) const;

 private:
  TorchModes() : autograd_(c10::AutogradState::get_tls_state()), keys_(c10::impl::tls_local_dispatch_key_set()) {}
  c10::AutogradState autograd_;
  c10::impl::LocalDispatchKeySet keys_;
  std::array<c10::ScalarType, 2> autocast_dtypes_{};  // CPU, CUDA
  bool autocast_cache_ = true;
  int autocast_nesting_ = 0;
  c10::ScalarType default_dtype_ = c10::ScalarType::Float;
};

// The name of an active mode under which nothing can be recorded (torch-function or dispatch modes, functorch
// transforms).
std::optional<std::string> unsupported_mode();

}  // namespace framejit::frame_hook
