// runtime/torch_arg.h — arguments of ops that graphs and plans only pass on to torch.
#pragma once

#include <cstdint>

namespace framejit::runtime {

struct None {
  bool operator==(const None&) const = default;
};
// A member of an enumeration of torch: kind 'l' layout, 'm' memory format, 'q' QScheme, 'x' others; value as in c10.
struct TorchEnum {
  char kind;
  int8_t value;
  bool operator==(const TorchEnum&) const = default;
};
// A slot for something without a text form: a torch generator, a Python object. Numbered per graph; the recorder keeps
// the object.
struct OpaqueSlot {
  uint32_t index;
  bool operator==(const OpaqueSlot&) const = default;
};

}  // namespace framejit::runtime
