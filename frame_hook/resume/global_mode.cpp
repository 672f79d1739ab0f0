// frame_hook/resume/global_mode.cpp — see global_mode.h.
#include "frame_hook/resume/global_mode.h"

#include <regex>
#include <stdexcept>
#include <unordered_map>

#include "frame_hook/hook/frame_hook.h"
#include "frame_hook/resume/frame_driver.h"
#include "frame_hook/trace/tensor_frontend.h"

namespace framejit::frame_hook {

namespace {

std::regex expression(const char* knob, const std::string& text) {
  try {
    return std::regex(text);
  } catch (const std::regex_error& e) {
    throw std::invalid_argument(std::string(knob) + "=" + text + " is not a regular expression: " + e.what());
  }
}

bool starts_with(const std::string& text, const std::string& prefix) { return !prefix.empty() && text.compare(0, prefix.size(), prefix) == 0; }

std::string text_of(PyObject* object) {
  const char* text = object && PyUnicode_Check(object) ? PyUnicode_AsUTF8(object) : nullptr;
  if (!text) PyErr_Clear();
  return text ? text : "";
}

bool is_tensor(PyObject* object) {
  std::string reason;
  return object && tensor_frontend()->classify(object, &reason) != TensorClass::kNot;
}

// Exact containers alone: looking into them runs no code.
bool holds_tensor(PyObject* object) {
  if (!object) return false;
  if (is_tensor(object)) return true;
  if (PyTuple_CheckExact(object) || PyList_CheckExact(object)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
      if (is_tensor(PySequence_Fast_GET_ITEM(object, i))) return true;
  } else if (PyDict_CheckExact(object)) {
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(object, &position, &key, &value))
      if (is_tensor(value)) return true;
  }
  return false;
}

class GlobalDriver final : public FrameHandler {
 public:
  explicit GlobalDriver(GlobalModeSettings settings) : settings_(std::move(settings)) {
    if (!settings_.filter.empty()) filter_ = expression("FRAMEJIT_FILTER", settings_.filter);
    if (!settings_.skip.empty()) skip_ = expression("FRAMEJIT_SKIP", settings_.skip);
  }

  PyObject* on_frame(LiveFrame& frame, PyObject*) override {
    CodeState& state = frame.state();
    if (!frame.is_fresh() || !tensor_frontend()) return frame.pass_through();
    if (!state.find_site(0)) {  // not compiled before
      if (!is_candidate(frame)) {
        state.skip = true;
        return frame.pass_through();
      }
      if (!has_tensor_argument(frame) || ++calls(state) < settings_.min_calls) return frame.pass_through();
    }
    return frame_driver().on_frame(frame, nullptr);
  }

 private:
  bool is_candidate(const LiveFrame& frame) const {
    PyCodeObject* code = frame.code();
    if ((code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) || !(code->co_flags & CO_OPTIMIZED)) return false;
    const std::string file = text_of(code->co_filename), name = text_of(code->co_qualname);
    const bool forward_of_torch = starts_with(file, settings_.module_folder) && name.size() > 8 && name.ends_with(".forward");
    if (!forward_of_torch)
      for (const std::string& folder : settings_.library_folders)
        if (starts_with(file, folder)) return false;
    if (file.empty() || file[0] == '<') return file == "<stdin>" || file == "<string>";
    const std::string full = text_of(PyDict_GetItemString(frame.access().globals, "__name__")) + ":" + name;
    if (!settings_.filter.empty() && !std::regex_search(full, filter_)) return false;
    return settings_.skip.empty() || !std::regex_search(full, skip_);
  }

  static bool has_tensor_argument(const LiveFrame& frame) {
    PyCodeObject* code = frame.code();
    const int count = code->co_argcount + code->co_kwonlyargcount + !!(code->co_flags & CO_VARARGS) + !!(code->co_flags & CO_VARKEYWORDS);
    for (int i = 0; i < count; ++i)
      if (holds_tensor(frame.locals()[i])) return true;
    return false;
  }

  // Counted by code object; a code object that is freed and its address reused starts with what is there, which is harmless.
  int64_t& calls(CodeState& state) { return calls_[state.code()]; }

  GlobalModeSettings settings_;
  std::regex filter_, skip_;
  std::unordered_map<PyCodeObject*, int64_t> calls_;
};

}  // namespace

Result<void> enable_global_mode(GlobalModeSettings settings) {
  if (settings.min_calls < 1) return Error{"setting", "FRAMEJIT_MIN_CALLS=" + std::to_string(settings.min_calls) + ": expected 1 or more"};
  try {
    static GlobalDriver* driver = nullptr;   // never freed: frames may be in it at exit
    if (!driver) driver = new GlobalDriver(std::move(settings));
    if (!install_standing_hook(*driver)) return Error{"hook", "the frame hook is not usable: " + hook_refusal()};
  } catch (const std::invalid_argument& e) {
    return Error{"expression", e.what()};
  }
  return {};
}

}  // namespace framejit::frame_hook
