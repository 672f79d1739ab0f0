// runtime/aten/shape_functions.h — operators of users whose results are not as their shape functions say.
//
// A plan is made from what the shape function says, and each call compares. Where one differs, plain Python runs in
// place of the call, and the operator is not captured any more.
#pragma once

#include <stdexcept>
#include <string>

namespace framejit::runtime {

// Operators that torch defines are told by the name alone: "add.Tensor", but "mylib::add".
bool is_torchs_own(const std::string& op);

class ShapeFunctionErred : public std::runtime_error {
 public:
  explicit ShapeFunctionErred(const std::string& op);  // notes it
};

bool has_erred(const std::string& op);  // any thread

}  // namespace framejit::runtime
