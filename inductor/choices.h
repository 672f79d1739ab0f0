// inductor/choices.h — decisions of a compile that have alternatives: rows of choices.def.
//
// A default Choices leaves every decision to the cost models. Every combination computes the same program within the
// contract; only speed and the last bits of floats differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace framejit::inductor {

#define CHOICE(Type, field, applies, ...) enum class Type : uint8_t { __VA_ARGS__ };
#include "inductor/choices.def"
#undef CHOICE

struct Choices {
#define CHOICE(Type, field, applies, ...) Type field{};
#include "inductor/choices.def"
#undef CHOICE
};

struct ChoiceRow {
  std::string name;
  bool (*applies)(const graph::Graph& functional);
  std::vector<std::string> alternatives;
  void (*pick)(Choices& choices, size_t alternative);
  size_t (*picked)(const Choices& choices) = nullptr;
};
const std::vector<ChoiceRow>& choice_rows();

// "unroll=twice, threads=more": the choices that differ from the cost model's. choices_of() ignores unknown names.
std::string text_of(const Choices& choices);
Choices choices_of(std::string_view text);

}  // namespace framejit::inductor
