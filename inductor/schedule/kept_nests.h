// inductor/schedule/kept_nests.h — pairs of nests that could have been fused but were not, with the reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace framejit::inductor {

enum class KeptNests : uint8_t {
#define KEPT_NESTS(name, text) name,
#include "inductor/schedule/kept_nests.def"
#undef KEPT_NESTS
};
const char* name_of(KeptNests reason);
const char* text_of(KeptNests reason);

struct KeptNestPair {
  std::string first, second;  // names of nests
  KeptNests reason;
  friend bool operator==(const KeptNestPair&, const KeptNestPair&) = default;
};

// What the fusion passes note as they go; null if nobody asks.
using KeptNestPairs = std::vector<KeptNestPair>;
void note(KeptNestPairs* notes, const std::string& first, const std::string& second, KeptNests reason);

}  // namespace framejit::inductor
