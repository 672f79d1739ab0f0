// frame_hook/resume/stance.cpp — the stance is an object in a module's dict. Each set_stance replaces it; the last one
// is cached.
#include "frame_hook/resume/stance.h"

#include <string_view>

#include "guards/cpython/interrupts.h"
#include "guards/cpython/names.h"
#include "guards/cpython/py_ref.h"
#include "runtime/base/log.h"
#include "runtime/base/warn_once.h"

namespace framejit::frame_hook {

namespace {

Stance action_of(PyObject* stance) {
  static constexpr struct { std::string_view name; Stance action; } kRows[] = {
#define STANCE(name, action) {name, Stance::action},
#include "frame_hook/resume/stance.def"
#undef STANCE
  };
  const PyRef name = PyRef::steal(PyObject_GetAttrString(stance, "stance"));
  drop_error();
  const char* text = find_text(name.get());
  if (!text) return Stance::compile;
  for (const auto& row : kRows)
    if (row.name == text) return row.action;
  warn_once(std::string("torch.compiler.set_stance(\"") + text + "\")",
            "framejit does not know this stance and compiles as always");
  return Stance::compile;
}

void say_what_is_not_done(PyObject* stance) {
  const PyRef unsafe = PyRef::steal(PyObject_GetAttrString(stance, "skip_guard_eval_unsafe")),
              backend = PyRef::steal(PyObject_GetAttrString(stance, "backend"));
  drop_error();
  if (unsafe.get() == Py_True)
    warn_once("torch.compiler.set_stance(skip_guard_eval_unsafe=True)", "framejit checks all of its guards");
  if (backend && backend.get() != Py_None)
    warn_once("torch.compiler.set_stance(force_backend=...)", "framejit keeps the backend that compile() was given");
}

PyObject* g_modules = nullptr;             // owned: calls may outlive sys.modules, which is gone when the interpreter
                                           // ends

uint64_t version_of(PyObject* dict) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
#pragma GCC diagnostic pop
}

// The dict of the module that keeps the stance, kept for ever; null if it is not loaded.
PyObject* stance_module() {
  static PyObject* dict = nullptr;
  static uint64_t looked_at = 0;
  if (dict || !g_modules || version_of(g_modules) == looked_at) return dict;
  looked_at = version_of(g_modules);
  static PyObject* const name = PyUnicode_InternFromString("torch._dynamo.eval_frame");
  PyObject* module = PyDict_GetItemWithError(g_modules, name);
  if (!module || !PyModule_Check(module)) return nullptr;
  return dict = Py_NewRef(PyModule_GetDict(module));
}

}  // namespace

void look_for_stance_in(PyObject* modules) { Py_XSETREF(g_modules, Py_XNewRef(modules)); }

Stance stance_now() {
  static PyObject* last = nullptr;         // owned, so that its address means this stance as long as it is kept
  static Stance action = Stance::compile;
  static PyObject* const name = PyUnicode_InternFromString("_stance");
  PyObject* const module = stance_module();
  PyObject* const stance = module ? PyDict_GetItemWithError(module, name) : nullptr;
  if (!stance) return Stance::compile;     // also while that module is being loaded
  if (stance == last) return action;
  Py_XSETREF(last, Py_NewRef(stance));
  action = action_of(stance);
  say_what_is_not_done(stance);
  return action;
}

void warn_once(const std::string& asked, const std::string& instead) {
  if (log::is_first_time(asked) && log::enabled(log::Kind::Unheeded))
    log::emit(log::Kind::Unheeded, "", {{"asked", asked}, {"instead", instead}});
}

}  // namespace framejit::frame_hook
