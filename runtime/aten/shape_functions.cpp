// runtime/aten/shape_functions.cpp — the operators whose shape functions were wrong, remembered as long as the process
// lives.
#include "runtime/aten/shape_functions.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>

namespace framejit::runtime {
namespace {

struct Erring {
  std::mutex mutex;
  std::unordered_set<std::string> ops;
};
Erring& erring() {
  static auto* one = new Erring;  // threads may still run plans while the process ends
  return *one;
}

constexpr std::string_view kAten = "aten";
constexpr std::string_view kTorchNamespaces[] = {
#define TORCH_NAMESPACE(name, why) name,
#include "runtime/aten/torch_namespaces.def"
#undef TORCH_NAMESPACE
};

const std::unordered_set<c10::OperatorName>& remembered_operators() {
  static const auto* const all = [] {
    const std::vector<c10::OperatorName> names = c10::Dispatcher::singleton().getAllOpNames();
    return new std::unordered_set<c10::OperatorName>(names.begin(), names.end());
  }();
  return *all;
}

}  // namespace

bool is_users(std::string_view op) {
  const size_t end = op.find("::");
  const std::string_view space = end == op.npos ? kAten : op.substr(0, end);
  if (std::find(std::begin(kTorchNamespaces), std::end(kTorchNamespaces), space) == std::end(kTorchNamespaces))
    return true;
  if (end != op.npos) op.remove_prefix(end + 2);
  const size_t dot = op.find('.');
  const c10::OperatorName name(std::string(space) + "::" + std::string(op.substr(0, dot)),
                               std::string(dot == op.npos ? "" : op.substr(dot + 1)));
  return !remembered_operators().contains(name) && c10::Dispatcher::singleton().findSchema(name).has_value();
}

void remember_operators() { remembered_operators(); }

ShapeFunctionErred::ShapeFunctionErred(const std::string& op)
    : std::runtime_error("a result of " + op + " differs from what its shape function says") {
  const std::lock_guard lock(erring().mutex);
  erring().ops.insert(op);
}

bool has_erred(const std::string& op) {
  const std::lock_guard lock(erring().mutex);
  return erring().ops.contains(op);
}

std::atomic<uint64_t>& python_shapes() {
  static std::atomic<uint64_t> count = 0;
  return count;
}

std::atomic<uint64_t>& executed_shapes() {
  static std::atomic<uint64_t> count = 0;
  return count;
}

}  // namespace framejit::runtime
