// frame_hook/aten/input_versions.h — version counters of inputs that the program writes. A plan writes each input once;
// the program may have written it several times.
#pragma once

#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace framejit::frame_hook {

struct WrittenInput {
  size_t input;
  int64_t versions;  // how far the program advances its counter
};

// Made before the run. inputs: borrowed, those of the call.
class InputVersions {
 public:
  InputVersions(const std::vector<WrittenInput>& written, PyObject* const* inputs)
      : written_(written), inputs_(inputs) {
    for (const WrittenInput& w : written) {
      const c10::VariableVersion& counter = counter_of(w);
      versions_.push_back(counter.enabled() ? counter.current_version() + w.versions : -1);
    }
  }

  // After the run.
  void settle() const {
    for (size_t i = 0; i < written_.size(); ++i) {
      c10::VariableVersion counter = counter_of(written_[i]);
      if (versions_[i] >= 0) counter.set_version(versions_[i]);
    }
  }

 private:
  const c10::VariableVersion& counter_of(const WrittenInput& w) const {
    return THPVariable_Unpack(inputs_[w.input]).unsafeGetTensorImpl()->version_counter();
  }

  const std::vector<WrittenInput>& written_;
  PyObject* const* inputs_;
  c10::SmallVector<int64_t, 8> versions_;
};

}  // namespace framejit::frame_hook
