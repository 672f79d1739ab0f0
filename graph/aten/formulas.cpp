#include "graph/aten/formulas.h"

#include <ATen/Functions.h>
#include <ATen/WrapDimUtils.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "graph/aten/sym_node.h"
#include "runtime/aten/history_walk.h"
#include "runtime/aten/torch_version.h"

namespace framejit::graph {
namespace {

namespace generated = torch::autograd::generated;
using torch::autograd::variable_list;

// All elements that equal the result get the same share.
template <class Of>
at::Tensor shared_among_equal(const Of&, const at::Tensor& gradient, const at::Tensor& input,
                              const at::Tensor& result) {
  const at::Tensor takes = at::logical_or(input == result, at::logical_and(input.isnan(), result.isnan()));
  return at::where(takes, gradient / takes.sum(), at::zeros({}, gradient.options()));
}

// gradient times the product of all the others along the dimension: of those before it, and of those after it.
at::Tensor times_all_others(const at::Tensor& gradient, const at::Tensor& input, int64_t dim) {
  const c10::SymInt size = input.sym_size(dim);
  if (size <= 1) return gradient.expand_symint(input.sym_sizes());
  const at::Tensor one = at::ones_like(input.narrow_symint(dim, 0, 1));
  const at::Tensor before = at::cat({one, input.narrow_symint(dim, 0, size - 1)}, dim).cumprod(dim);
  const at::Tensor after = at::cat({one, input.narrow_symint(dim, 1, size - 1).flip(dim)}, dim).cumprod(dim).flip(dim);
  return gradient * (before * after).conj();
}

at::Tensor of_product(const generated::ProdBackward0&, const at::Tensor& gradient, const at::Tensor& self,
                      const at::Tensor& result) {
  const at::Tensor input = self.to(gradient.scalar_type());
  if (input.dim() == 0) return gradient;
  const at::Tensor zeros = (input == 0).sum();
  const at::Tensor others = times_all_others(gradient, input.reshape(-1), 0).view_as(input);
  const at::Tensor none = at::zeros({}, gradient.options());
  return at::where(zeros == 0, gradient * (result / input).conj(), at::where(zeros == 1, others, none));
}

at::Tensor of_product(const generated::ProdBackward1& node, const at::Tensor& gradient, const at::Tensor& self,
                      const at::Tensor& result) {
  const at::Tensor input = self.to(gradient.scalar_type());
  if (input.dim() == 0) return gradient;
  const int64_t dim = at::maybe_wrap_dim(node.dim, input.dim());
  const at::Tensor along = node.keepdim ? gradient : gradient.unsqueeze(dim);
  const at::Tensor product = node.keepdim ? result : result.unsqueeze(dim);
  return at::where((input == 0).any(), times_all_others(along, input, dim), along * (product / input).conj());
}

template <class Of>
using Formula = at::Tensor (*)(const Of&, const at::Tensor& gradient, const at::Tensor& input,
                               const at::Tensor& result);

using Held = Formulas::Node;

// Replaces a node of torch, and keeps it alive for the values that it has saved.
class InPlaceOfTorchs : public torch::autograd::Node {
 public:
  void take_place_of(const Held& torchs) {
    torchs_ = torchs;
    for (const torch::autograd::Edge& edge : torchs->next_edges()) add_next_edge(edge);
    add_input_metadata(torchs->input_metadata(0).zeros_like());
  }
  std::string name() const override { return torchs_->name(); }
  void release_variables() override { torchs_->release_variables(); }

 protected:
  Held torchs_;
};

template <class Of, Formula<Of> formula>
class OurFormula final : public InPlaceOfTorchs {
 public:
  variable_list apply(variable_list&& gradients) override {
    auto& node = static_cast<Of&>(*torchs_);
    const at::Tensor input = node.self_.unpack(), result = node.result_.unpack(torchs_);
    if (!gradients[0].defined()) return {at::Tensor()};
    return {formula(node, gradients[0], input, result)};
  }
};

// The mask of x[..., mask] = values, and the dimension at which it starts. nullopt if there are other indices.
struct Mask {
  at::Tensor mask;
  int64_t dim = 0;
};
std::optional<Mask> only_mask(const generated::IndexPutBackward0& node, const Held& torchs) {
  if (node.indices_released_) return std::nullopt;
  std::optional<Mask> found;
  for (size_t i = 0; i < node.indices_.size(); ++i) {
    const at::Tensor index = node.indices_[i].unpack(torchs);
    if (!index.defined()) continue;
    if (found || index.scalar_type() != at::kBool) return std::nullopt;
    found = {index, static_cast<int64_t>(i)};
  }
  return found;
}

// The formula of x[mask] = values. Torch's formula counts the true elements of the mask to find the size of the values'
// gradient, but that is the size of the values. If one value is stored everywhere, its gradient is the sum.
class OfMaskedWrite final : public InPlaceOfTorchs {
 public:
  variable_list apply(variable_list&& gradients) override {
    auto& node = static_cast<generated::IndexPutBackward0&>(*torchs_);
    if (node.indices_released_) throw std::runtime_error(torch::autograd::ERR_BACKWARD_TWICE);
    const at::Tensor& gradient = gradients[0];
    if (!gradient.defined()) return {at::Tensor(), at::Tensor()};
    const auto [mask, dim] = only_mask(node, torchs_).value();
    const int64_t after = gradient.dim() - dim - mask.dim();
    at::Tensor spread = mask;
    for (int64_t d = 0; d < after; ++d) spread = spread.unsqueeze(-1);
    const at::Tensor zero = at::zeros({}, gradient.options());
    at::Tensor of_self, of_values;
    if (task_should_compute_output(0)) of_self = node.accumulate ? gradient : at::where(spread, zero, gradient);
    if (task_should_compute_output(1)) {
      const std::vector<c10::SymInt>& sizes = node.values_info.sym_sizes;
      const int64_t taken = static_cast<int64_t>(sizes.size()) - after - 1;  // the dimension that the mask selects
      const bool is_shared = taken < 0 || sizes[static_cast<size_t>(taken)] == 1;
      of_values = is_shared ? sum_of_taken(at::where(spread, gradient, zero), mask.dim(), dim)
                            : taken_one_by_one(gradient, mask, dim, sizes[static_cast<size_t>(taken)]);
    }
    return {of_self, of_values};
  }

