#include "graph/aten/python_kernels.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <span>
#include <unordered_set>

#include "graph/aten/composites.h"
#include "graph/aten/recorder.h"
#include "runtime/aten/shape_functions.h"

namespace framejit::graph {
namespace {

using c10::DispatchKey;

constexpr std::string_view kTorchsOps = "aten::";
constexpr std::string_view kOnlyBoxed = ":: (none) [ boxed ]";  // as a kernel in Python is shown

// The keys by which tensors that may be captured find their kernels.
constexpr DispatchKey kCaptured[] = {
    DispatchKey::CPU,         DispatchKey::CUDA,         DispatchKey::AutogradCPU,     DispatchKey::AutogradCUDA,
    DispatchKey::AutocastCPU, DispatchKey::AutocastCUDA, DispatchKey::ADInplaceOrView, DispatchKey::BackendSelect,
    DispatchKey::Conjugate,   DispatchKey::Negative,     DispatchKey::ZeroTensor};

bool is_captured(DispatchKey key) {  // it may stand for several
  const c10::DispatchKeySet meant = c10::getRuntimeDispatchKeySet(key);
  return std::ranges::any_of(kCaptured, [&](DispatchKey one) { return meant.has(one); });
}

// What torch.library.register_autograd() registers under Autograd is Python code of torch.
bool runs_while_recording(DispatchKey key) {
  return key == DispatchKey::CompositeImplicitAutograd || key == DispatchKey::BackendSelect ||
         key == DispatchKey::AutogradCPU || key == DispatchKey::AutogradCUDA;
}

// Where the active kernel was registered: a file and a line. The functions of torch/library.py register what their
// callers wrote.
bool is_of_program(const c10::OperatorHandle& op, DispatchKey key, std::string_view folder) {
  const std::string state = op.dumpState();
  const std::string before =
      "\n" + std::string(c10::toString(key)) + (c10::isAliasDispatchKey(key) ? "[alias]" : "") + ": registered at ";
  const size_t begin = state.find(before);
  if (begin == state.npos) return false;
  const std::string_view file = std::string_view(state).substr(begin + before.size());
  if (!file.substr(0, file.find('\n')).ends_with(kOnlyBoxed)) return false;  // of C++
  return !file.starts_with(folder) || file.substr(folder.size()).starts_with("library.py:");
}

void python_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  for (const c10::IValue& arg : std::span(stack->data() + stack->size() - count, count))
    each_tensor(arg, [&](const at::Tensor& tensor) {
      if (TracedTensorImpl* const traced = as_traced(tensor))
        traced->recorder().fail({Reason::unsupported_op, op.schema().name() + ", whose kernel is Python code,"});
    });
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kCompositesKey), stack);
}

void refuse_while_recording(const c10::OperatorHandle& op, const std::string& space) {
  static auto* const refused = new std::unordered_set<c10::OperatorName>;
  if (!refused->insert(op.operator_name()).second) return;
  auto* library = new torch::Library(torch::Library::IMPL, space, kCompositesKey, __FILE__, __LINE__);  // never removed
  library->impl(c10::toString(op.operator_name()).c_str(), torch::CppFunction::makeFromBoxedFunction<&python_kernel>());
}

}  // namespace

std::string replaced_by(std::string_view row, std::string_view folder) {
  const size_t name_at = row.find('/'), key_at = row.rfind('/');
  const std::string key_text(row.substr(key_at + 1));
  if (name_at == key_at || key_text == c10::toString(DispatchKey::Meta)) return "";  // most rows
  const DispatchKey key = key_text.empty() ? DispatchKey::CompositeImplicitAutograd : c10::parseDispatchKey(key_text);
  if (!is_captured(key)) return "";
  const std::string space(row.substr(0, name_at)), name(row.substr(name_at + 1, key_at - name_at - 1));
  const size_t dot = name.find('.');
  const auto op = c10::Dispatcher::singleton().findSchema(
      {space + "::" + name.substr(0, dot), dot == name.npos ? "" : name.substr(dot + 1)});
  if (!op || !is_of_program(*op, key, folder)) return "";
  const std::string full = c10::toString(op->operator_name());
  if (full.starts_with(kTorchsOps) && !runtime::is_users(name)) return full + " (" + key_text + ")";
  if (runs_while_recording(key)) refuse_while_recording(*op, space);
  return "";
}

}  // namespace framejit::graph
