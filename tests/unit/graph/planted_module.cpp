// tests/unit/graph/planted_module.cpp — the extension _framejit_planted: a backend that fails as if it had a defect.
//
// Importing it adds the backend "planted", which is "eager" except for what plant() says. It needs neither torch nor
// LLVM.
#include <Python.h>

#include <memory>
#include <string>
#include <utility>

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

// The code of a kernel that no device runs.
struct RefusedKernel final : runtime::KernelCode {};

// Adds a step whose launch fails, as if a GPU's driver had refused it.
runtime::Executable with_refused_launch(runtime::Executable executable) {
  auto kernel = std::make_shared<RefusedKernel>();
  kernel->id = runtime::content_id("planted", "a refused launch");
  executable.kernels.push_back(kernel);
  runtime::KernelStep step;
  step.kernel = static_cast<uint32_t>(executable.kernels.size() - 1);
  step.name = "k0";
  executable.forward.steps.emplace_back(step);
  return executable;
}

class PlantedLoader final : public runtime::KernelLoader {
 public:
  explicit PlantedLoader(runtime::KernelLoader& others) : others_(others) {}
  Result<runtime::LoadedKernel> load(const std::shared_ptr<const runtime::KernelCode>& code,
                                     runtime::DeviceId device) override {
    if (dynamic_cast<const RefusedKernel*>(code.get()) == nullptr) return others_.load(code, device);
    runtime::LoadedKernel refused;
    refused.function = [](void* const*, const int64_t*, const FjScalar*, int64_t, int64_t) -> int64_t { return -719; };
    return refused;
  }

 private:
  runtime::KernelLoader& others_;
};

class PlantedBackend final : public graph::Backend {
 public:
  std::string name() const override { return "planted"; }
  bool takes_core_ops() const override { return eager_->takes_core_ops(); }
  runtime::KernelLoader& loader() override { return loader_; }
  Result<runtime::Executable> compile(const graph::Graph& functional) override {
    const bool is_backward = functional.name.ends_with("_backward");
    FJ_TRY_VOID(fail_if_planted(is_backward ? "backward" : "compile"));
    FJ_TRY(runtime::Executable made, eager_->compile(functional));
    const bool fails = planted().stage == (is_backward ? "run_backward" : "run");
    return fails ? with_refused_launch(std::move(made)) : std::move(made);
  }
  Result<runtime::Executable> derive(const graph::Graph&, const std::vector<bool>&, const std::string&) override {
    FJ_TRY_VOID(fail_if_planted("derive"));
    return runtime::Executable{};
  }

 private:
  std::unique_ptr<graph::Backend> eager_ = graph::make_eager_backend();
  PlantedLoader loader_{eager_->loader()};
};

// plant(stage, reason, text): what the backend does at "compile", "backward" or "derive" from now on. At "run" and
// "run_backward", the plans that it makes hold a step whose launch fails. plant("", "", ""): nothing.
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
