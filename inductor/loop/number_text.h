// inductor/loop/number_text.h — a number in the texts that the inductor writes.
#pragma once

#include <cstdint>
#include <string>

namespace framejit::inductor {

inline std::string number(int64_t n) { return std::to_string(n); }

}  // namespace framejit::inductor
