// tests/unit/graph/planted_module.cpp — the extension _framejit_planted: a backend that fails as a defect of ours
// would.
//
// Importing it adds the backend "planted", which is "eager" except for what plant() says. It needs neither torch nor
// LLVM.
#include <Python.h>

#include <memory>
#include <string>

#include "graph/backend.h"
#include "graph/compiler.h"

using namespace framejit;

namespace {

struct Defect {
  std::string stage, reason, text;
};
Defect& planted() {
  static auto* const defect = new Defect;
  return *defect;
}

// An Error with the requested row; "internal_error" throws what FJ_ASSERT throws.
Result<void> fail_if_planted(const std::string& stage) {
  const Defect& defect = planted();
  if (defect.stage != stage) return {};
  const std::optional<Reason> reason = find_reason(defect.reason);
  if (reason && *reason != Reason::internal_error) return Error{*reason, defect.text};
  throw InternalError(defect.text);
}

class PlantedBackend final : public graph::Backend {
 public:
  std::string name() const override { return "planted"; }
  bool takes_core_ops() const override { return eager_->takes_core_ops(); }
  runtime::KernelLoader& loader() override { return eager_->loader(); }
  Result<runtime::Executable> compile(const graph::Graph& functional) override {
    FJ_TRY_VOID(fail_if_planted(functional.name.ends_with("_backward") ? "backward" : "compile"));
    return eager_->compile(functional);
  }
  Result<runtime::Executable> derive(const graph::Graph&, const std::vector<bool>&, const std::string&) override {
    FJ_TRY_VOID(fail_if_planted("derive"));
    return runtime::Executable{};
  }

 private:
  std::unique_ptr<graph::Backend> eager_ = graph::make_eager_backend();
};

// plant(stage, reason, text): what the backend does at "compile", "backward" or "derive" from now on; plant("", "",
// ""): nothing.
PyObject* plant(PyObject*, PyObject* args) {
  const char *stage, *reason, *text;
  if (!PyArg_ParseTuple(args, "sss:plant", &stage, &reason, &text)) return nullptr;
  planted() = {stage, reason, text};
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {{"plant", plant, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_framejit_planted", nullptr, -1, methods};

}  // namespace

PyMODINIT_FUNC PyInit__framejit_planted() {
  graph::compiler().add_backend("planted", [] { return std::make_unique<PlantedBackend>(); });
  return PyModule_Create(&definition);
}
