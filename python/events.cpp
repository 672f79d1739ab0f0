// python/events.cpp — see events.h. A listener that raises is reported as unraisable; it never disturbs the traced
// program.
#include "python/events.h"

#include <memory>

#include "guards/cpython/interpreter_end.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/py_ref.h"
#include "runtime/base/log.h"

namespace framejit::python {

namespace {

bool put(PyObject* dict, const char* key, const std::string& value) {
  PyRef text = PyRef::steal(PyUnicode_DecodeUTF8(value.data(), static_cast<Py_ssize_t>(value.size()), "replace"));
  return text && PyDict_SetItemString(dict, key, text.get()) == 0;
}

PyObject* event_dict(const log::Event& e) {
  PyRef d = PyRef::steal(PyDict_New()), fields = PyRef::steal(PyDict_New());
  if (!d || !fields) return nullptr;
  for (auto& [key, value] : e.fields)
    if (!put(fields.get(), key.c_str(), value)) return nullptr;
  const bool ok = put(d.get(), "id", e.id) && put(d.get(), "channel", log::name_of(log::channel_of(e.kind))) &&
                  put(d.get(), "event", log::name_of(e.kind)) && put(d.get(), "at", e.where) &&
                  put(d.get(), "text", log::to_text(e)) && put(d.get(), "json", log::to_json(e)) &&
                  put(d.get(), "artefact", e.artefact) && PyDict_SetItemString(d.get(), "fields", fields.get()) == 0;
  return ok ? d.release() : nullptr;
}

// Called with or without the GIL, and possibly with a Python error set.
void tell(PyObject* callable, const log::Event& event) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  {
    PyRef dict = PyRef::steal(event_dict(event));
    PyRef done = dict ? PyRef::steal(PyObject_CallOneArg(callable, dict.get())) : PyRef();
    if (!done && error_is_interrupt()) drop_error();
    else if (!done) PyErr_WriteUnraisable(callable);
  }
  PyErr_Restore(type, value, traceback);
  PyGILState_Release(state);
}

}  // namespace

PyObject* add_listener(PyObject*, PyObject* callable) {
  // The listener may be dropped by a thread without the GIL, so its reference is released under it.
  std::shared_ptr<PyObject> kept(Py_NewRef(callable), [](PyObject* object) {
    stays_if_python_ends([&] {
      const PyGILState_STATE state = PyGILState_Ensure();
      Py_DECREF(object);
      PyGILState_Release(state);
    });
  });
  return PyLong_FromUnsignedLongLong(log::add_listener(
      [kept](const log::Event& event) { stays_if_python_ends([&] { tell(kept.get(), event); }); }));
}

PyObject* remove_listener(PyObject*, PyObject* token) {
  const unsigned long long id = PyLong_AsUnsignedLongLong(token);
  if (PyErr_Occurred()) return nullptr;
  log::remove_listener(id);
  Py_RETURN_NONE;
}

}  // namespace framejit::python
