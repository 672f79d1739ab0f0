// runtime/aten/shape_functions.h — operators of users whose results contradict their shape functions.
//
// A plan is made from the answer of the shape function, and each call compares. If a result differs, plain Python runs
// in place of the call, and the operator is not captured any more.
#pragma once

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace framejit::runtime {

// Torch's operators have no namespace ("add.Tensor"), or one of torch_namespaces.def. All others are users', and so are
// those that were registered after remember_operators().
bool is_users(std::string_view op);
void remember_operators();  // of torch, and ours: the extension calls it when it loads, is_users() at the latest

class ShapeFunctionErred : public std::runtime_error {
 public:
  explicit ShapeFunctionErred(const std::string& op);  // records it
};

bool has_erred(const std::string& op);  // in any thread

// Calls of shape functions that are written in Python, since import or reset.
std::atomic<uint64_t>& python_shapes();
// Runs of ops on zeros while compiling, for the shapes of their results, since import or reset.
std::atomic<uint64_t>& executed_shapes();

}  // namespace framejit::runtime
