// python/module.cpp — the extension framejit._framejit: wires the stages and binds what the package needs
// (_framejit.pyi).
//
// In: calls of python/framejit/*.py. Out: armed callables, totals, log events. Plain C API; errors are Python
// exceptions that say what is accepted.
#include <Python.h>

#include <pthread.h>

#include <cstdlib>
#include <memory>

#include "frame_hook/aten/tensor_frontend.h"
#include "frame_hook/hook/frame_hook.h"
#include "frame_hook/hook/stress.h"
#include "frame_hook/resume/frame_driver.h"
#include "frame_hook/resume/global_mode.h"
#include "frame_hook/resume/stance.h"
#include "frame_hook/resume/stats.h"
#include "frame_hook/resume/trace_all.h"
#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/values/marks.h"
#include "frame_hook/trace/values/originals.h"
#include "graph/compiler.h"
#include "guards/cpython/names.h"
#include "guards/cpython/running_compile.h"
#include "inductor/compile.h"
#include "python/events.h"
#include "python/totals.h"
#include "runtime/aten/gelu_of_aten.h"
#include "runtime/base/config.h"
#include "runtime/base/log.h"
#include "runtime/base/short_lists.h"
#include "runtime/base/warn_once.h"
#include "runtime/eager_gelu.h"
#include "runtime/kernel_cache.h"

extern char** environ;

