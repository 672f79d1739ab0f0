// runtime/aten/shape_functions.cpp — the operators whose shape functions were wrong, remembered as long as the process
// lives.
#include "runtime/aten/shape_functions.h"

#include <algorithm>
#include <array>
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

}  // namespace

bool is_users(std::string_view op) {
  static constexpr std::array<std::string_view, 3> kKnown = {"framejit", "mkl", "mkldnn"};
  const size_t end = op.find("::");
  return end != op.npos && std::find(kKnown.begin(), kKnown.end(), op.substr(0, end)) == kKnown.end();
}

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
