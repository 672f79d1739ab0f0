#include "frame_hook/resume/global_mode.h"

#include <algorithm>
#include <regex>
#include <utility>
#include <vector>

#include "frame_hook/hook/frame_hook.h"
#include "frame_hook/resume/entries.h"
#include "frame_hook/resume/frame_driver.h"
#include "frame_hook/resume/stance.h"
#include "frame_hook/trace/torch/tensor_frontend.h"
#include "frame_hook/trace/values/library_files.h"
#include "frame_hook/trace/values/loaded_modules.h"
#include "frame_hook/trace/values/originals.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/names.h"

namespace framejit::frame_hook {

namespace {

std::string string_of(PyObject* object) {
  const char* text = find_text(object);
  return text ? text : "";
}

// Every call of the program pays for this check: of a long list or dict, only the first items are looked at.
constexpr Py_ssize_t kItemsLookedAt = 16;
// After this many calls in a row without a tensor, the function is left alone.
constexpr int kMostCallsWithoutTensors = 1000;
constexpr size_t kMostNames = 3;  // of functions that the filter left out

bool is_tensor(PyObject* object) {
  return object && tensor_frontend()->classify(object, nullptr) != TensorClass::kNot;
}

// Only exact containers: looking into them runs no code.
bool holds_tensor(PyObject* object) {
  if (!object) return false;
  if (is_tensor(object)) return true;
  if (PyTuple_CheckExact(object) || PyList_CheckExact(object)) {
    for (Py_ssize_t i = 0; i < std::min(PySequence_Fast_GET_SIZE(object), kItemsLookedAt); ++i)
      if (is_tensor(PySequence_Fast_GET_ITEM(object, i))) return true;
  } else if (PyDict_CheckExact(object)) {
    PyObject *key, *value;
    Py_ssize_t position = 0, looked_at = 0;
    while (looked_at++ < kItemsLookedAt && PyDict_Next(object, &position, &key, &value))
      if (is_tensor(value)) return true;
  }
  return false;
}

// The code of nn.Module._call_impl and of the functions in it; one of them calls forward() if there are hooks. Empty:
// torch.nn is not loaded. Held for ever: a freed address must not come to mean other code.
std::vector<PyObject*> find_module_calls() {
  PyObject* const module = find_original("torch.nn.modules.module", "Module");
  const PyRef call = PyRef::steal(module ? PyObject_GetAttrString(module, "_call_impl") : nullptr);
  drop_error();
  if (!call || !PyFunction_Check(call.get())) return {};
  PyObject* const code = PyFunction_GET_CODE(call.get());
  std::vector<PyObject*> found{Py_NewRef(code)};
  PyObject* const constants = reinterpret_cast<PyCodeObject*>(code)->co_consts;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants); ++i)
    if (PyObject* const inner = PyTuple_GET_ITEM(constants, i); PyCode_Check(inner)) found.push_back(Py_NewRef(inner));
  return found;
}

// Whether the frame that waits for the hook is what nn.Module.__call__ calls.
bool is_module_call(const LiveFrame& frame) {
  static auto* const calls = new std::vector<PyObject*>;
  if (calls->empty()) *calls = find_module_calls();
  auto* const caller = reinterpret_cast<PyObject*>(frame.caller_code());
  return std::find(calls->begin(), calls->end(), caller) != calls->end();
}

// What this thread is inside of. While a module is still counting its calls, calls inside it are ignored. Inside a
// compiled module, functions run compiled, but other modules do not.
enum class Inside : uint8_t { nothing, module, counted_module };
thread_local Inside inside = Inside::nothing;

class Entered {
 public:
  explicit Entered(Inside now) : before_(std::exchange(inside, now)) {}
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
  ~Entered() { inside = before_; }

 private:
  Inside before_;
};

class GlobalDriver final : public FrameHandler {
 public:
  explicit GlobalDriver(GlobalModeSettings settings) : settings_(std::move(settings)) {
    filter_ = settings_.filter;  // invalid ones were refused with the other settings
    skip_ = settings_.skip;
  }

  void report_vain_filter() const {
    if (!filter_is_vain_ || left_out_ == 0) return;
    warn_once("FRAMEJIT_FILTER='" + settings_.filter + "'",
              "nothing is compiled, because it is found in no module:qualname of the " + std::to_string(left_out_) +
                  " functions that FRAMEJIT=1 could compile: " + names_left_out_ +
                  (left_out_ > kMostNames ? ", ..." : ""));
  }

