// inductor/choices.cpp — the rows, and to which graphs they apply.
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
                     [](const graph::Node& node) { return node.op->name == "convolution"; });
}

// A setting, where it says which, is the user's decision.
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
    return (node.op->name == "mm" || node.op->name == "addmm") &&
           (dtype == DType::kFloat32 || dtype == DType::kBFloat16);
  });
}

}  // namespace

const std::vector<ChoiceRow>& choice_rows() {
  static const std::vector<ChoiceRow> rows = {
#define CHOICE(Type, field, applies, ...)          \
  {#field, &applies, text::parts_of(#__VA_ARGS__), \
   [](Choices& choices, size_t k) { choices.field = static_cast<Type>(k); }},
#include "inductor/choices.def"
#undef CHOICE
  };
  return rows;
}

}  // namespace framejit::inductor
