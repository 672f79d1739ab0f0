#include "frame_hook/resume/call_settings.h"

#include <utility>

#include "guards/cpython/interrupts.h"

namespace framejit::frame_hook {

namespace {

constexpr const char* kOptionsName = "framejit.CompileOptions";
PyObject* g_last_settings = nullptr;      // borrowed: its options are dropped with it
const Options* g_last_options = nullptr;

// True, False or "auto".
Freezing freezing_of(PyObject* setting) {
  if (setting == Py_True) return Freezing::kTrusted;
  return setting == Py_False ? Freezing::kNever : Freezing::kProven;
}

std::shared_ptr<CompileOptions> read_settings(PyObject* settings) {
  auto made = std::make_shared<CompileOptions>();
  auto attribute = [&](const char* name) { return PyRef::steal(PyObject_GetAttrString(settings, name)); };
  const PyRef fullgraph = attribute("fullgraph"), dynamic = attribute("dynamic"), backend = attribute("backend"),
              autotune = attribute("autotune"), freezing = attribute("freezing"),
              at_once = attribute("derives_at_once"), replays = attribute("replays");
  if (!fullgraph || !dynamic || !backend || !autotune || !freezing || !at_once || !replays) return nullptr;
  made->fullgraph = PyObject_IsTrue(fullgraph.get()) == 1;
  made->dynamic = dynamic.get() == Py_None ? -1 : PyObject_IsTrue(dynamic.get());
  made->autotune = PyObject_IsTrue(autotune.get()) == 1;
  made->deriving = {freezing_of(freezing.get()), at_once.get() == Py_True, replays.get() == Py_True};
  if (PyUnicode_Check(backend.get())) {
    const char* const name = PyUnicode_AsUTF8(backend.get());
    if (!name) return nullptr;
    made->backend = name;
  } else {
    made->backend = "eager";
    made->user_backend = backend.get();
  }
  return made;
}

// The settings object is gone, so nobody can call what was compiled with it.
void drop_options(PyObject* capsule) {
  auto* options = static_cast<Options*>(PyCapsule_GetPointer(capsule, kOptionsName));
  if (g_last_options == options) g_last_options = nullptr;
  drop_entries(
      [&](const EntryBase& entry) { return static_cast<const SegmentEntry&>(entry).segment->options == *options; });
  delete options;
}

}  // namespace

const Options* options_of(PyObject* settings) {
  static const Options* const defaults = new Options(std::make_shared<CompileOptions>());
  if (!settings || settings == Py_None) return defaults;
  if (g_last_options && settings == g_last_settings) return g_last_options;
  static PyObject* const name = PyUnicode_InternFromString("_compile_options");
  PyRef capsule = PyRef::steal(PyObject_GenericGetAttr(settings, name));
  if (!capsule) {
    drop_error();
    auto made = read_settings(settings);
    if (!made) return nullptr;
    auto* options = new Options(std::move(made));
    capsule = PyRef::steal(PyCapsule_New(options, kOptionsName, drop_options));
    if (!capsule) return delete options, nullptr;
    if (PyObject_GenericSetAttr(settings, name, capsule.get()) < 0) return nullptr;
  }
  g_last_settings = settings;
  return g_last_options = static_cast<const Options*>(PyCapsule_GetPointer(capsule.get(), kOptionsName));
}

}  // namespace framejit::frame_hook