  PyObject* on_frame(LiveFrame& frame, PyObject*) override {
    CodeState& state = frame.state();
    if (!frame.is_fresh() || !tensor_frontend() || inside == Inside::counted_module) return frame.pass_through();
    const Site* site = state.find_site(0);
    const bool is_compiled = site && !site->entries.empty();
    CodeNote& note = note_of(state);
    if (!is_compiled && !note.is_candidate && !(note.is_candidate = is_candidate(frame))) {
      state.skip = true;
      return frame.pass_through();
    }
    const bool is_module = is_module_call(frame);
    if (is_module && inside == Inside::module) return frame.pass_through();
    if (!is_module && !has_tensor_argument(frame)) {
      if (!is_compiled && ++note.calls_without_tensors >= kMostCallsWithoutTensors) state.skip = true;
      return frame.pass_through();
    }
    note.calls_without_tensors = 0;
    if (!is_compiled) {
      if (!is_module && note.functions_left_alone) return frame.pass_through();
      if (++note.calls < settings_.min_calls) {
        const Entered entered(is_module ? Inside::counted_module : inside);
        return frame.pass_through();
      }
    }
    return is_module ? run_module(frame) : run_function(frame);
  }

 private:
  PyObject* run_module(LiveFrame& frame) {
    {
      const Entered entered(Inside::module);
      if (const auto result = frame_driver().try_frame(frame, of_modules_)) return *result;
    }
    return frame.pass_through();
  }

  PyObject* run_function(LiveFrame& frame) {
    const auto result = frame_driver().try_frame(frame, of_functions_);
    return result ? *result : frame.pass_through();
  }

  static Options options(bool whole) {
    auto options = std::make_shared<CompileOptions>();
    options->whole = whole;
    return options;
  }

  bool is_in_filter(const LiveFrame& frame, const std::string& name) {
    if (std::regex_search(name, filter_)) return filter_is_vain_ = false, true;
    if (!filter_is_vain_ || (!is_module_call(frame) && !has_tensor_argument(frame))) return false;
    left_out_ += 1;
    if (left_out_ <= kMostNames) names_left_out_ += (left_out_ > 1 ? ", " : "") + name;
    return false;
  }

  bool is_candidate(const LiveFrame& frame) {
    PyCodeObject* code = frame.code();
    if ((code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) || !(code->co_flags & CO_OPTIMIZED))
      return false;
    const std::string file = string_of(code->co_filename), name = string_of(code->co_qualname);
    const bool forward_of_torch =
        is_file_of_torch_modules(code->co_filename) && name.size() > 8 && name.ends_with(".forward");
    if (!forward_of_torch && is_never_the_program(code->co_filename)) return false;
    if (file.empty() || file[0] == '<') return file == "<stdin>" || file == "<string>";
    const std::string full = string_of(PyDict_GetItemString(frame.access().globals, "__name__")) + ":" + name;
    if (!settings_.filter.empty() && !is_in_filter(frame, full)) return false;
    return settings_.skip.empty() || !std::regex_search(full, skip_);
  }

  static bool has_tensor_argument(const LiveFrame& frame) {
    PyCodeObject* code = frame.code();
    int i = 0;
    for (; i < code->co_argcount + code->co_kwonlyargcount; ++i)
      if (holds_tensor(frame.locals()[i])) return true;
    if (code->co_flags & CO_VARARGS) {  // Python packed these: each item is an argument
      PyObject* rest = frame.locals()[i++];
      for (Py_ssize_t k = 0; rest && k < PyTuple_GET_SIZE(rest); ++k)
        if (holds_tensor(PyTuple_GET_ITEM(rest, k))) return true;
    }
    if (code->co_flags & CO_VARKEYWORDS) {
      PyObject *key, *value, *rest = frame.locals()[i];
      Py_ssize_t position = 0;
      while (rest && PyDict_Next(rest, &position, &key, &value))
        if (holds_tensor(value)) return true;
    }
    return false;
  }

  GlobalModeSettings settings_;
  std::regex filter_, skip_;
  bool filter_is_vain_ = true;                // so far
  size_t left_out_ = 0;                       // by the filter, of what could be compiled
  std::string names_left_out_;                // the first of them
  const Options of_modules_ = options(false), of_functions_ = options(true);
};

}  // namespace

OutsideOfModules::OutsideOfModules() : before_(static_cast<int>(std::exchange(inside, Inside::nothing))) {}
OutsideOfModules::~OutsideOfModules() { inside = static_cast<Inside>(before_); }

namespace {
GlobalDriver* g_driver = nullptr;  // never freed: frames may be in it at exit
}

void report_vain_filter() {
  if (g_driver) g_driver->report_vain_filter();
}

Result<void> enable_global_mode(GlobalModeSettings settings) {
  if (!g_driver) g_driver = new GlobalDriver(std::move(settings));
  if (!install_standing_hook(*g_driver))
    return Error{Reason::hook_refused, "the frame hook is not usable: " + hook_refusal()};
  return {};
}

}  // namespace framejit::frame_hook
