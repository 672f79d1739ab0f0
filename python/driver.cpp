// python/driver.cpp — compiled callables for the Python package: settings, armed calls, reset.
//
// In: Options objects of framejit/options.py, checked there. Out: armed calls whose frames go to the frame driver with them.
#include "python/driver.h"

#include "frame_hook/hook/frame_hook.h"
#include "frame_hook/resume/frame_driver.h"
#include "frame_hook/resume/stats.h"
#include "frame_hook/trace/graph_break.h"
#include "runtime/base/log.h"

namespace framejit::python {
namespace {

PyObject* arm(PyObject*, PyObject* args) {
  PyObject *function, *options;
  if (!PyArg_ParseTuple(args, "OO", &function, &options)) return nullptr;
  return frame_hook::make_armed_call(function, options);
}

PyObject* reset(PyObject*, PyObject*) {
  frame_hook::FrameDriver::reset();
  Py_RETURN_NONE;
}

PyObject* set_thread_enabled(PyObject*, PyObject* enabled) {
  const int wanted = PyObject_IsTrue(enabled);
  return wanted < 0 ? nullptr : PyBool_FromLong(frame_hook::set_thread_enabled(wanted != 0));
}

PyObject* set_graph_break_error(PyObject*, PyObject* type) {
  frame_hook::set_graph_break_error(type);
  Py_RETURN_NONE;
}

PyObject* backends(PyObject*, PyObject*) { return Py_BuildValue("[ss]", "eager", "framejit"); }

// No backend has an option yet that is not one of torch's modes or a knob of the environment.
PyObject* option_names(PyObject*, PyObject*) { return PyList_New(0); }

PyMethodDef kMethods[] = {
    {"arm", arm, METH_VARARGS, "A callable that calls a Python function with its frame compiled."},
    {"reset", reset, METH_NOARGS, "Drops every compiled entry and zeroes the totals."},
    {"set_thread_enabled", set_thread_enabled, METH_O, "Whether armed calls of this thread compile; returns what held before."},
    {"set_graph_break_error", set_graph_break_error, METH_O, "The exception that a graph break raises under fullgraph=True."},
    {"backends", backends, METH_NOARGS, "Names of backends."},
    {"option_names", option_names, METH_NOARGS, "Names of backend options."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool count_and_log_break(const std::string& reason, const std::string& detail, const std::string& where) {
  frame_hook::BreakReason known{};
  if (!frame_hook::find_break_reason(reason, &known)) return false;
  const frame_hook::BreakRow& row = frame_hook::row_of(known);
  frame_hook::stats().graph_breaks += 1;
  frame_hook::stats().break_reasons[row.name] += 1;
  if (log::enabled(log::Channel::graph_breaks))
    log::emit({log::Channel::graph_breaks, "", "Break", where, {{"reason", row.name}, {"detail", detail}, {"hint", row.hint}}, ""});
  return true;
}

bool add_driver(PyObject* module) {
  PyTypeObject* armed = frame_hook::armed_call_type();
  if (!armed || PyModule_AddObjectRef(module, "ArmedCall", reinterpret_cast<PyObject*>(armed)) < 0) return false;
  if (PyModule_AddFunctions(module, kMethods) < 0) return false;
  const Result<void> usable = frame_hook::initialise_hook();
  if (!usable) {
    if (PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "framejit runs everything plainly on this Python: %s", usable.error().message.c_str()) < 0) return false;
    return true;
  }
  frame_hook::set_frame_handler(&frame_hook::frame_driver());
  return true;
}

}  // namespace framejit::python