 private:
  static at::Tensor sum_of_taken(const at::Tensor& gradient, int64_t dims, int64_t dim) {
    std::vector<int64_t> masked(static_cast<size_t>(dims));
    std::iota(masked.begin(), masked.end(), dim);
    return gradient.sum(masked).unsqueeze(dim);
  }
  static at::Tensor taken_one_by_one(const at::Tensor& gradient, const at::Tensor& mask, int64_t dim,
                                     const c10::SymInt& count) {
    const at::Tensor places = at::nonzero_static_symint(mask, count);
    c10::List<std::optional<at::Tensor>> indices;
    for (int64_t d = 0; d < dim; ++d) indices.push_back(std::nullopt);
    for (int64_t d = 0; d < mask.dim(); ++d) indices.push_back(places.select(1, d));
    return at::index(gradient, indices);
  }
};

// The formula of sums and differences with one operand times alpha, if alpha differs from call to call. Torch's formula
// reads alpha, to multiply only if it is not one.
template <class Of>
class OfScaledSum final : public InPlaceOfTorchs {
 public:
  variable_list apply(variable_list&& gradients) override {
    const auto& node = static_cast<const Of&>(*torchs_);
    const at::ScalarType operands[] = {node.self_scalar_type, node.other_scalar_type};
    variable_list found(2);
    for (size_t i = 0; i < 2; ++i)
      if (gradients[0].defined() && task_should_compute_output(i))
        found[i] = as_real_for(operands[i], i == kScaled ? scaled(gradients[0]) : gradients[0]);
    return found;
  }

 private:
  static constexpr size_t kScaled = std::is_same_v<Of, generated::RsubBackward0> ? 0 : 1;

