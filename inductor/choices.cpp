// inductor/choices.cpp — the rows, and the graphs to which they apply.
#include "inductor/choices.h"

#include <algorithm>

#include "inductor/lowering/wide_products.h"
#include "runtime/base/config.h"
#include "runtime/base/text.h"

namespace framejit::inductor {
namespace {

bool always(const graph::Graph&) { return true; }

bool has_convolutions(const graph::Graph& functional) {
  return std::any_of(functional.nodes.begin(), functional.nodes.end(),
                     [](const graph::Node& node) { return node.op->is(graph::KnownOp::convolution); });
}

// If a setting decides it, there is nothing to choose.
bool has_bfloat16_products(const graph::Graph& functional) {
  if (config().bf16_products != "auto") return false;
  return std::any_of(functional.nodes.begin(), functional.nodes.end(), [&](const graph::Node& node) {
    return is_widened_product(node.op->name) && functional.meta(node.results[0]).dtype == DType::kBFloat16;
  });
}

bool has_products(const graph::Graph& functional) {
  if (config().products != "auto") return false;
  return std::any_of(functional.nodes.begin(), functional.nodes.end(), [&](const graph::Node& node) {
    const DType dtype = functional.meta(node.results[0]).dtype;
    return (node.op->is(graph::KnownOp::mm) || node.op->is(graph::KnownOp::addmm)) &&
           (dtype == DType::kFloat32 || dtype == DType::kBFloat16);
  });
}

}  // namespace

const std::vector<ChoiceRow>& choice_rows() {
  static const std::vector<ChoiceRow> rows = {
#define CHOICE(Type, field, applies, ...)                                    \
  {#field, &applies, text::parts_of(#__VA_ARGS__),                           \
   [](Choices& choices, size_t k) { choices.field = static_cast<Type>(k); }, \
   [](const Choices& choices) { return static_cast<size_t>(choices.field); }},
#include "inductor/choices.def"
#undef CHOICE
  };
  return rows;
}

std::string text_of(const Choices& choices) {
  std::string text;
  for (const ChoiceRow& row : choice_rows())
    if (const size_t k = row.picked(choices); k != 0)
      text += (text.empty() ? "" : ", ") + row.name + "=" + row.alternatives[k];
  return text;
}

Choices choices_of(std::string_view text) {
  Choices choices;
  for (const std::string& part : text::parts_of(text))
    for (const ChoiceRow& row : choice_rows())
      for (size_t k = 1; k < row.alternatives.size(); ++k)
        if (part == row.name + "=" + row.alternatives[k]) row.pick(choices, k);
  return choices;
}

}  // namespace framejit::inductor
