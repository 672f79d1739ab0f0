// runtime/aten/shape_functions.h — operators of users whose results are not as their shape functions say.
//
// A plan is made from what the shape function says, and each call compares. Where one differs, plain Python runs in
// place of the call, and the operator is not captured any more.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace framejit::runtime {

// Operators of torch have no namespace ("add.Tensor"), but for those of packed weights; ours are "framejit::". The rest
// are users'.
bool is_users(std::string_view op);

class ShapeFunctionErred : public std::runtime_error {
 public:
  explicit ShapeFunctionErred(const std::string& op);  // notes it
};

bool has_erred(const std::string& op);  // any thread

}  // namespace framejit::runtime