  at::Tensor scaled(const at::Tensor& gradient) const {
    const at::Scalar& alpha = static_cast<const Of&>(*torchs_).alpha;
    const at::Tensor with_sign = std::is_same_v<Of, generated::AddBackward0> ? gradient : -gradient;
    return is_open_float_equal(alpha.toSymFloat(), 1) ? with_sign : with_sign * alpha;
  }
  static at::Tensor as_real_for(at::ScalarType operand, const at::Tensor& gradient) {
    return gradient.is_complex() && !at::isComplexType(operand) ? at::real(gradient) : gradient;
  }
};

// The formula of affine grids. Torch's formula takes no sizes that vary. The grid of an identity, with a column of
// ones, is the base of every grid.
class OfAffineGrid final : public InPlaceOfTorchs {
 public:
  variable_list apply(variable_list&& gradients) override {
    const auto& node = static_cast<generated::AffineGridGeneratorBackward0&>(*torchs_);
    const at::Tensor& gradient = gradients[0];
    if (!gradient.defined()) return {at::Tensor()};
    const int64_t dims = static_cast<int64_t>(node.size.size()) - 2;
    const at::Tensor identity =
        at::eye(dims, dims + 1, gradient.options()).unsqueeze(0).expand_symint({node.size[0], dims, dims + 1});
    const at::Tensor grid = at::affine_grid_generator_symint(identity, node.size, node.align_corners);
    const at::Tensor base = at::cat({grid, at::ones_like(grid.narrow(-1, 0, 1))}, -1);
    return {base.flatten(1, -2).transpose(1, 2).bmm(gradient.flatten(1, -2)).transpose(1, 2)};
  }
};

template <class Ours>
Held in_place_of(const Held& torchs) {
  auto made = runtime::make_autograd_node<Ours>();
  made->take_place_of(torchs);
  return made;
}

// Each of these returns null if torch's formula can stay.
Held made_for_masks(const Held& torchs) {
  const auto* node = dynamic_cast<generated::IndexPutBackward0*>(torchs.get());
  return node != nullptr && only_mask(*node, torchs) ? in_place_of<OfMaskedWrite>(torchs) : nullptr;
}

template <class Of>
Held made_for_open_alpha(const Held& torchs) {
  const auto* node = dynamic_cast<const Of*>(torchs.get());
  const bool is_open =
      node != nullptr && node->alpha.isFloatingPoint() && as_open_float(node->alpha.toSymFloat()).has_value();
  return is_open ? in_place_of<OfScaledSum<Of>>(torchs) : nullptr;
}

Held made_for_varying_grids(const Held& torchs) {
  const auto* node = dynamic_cast<generated::AffineGridGeneratorBackward0*>(torchs.get());
  const auto varies = [](const c10::SymInt& size) { return size.is_symbolic(); };
  return node != nullptr && std::ranges::any_of(node->size, varies) ? in_place_of<OfAffineGrid>(torchs) : nullptr;
}

template <class Of, Formula<Of> formula>
Held made_for(const Held& torchs) {
  return dynamic_cast<Of*>(torchs.get()) != nullptr ? in_place_of<OurFormula<Of, formula>>(torchs) : nullptr;
}

Held ours_for(const Held& torchs) {
  using Make = Held (*)(const Held&);
  constexpr Make kAll[] = {
      made_for<generated::MaxBackward1, shared_among_equal<generated::MaxBackward1>>,
      made_for<generated::MinBackward1, shared_among_equal<generated::MinBackward1>>,
      made_for<generated::MedianBackward0, shared_among_equal<generated::MedianBackward0>>,
      made_for<generated::NanmedianBackward0, shared_among_equal<generated::NanmedianBackward0>>,
      made_for<generated::ProdBackward0, of_product>,
      made_for<generated::ProdBackward1, of_product>,
      made_for_masks,
      made_for_open_alpha<generated::AddBackward0>,
      made_for_open_alpha<generated::SubBackward0>,
      made_for_open_alpha<generated::RsubBackward0>,
      made_for_varying_grids,
  };
  for (const Make make : kAll)
    if (Held made = make(torchs)) return made;
  return nullptr;
}

void fix(at::Scalar& number) {
  if (number.isSymInt()) number = number.toSymInt().guard_int(__FILE__, __LINE__);
  if (number.isSymFloat()) number = number.toSymFloat().guard_float(__FILE__, __LINE__);
}
void fix_integer(at::Scalar& number) {
  if (number.isSymInt()) fix(number);
}

// Makes numbers constant that torch's formulas cannot take as symbols: they ask whether an exponent is zero, take the
// logarithm of a base, or negate an integer.
void fix_numbers(torch::autograd::Node& node) {
  if (auto* one = dynamic_cast<generated::PowBackward0*>(&node)) fix_integer(one->exponent);
  if (auto* of_all = dynamic_cast<generated::ForeachPowBackward0Scalar*>(&node)) fix_integer(of_all->exponent);
  if (auto* of_each = dynamic_cast<generated::ForeachPowBackward1*>(&node))
    std::ranges::for_each(of_each->exponent, fix_integer);
  if (auto* of_base = dynamic_cast<generated::PowBackward2*>(&node)) fix(of_base->self);
  if (auto* of_base = dynamic_cast<generated::ForeachPowBackward2*>(&node)) fix(of_base->self);
  if (auto* zeta = dynamic_cast<generated::SpecialZetaBackward1*>(&node)) fix_integer(zeta->self);
}

}  // namespace

bool keeps_number(const torch::autograd::Node& node) {
  return dynamic_cast<const generated::MulBackward0*>(&node) != nullptr ||
         dynamic_cast<const generated::DivBackward0*>(&node) != nullptr;
}

bool made_views(const torch::autograd::Node& node) {
  return dynamic_cast<const generated::SplitBackward0*>(&node) != nullptr ||
         dynamic_cast<const generated::SplitWithSizesBackward0*>(&node) != nullptr ||
         dynamic_cast<const generated::UnbindBackward0*>(&node) != nullptr;
}

Formulas::Node Formulas::in_place_of(const Node& torchs) const {
  const auto at = ours_.find(torchs.get());
  return at == ours_.end() ? torchs : at->second;
}

void Formulas::replace(Node& node) {
  fix_numbers(*node);
  Node known = in_place_of(node);
  if (known == node)
    if (Node made = ours_for(node)) known = ours_[node.get()] = made;
  node = known;
}

void Formulas::replace(torch::autograd::edge_list& edges) {
  std::vector<torch::autograd::Node*> begin;
  for (torch::autograd::Edge& edge : edges) {
    if (!edge.is_valid()) continue;
    replace(edge.function);
    begin.push_back(edge.function.get());
  }
  // The new nodes are as deep in the history as the old ones.
  runtime::walk_own_history(std::move(begin), [&](torch::autograd::Edge& edge) {
    replace(edge.function);
    return true;
  });
}

}  // namespace framejit::graph