namespace framejit::python {

namespace {

PyObject* raise_value_error(const Error& error) {
  PyErr_SetString(PyExc_ValueError, error.message.c_str());
  return nullptr;
}

Result<void> open_kernel_cache(const std::string& folder, int64_t megabytes) {
  if (folder.empty()) return runtime::set_kernel_cache(nullptr), Result<void>();
  FJ_TRY(auto cache, runtime::KernelCache::open(folder, megabytes << 20));
  runtime::set_kernel_cache(std::move(cache));
  return {};
}

void warn_of_unused(const std::string& setting, const std::string& expression) {
  if (!expression.empty())
    frame_hook::warn_once(setting + " without FRAMEJIT=1",
                          "ignored; functions that the program itself compiles are not affected");
}

PyObject* configure(PyObject*, PyObject*) {
  auto config = read_config(environ);
  if (!config.ok()) return raise_value_error(config.error());
  const Config& c = config.value();
  auto logs = log::configure(c.logs, c.logs_out, c.logs_format, c.dump_dir);
  if (!logs.ok()) return raise_value_error(logs.error());
  if (auto hook = frame_hook::initialise_hook(); !hook.ok()) {
    PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "framejit compiles nothing and runs everything plainly: %s",
                     hook.error().message.c_str());
    if (PyErr_Occurred()) return nullptr;
  }
  if (const auto opened = open_kernel_cache(c.cache_dir, c.cache_mb); !opened.ok())
    log::emit(log::Kind::CacheRefused, "", {{"reason", opened.error().message}});
  if (const char* const global = std::getenv("FRAMEJIT"); global == nullptr || *global == '\0') {
    warn_of_unused("FRAMEJIT_FILTER", c.filter);
    warn_of_unused("FRAMEJIT_SKIP", c.skip);
  }
  frame_hook::start_stress_from_environment();
  frame_hook::start_trace_all_from_environment();
  Py_RETURN_NONE;
}

PyObject* arm(PyObject*, PyObject* args) {
  PyObject *function, *options;
  if (!PyArg_ParseTuple(args, "OO:arm", &function, &options)) return nullptr;
  frame_hook::FrameDriver::on_request();
  return frame_hook::make_armed_call(function, options);
}

// Counts a compiled module: all modules of a class share one armed call.
PyObject* count_request(PyObject*, PyObject*) {
  frame_hook::FrameDriver::on_request();
  Py_RETURN_NONE;
}

PyObject* set_thread_enabled(PyObject*, PyObject* flag) {
  const int on = PyObject_IsTrue(flag);
  return on < 0 ? nullptr : PyBool_FromLong(frame_hook::set_thread_enabled(on == 1));
}

PyObject* set_kernel_cache(PyObject*, PyObject* args) {
  const char* folder;
  long long megabytes;
  if (!PyArg_ParseTuple(args, "sL:set_kernel_cache", &folder, &megabytes)) return nullptr;
  if (const auto opened = open_kernel_cache(folder, megabytes); !opened.ok()) return raise_value_error(opened.error());
  Py_RETURN_NONE;
}

// For benchmarks/costs.py: replaces rows of inductor/target/costs.def for later compiles.
PyObject* replace_costs(PyObject*, PyObject* rows) {
  const char* text = PyUnicode_AsUTF8(rows);
  if (text == nullptr) return nullptr;
  if (const auto replaced = inductor::replace_costs(text); !replaced.ok()) return raise_value_error(replaced.error());
  Py_RETURN_NONE;
}

// The class of this machine, and its costs by name.
PyObject* costs(PyObject*, PyObject*) {
  const auto target = inductor::target_of_this_machine();
  if (!target.ok()) return raise_value_error(target.error());
  PyRef numbers = PyRef::steal(PyDict_New());
  for (const inductor::CostRow& row : inductor::cost_rows()) {
    const PyRef number = PyRef::steal(PyLong_FromLongLong(target.value().costs.*row.field));
    if (!numbers || !number || PyDict_SetItemString(numbers.get(), row.name, number.get()) < 0) return nullptr;
  }
  return Py_BuildValue("(sN)", inductor::name_of(target.value().machine_class), numbers.release());
}

PyObject* list_of(const std::vector<std::string>& names) {
  PyRef list = PyRef::steal(PyList_New(0));
  for (const std::string& name : names) {
    PyRef text = PyRef::steal(PyUnicode_FromString(name.c_str()));
    if (!text || PyList_Append(list.get(), text.get()) < 0) return nullptr;
  }
  return list.release();
}

PyObject* backends(PyObject*, PyObject*) { return list_of(graph::compiler().backend_names()); }

PyObject* reset(PyObject*, PyObject*) {
  frame_hook::FrameDriver::reset();
  reset_totals();
  Py_RETURN_NONE;
}

PyObject* refresh(PyObject*, PyObject* tensors) {
  return frame_hook::distrust_weights(tensors) ? Py_NewRef(Py_None) : nullptr;
}

PyObject* with_short_lists(PyObject*, PyObject* text) {
  Py_ssize_t size = 0;
  const char* utf8 = PyUnicode_AsUTF8AndSize(text, &size);
  if (!utf8) return nullptr;
  const std::string shown = text::with_short_lists({utf8, static_cast<size_t>(size)});
  return PyUnicode_FromStringAndSize(shown.data(), static_cast<Py_ssize_t>(shown.size()));
}

PyObject* emit_break(PyObject*, PyObject* args) {
  const char *reason, *detail, *at;
  if (!PyArg_ParseTuple(args, "sss:emit_break", &reason, &detail, &at)) return nullptr;
  const std::optional<Reason> row = find_reason(reason);
  if (!row) return PyErr_Format(PyExc_ValueError, "no reason %s", reason);
  frame_hook::count_break(*row, detail, at, "");
  log::warn_reason(*row, detail, at);  // warns as well: nothing at all is compiled
  Py_RETURN_NONE;
}

PyObject* warn_once(PyObject*, PyObject* args) {
  const char *asked, *instead;
  if (!PyArg_ParseTuple(args, "ss:warn_once", &asked, &instead)) return nullptr;
  frame_hook::warn_once(asked, instead);
  Py_RETURN_NONE;
}

PyObject* enable_global(PyObject*, PyObject*) {
  if (!config().enabled) Py_RETURN_NONE;  // FRAMEJIT=false
  if (config().trace_all)
    return raise_value_error(
        {Reason::bad_setting,
         "FRAMEJIT=1 and FRAMEJIT_TRACE_ALL cannot be set together: both decide how every frame runs"});
  if (config().stress >= 0)
    return raise_value_error(
        {Reason::bad_setting,
         "FRAMEJIT=1 and FRAMEJIT_STRESS cannot be set together: both decide how every frame runs"});
  frame_hook::GlobalModeSettings settings;
  settings.min_calls = config().min_calls;
  settings.filter = config().filter;
  settings.skip = config().skip;
  auto enabled = frame_hook::enable_global_mode(std::move(settings));
  if (!enabled.ok()) return raise_value_error(enabled.error());
  Py_RETURN_NONE;
}

// At exit.
PyObject* report_vain_filter(PyObject*, PyObject*) {
  frame_hook::report_vain_filter();
  Py_RETURN_NONE;
}

// For tests: they write docs/ops.md.
PyObject* treatment_of(PyObject*, PyObject* op) {
  const char* name = PyUnicode_AsUTF8(op);
  return name == nullptr ? nullptr : PyUnicode_FromString(inductor::treatment_of(name));
}

// For tests: whether a row that names a member of a module believes an object.
PyObject* is_original(PyObject*, PyObject* args) {
  PyObject* object;
  const char *module, *path;
  if (!PyArg_ParseTuple(args, "Oss:is_original", &object, &module, &path)) return nullptr;
  return PyBool_FromLong(frame_hook::is_original(object, module, path));
}

PyMethodDef methods[] = {
    {"configure", configure, METH_NOARGS, nullptr},
    {"arm", arm, METH_VARARGS, nullptr},
    {"count_request", count_request, METH_NOARGS, nullptr},
    {"set_kernel_cache", set_kernel_cache, METH_VARARGS, nullptr},
    {"set_thread_enabled", set_thread_enabled, METH_O, nullptr},
    {"enable_global", enable_global, METH_NOARGS, nullptr},
    {"report_vain_filter", report_vain_filter, METH_NOARGS, nullptr},
    {"backends", backends, METH_NOARGS, nullptr},
    {"replace_costs", replace_costs, METH_O, nullptr},
    {"costs", costs, METH_NOARGS, nullptr},
    {"treatment_of", treatment_of, METH_O, nullptr},
    {"is_original", is_original, METH_VARARGS, nullptr},
    {"stats", stats, METH_NOARGS, nullptr},
    {"totals", totals, METH_NOARGS, nullptr},
    {"reset", reset, METH_NOARGS, nullptr},
    {"refresh", refresh, METH_O, nullptr},
    {"add_listener", add_listener, METH_O, nullptr},
    {"remove_listener", remove_listener, METH_O, nullptr},
    {"emit_break", emit_break, METH_VARARGS, nullptr},
    {"with_short_lists", with_short_lists, METH_O, nullptr},
    {"warn_once", warn_once, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_framejit", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

bool wait_for_compiles_before_forks() {
  static PyMethodDef before{"before_fork", [](PyObject*, PyObject*) { return before_fork(), Py_NewRef(Py_None); },
                            METH_NOARGS, nullptr};
  static PyMethodDef after{"after_fork",
                           [](PyObject*, PyObject*) { return after_fork_in_parent(), Py_NewRef(Py_None); }, METH_NOARGS,
                           nullptr};
  const PyRef os = PyRef::steal(PyImport_ImportModule("os")), none = PyRef::steal(PyTuple_New(0));
  const PyRef function = PyRef::steal(os ? PyObject_GetAttrString(os.get(), "register_at_fork") : nullptr);
  const PyRef hooks = PyRef::steal(Py_BuildValue("{s:N,s:N}", "before", PyCFunction_New(&before, nullptr),
                                                 "after_in_parent", PyCFunction_New(&after, nullptr)));
  return function && none && hooks && PyRef::steal(PyObject_Call(function.get(), none.get(), hooks.get()));
}

bool initialise(PyObject* module) {
  if (!frame_hook::install_tensor_frontend()) return false;
  frame_hook::take_rows();
  graph::compiler().add_backend("eager", graph::make_eager_backend);
  graph::compiler().add_backend("framejit", [] { return inductor::make_inductor_backend(); });
  graph::compiler().add_backend(
      "interp", [] { return inductor::make_inductor_backend({.fuse = false, .target = inductor::Target::kInterp}); });
  runtime::set_gelu_reader(runtime::gelu_of_aten);
  frame_hook::set_frame_handler(&frame_hook::frame_driver());
  frame_hook::look_for_stance_in(PyImport_GetModuleDict());
  pthread_atfork(nullptr, nullptr, frame_hook::forget_running_compile);
  if (!wait_for_compiles_before_forks()) return false;
  PyRef error = PyRef::steal(PyErr_NewExceptionWithDoc(
      "framejit.GraphBreakError", "A graph break in code compiled with fullgraph=True.", PyExc_RuntimeError, nullptr));
  if (!error || PyModule_AddObjectRef(module, "GraphBreakError", error.get()) < 0) return false;
  frame_hook::set_graph_break_error(error.get());
  for (const auto& [name, mark] :
       {std::pair("DYNAMIC_MARK", frame_hook::kDynamicMark), std::pair("STATIC_MARK", frame_hook::kStaticMark),
        std::pair("STATIC_ADDRESS_MARK", frame_hook::kStaticAddressMark),
        std::pair("DISABLED_MARK", frame_hook::kDisabledMark),
        std::pair("TORCH_DISABLED_MARK", frame_hook::kTorchDisabledMark)})
    if (PyModule_AddStringConstant(module, name, mark) < 0) return false;
  auto* const armed_call = reinterpret_cast<PyObject*>(frame_hook::armed_call_type());
  if (!armed_call || PyModule_AddObjectRef(module, "ArmedCall", armed_call) < 0) return false;
  return true;
}

}  // namespace

}  // namespace framejit::python

PyMODINIT_FUNC PyInit__framejit() {
  using namespace framejit;
  PyRef module = PyRef::steal(PyModule_Create(&python::definition));
  if (!module || !python::initialise(module.get())) return nullptr;
  return module.release();
}
