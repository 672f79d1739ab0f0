// guards/change.h — what differs in a call that no compiled form fits, as the user reads it: a row of changes.def.
#pragma once

#include <cstdint>
#include <string>

namespace framejit::guards {

enum class ChangeKind : uint8_t {
#define CHANGE(name, text, hint) name,
#include "guards/changes.def"
#undef CHANGE
};

struct Change {
  ChangeKind kind;
  std::string text;  // "x.size(0) was 3, now it is 4"
  std::string hint;  // what to do
};

// What differs in a tensor: "size(0)" was "3", now it is "4".
struct TensorDifference {
  ChangeKind kind;
  std::string what, was, now;
  std::string relation = "==";  // of `what` to `was`, in the guard
  int dim = -1;
};

}  // namespace framejit::guards
