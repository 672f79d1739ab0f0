// frame_hook/resume/frame_names.h — what the user's code calls the things that a live frame holds.
//
// A module is called through code of nn.Module; its arguments have the names that `forward` gives them.
#pragma once

#include "frame_hook/hook/live_frame.h"
#include "guards/user_names.h"

namespace framejit::frame_hook {

class FrameNames final : public guards::UserNames {
 public:
  explicit FrameNames(const LiveFrame& frame) : frame_(frame) {}
  std::string local(int slot) const override;
  bool are_arguments(int slot) const override;
  std::string item(int slot, int index, PyObject* key) const override;
  std::string pushed(int index) const override;
  std::string captured(int index) const override;

 private:
  int positional_slot() const;  // of *args; -1: the function has none
  int keyword_slot() const;     // of **kwargs

  const LiveFrame& frame_;
};

// The code of `forward`, if the frame runs what nn.Module itself runs when a module is called; otherwise null.
PyCodeObject* forward_of(const LiveFrame& frame);

}  // namespace framejit::frame_hook
