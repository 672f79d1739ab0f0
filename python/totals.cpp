// python/totals.cpp — collects the totals of all layers.
#include "python/totals.h"

#include <map>
#include <string>

#include "frame_hook/resume/stats.h"
#include "guards/cpython/py_ref.h"
#include "runtime/aten/shape_functions.h"
#include "runtime/aten/totals.h"
#include "runtime/kernel_cache.h"

namespace framejit::python {
namespace {

PyObject* object_of(uint64_t count) { return PyLong_FromUnsignedLongLong(count); }
PyObject* object_of(int64_t count) { return PyLong_FromLongLong(count); }
PyObject* object_of(double seconds) { return PyFloat_FromDouble(seconds); }

bool put(PyObject* dict, const char* key, PyObject* value) {
  const PyRef owned = PyRef::steal(value);
  return owned && PyDict_SetItemString(dict, key, owned.get()) == 0;
}

PyObject* object_of(const std::map<std::string, uint64_t>& reasons) {
  PyRef counts = PyRef::steal(PyDict_New());
  for (const auto& [reason, count] : reasons)
    if (!counts || !put(counts.get(), reason.c_str(), object_of(count))) return nullptr;
  return counts.release();
}

// Includes the failures that are counted without the GIL.
frame_hook::Stats counted() {
  frame_hook::Stats counts = frame_hook::stats();
  const uint64_t failed = runtime::backward_totals().failed;
  counts.fallbacks += failed;
  if (failed > 0) counts.fallback_reasons[name_of(Reason::backward_failed)] = failed;
  return counts;
}

}  // namespace

PyObject* stats(PyObject*, PyObject*) {
  const frame_hook::Stats counts = counted();
  const runtime::DerivedTotals derived = runtime::derived_totals();
  const runtime::BackwardTotals& backwards = runtime::backward_totals();
  const runtime::ReplayTotals& replays = runtime::replay_totals();
  const auto kernels = runtime::kernel_cache();
  const auto cache = kernels ? kernels->statistics() : runtime::KernelCache::Statistics{};
  PyRef made = PyRef::steal(PyDict_New());
  bool ok = made.get() != nullptr;
#define COUNTED(name, value, text) ok = ok && put(made.get(), #name, object_of(value));
#define COUNT(name, text) COUNTED(name, counts.name, text)
#define SECONDS(name, text) COUNT(name, text)
#define REASONS(name, text) COUNT(name, text)
#include "frame_hook/resume/totals.def"
#undef REASONS
#undef SECONDS
#undef COUNT
#undef COUNTED
  return ok ? made.release() : nullptr;
}

PyObject* totals(PyObject*, PyObject*) {
  PyRef rows = PyRef::steal(PyList_New(0));
#define COUNT(name, text)                                                                  \
  if (const PyRef row = PyRef::steal(rows ? Py_BuildValue("(ss)", #name, text) : nullptr); \
      !row || PyList_Append(rows.get(), row.get()) < 0)                                    \
    return nullptr;
#define SECONDS(name, text) COUNT(name, text)
#define REASONS(name, text) COUNT(name, text)
#define COUNTED(name, value, text) COUNT(name, text)
#include "frame_hook/resume/totals.def"
#undef COUNTED
#undef REASONS
#undef SECONDS
#undef COUNT
  return rows.release();
}

void reset_totals() {
  runtime::reset_derived_totals();
  runtime::backward_totals().graphs = runtime::backward_totals().runs = runtime::backward_totals().failed = 0;
  runtime::reset_replay_totals();
  runtime::python_shapes() = runtime::executed_shapes() = 0;
}

}  // namespace framejit::python
