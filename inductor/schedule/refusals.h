// inductor/schedule/refusals.h — pairs of nests that could have been fused but were not, with the reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace framejit::inductor {

enum class Refusal : uint8_t {
#define REFUSAL(name, text) name,
#include "inductor/schedule/refusals.def"
#undef REFUSAL
};
const char* name_of(Refusal refusal);
const char* text_of(Refusal refusal);

struct RefusedPair {
  std::string first, second;  // names of nests
  Refusal reason;
  friend bool operator==(const RefusedPair&, const RefusedPair&) = default;
};

// What the fusion passes note as they go; null if nobody asks.
using RefusalNotes = std::vector<RefusedPair>;
void note(RefusalNotes* notes, const std::string& first, const std::string& second, Refusal reason);

}  // namespace framejit::inductor
