// graph/aten/composites.cpp — see composites.h. Each gives the results of the ATen function of its name, and leaves
// unusual calls, errors and calls with constant sizes to that function. For attention, it drops an argument.
#include "graph/aten/composites.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/broadcast_to.h>
#include <ATen/ops/diagonal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/reshape.h>
#include <ATen/ops/take_along_dim.h>
#include <ATen/ops/zeros.h>
#include <ATen/WrapDimUtils.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "graph/aten/meta_call.h"
#include "graph/aten/true_masks.h"
#include "graph/op_lists.h"

namespace framejit::graph {
namespace {

using c10::IValue;
using c10::SymInt;
using SymInts = std::vector<SymInt>;

bool is_symbolic(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides(); }

// floor(size * scale), computed as doubles do: exact if the scale is a fraction of a small power of two.
std::optional<SymInt> scaled(const SymInt& size, double scale) {
  constexpr double kMost = 1 << 12;
  if (!(scale > 0) || scale > kMost) return std::nullopt;
  for (int64_t parts = 1; parts <= 64; parts *= 2)
    if (const double whole = scale * static_cast<double>(parts); whole == std::floor(whole)) {
      const SymInt product = size * SymInt(static_cast<int64_t>(whole));
      return parts == 1 ? product : product / SymInt(parts);
    }
  return std::nullopt;
}

// upsample_*.vec(input, output_size?, [align_corners], scale_factors?): calls the overload without a name, with sizes
// and scales.
bool upsample(const c10::OperatorHandle& op, torch::jit::Stack& args) {
  const at::Tensor& input = args[0].toTensor();
  const size_t rank = static_cast<size_t>(input.dim());
  const bool by_size = !args[1].isNone(), by_scale = !args.back().isNone();
  if (by_size == by_scale || rank < 3 || (!is_symbolic(input) && !args[1].isSymIntList())) return false;
  SymInts sizes;
  std::vector<double> scales;
  if (by_size) sizes = args[1].toSymIntVector();
  else scales = args.back().toDoubleVector();
  if ((by_size ? sizes.size() : scales.size()) != rank - 2) return false;
  for (size_t i = 0; i < scales.size(); ++i) {
    auto size = scaled(input.sym_size(static_cast<int64_t>(i) + 2), scales[i]);
    if (!size) return false;
    sizes.push_back(std::move(*size));
  }
  const auto plain = c10::Dispatcher::singleton().findSchema({op.schema().name(), ""});
  if (!plain) return false;
  torch::jit::Stack stack{args[0], IValue(c10::SymIntArrayRef(sizes))};
  stack.insert(stack.end(), args.begin() + 2, args.end() - 1);
  for (size_t i = 0; i < rank - 2; ++i) stack.push_back(by_scale ? IValue(scales[i]) : IValue());
  plain->callBoxed(stack);
  args = std::move(stack);
  return true;
}

bool kron(const c10::OperatorHandle&, torch::jit::Stack& args) {
  const at::Tensor a = args[0].toTensor(), b = args[1].toTensor();
  if (!is_symbolic(a) && !is_symbolic(b)) return false;
  const int64_t rank = std::max(a.dim(), b.dim());
  SymInts of_a, of_b, sizes;
  for (int64_t i = 0; i < rank; ++i) {
    const auto size = [&](const at::Tensor& t) {
      return i < rank - t.dim() ? SymInt(1) : t.sym_size(i - (rank - t.dim()));
    };
    of_a.insert(of_a.end(), {size(a), 1});
    of_b.insert(of_b.end(), {1, size(b)});
    sizes.push_back(size(a) * size(b));
  }
  const at::Tensor product = at::mul(at::reshape_symint(a, of_a), at::reshape_symint(b, of_b));
  args = {IValue(at::reshape_symint(product, sizes))};
  return true;
}

bool pad_sequence(const c10::OperatorHandle&,
                  torch::jit::Stack& args) {  // sequences, batch_first, padding_value, padding_side
  const std::vector<at::Tensor> list = args[0].toTensorVector();
  const bool batch_first = args[1].toBool(), left = args[3].toStringRef() == "left";
  if (list.empty() || std::none_of(list.begin(), list.end(), is_symbolic) ||
      (!left && args[3].toStringRef() != "right"))
    return false;
  if (std::any_of(list.begin(), list.end(), [](const at::Tensor& t) { return t.dim() == 0; })) return false;
  SymInt longest = list[0].sym_size(0);
  for (const at::Tensor& t : list)
    if (t.sym_size(0) > longest) longest = t.sym_size(0);
  SymInts sizes{static_cast<int64_t>(list.size()), longest};
  if (!batch_first) std::swap(sizes[0], sizes[1]);
  for (int64_t d = 1; d < list[0].dim(); ++d) sizes.push_back(list[0].sym_size(d));
  const at::Tensor out = at::full_symint(sizes, args[2].toDouble(), list[0].options());
  for (size_t i = 0; i < list.size(); ++i) {
    const SymInt length = list[i].sym_size(0), start = left ? longest - length : SymInt(0);
    out.select(batch_first ? 0 : 1, static_cast<int64_t>(i)).narrow_symint(0, start, length).copy_(list[i]);
  }
  args = {IValue(out)};
  return true;
}

// Newer versions of torch wrap indices that are out of range, negative ones too.
bool wraps_indices() {
  static const bool wraps = [] {
    const c10::impl::ExcludeDispatchKeyGuard no_recording(
        c10::DispatchKeySet({kCompositesKey, c10::DispatchKey::Fake}));
    try {
      at::take_along_dim(at::zeros({1}), at::full({1}, -1, at::kLong), 0);
    } catch (const c10::Error&) { return false; }
    return true;
  }();
  return wraps;
}

bool take_along_dim(const c10::OperatorHandle&, torch::jit::Stack& args) {  // self, indices, dim?
  const at::Tensor self = args[0].toTensor(), indices = args[1].toTensor();
  if ((!is_symbolic(self) && !is_symbolic(indices)) || args[2].isNone() || self.dim() != indices.dim() ||
      indices.scalar_type() != at::kLong)
    return false;
  const int64_t dim = at::maybe_wrap_dim(args[2].toInt(), self.dim());
  SymInts of_self = self.sym_sizes().vec(), of_indices = indices.sym_sizes().vec();
  of_self[static_cast<size_t>(dim)] = indices.sym_size(dim);
  of_indices[static_cast<size_t>(dim)] = self.sym_size(dim);
  const at::Tensor wide_indices = at::broadcast_to_symint(indices, at::infer_size_symint(of_self, indices.sym_sizes()));
  const at::Tensor wide_self = at::broadcast_to_symint(self, at::infer_size_symint(of_indices, self.sym_sizes()));
  const SymInt size = wide_self.sym_size(dim);
  args = {IValue(
      at::gather(wide_self, dim, wraps_indices() ? at::remainder(wide_indices, c10::Scalar(size)) : wide_indices))};
  return true;
}

bool fill_diagonal(const c10::OperatorHandle&, torch::jit::Stack& args) {  // self, value, wrap
  const at::Tensor self = args[0].toTensor();
  if (!is_symbolic(self) || self.dim() != 2 || args[2].toBool()) return false;
  at::diagonal(self).fill_(args[1].toScalar());
  args = {IValue(self)};
  return true;
}

// Without gradients on a CPU, torch's own code calls the kernel on the tensor's memory. The kernel for two dimensions
// computes the same maxima.
bool max_pool1d(const c10::OperatorHandle&, torch::jit::Stack& args) {  // self, kernel_size, stride, padding, dilation,
                                                                        // ceil_mode
  const at::Tensor self = args[0].toTensor();
  const auto number = [&](size_t i) -> std::optional<int64_t> {
    const auto list = args[i].toIntVector();
    return list.size() == 1 ? std::optional(list[0]) : std::nullopt;
  };
  const auto kernel = number(1), stride = args[2].toIntVector().empty() ? kernel : number(2), padding = number(3),
             dilation = number(4);
  if (!kernel || !stride || !padding || !dilation || *kernel <= 0 || *stride <= 0 || *dilation <= 0) return false;
  const bool is_asked_for_gradients = self.requires_grad() && at::GradMode::is_enabled();
  if (is_asked_for_gradients || !self.is_cpu() || !self.is_floating_point() || self.dim() < 2 || self.dim() > 3 ||
      *padding < 0 || *padding > *kernel / 2 || self.sym_size(-1) == 0 || self.sym_size(-2) == 0)
    return false;
  const at::AutoDispatchBelowADInplaceOrView below;  // the result is no view
  const at::Tensor pooled = std::get<0>(at::max_pool2d_with_indices(
      self.contiguous().unsqueeze(-2), {1, *kernel}, {1, *stride}, {0, *padding}, {1, *dilation}, args[5].toBool()));
  args = {IValue(pooled.squeeze(-2))};
  return true;
}

void settle_all(const torch::jit::Stack& args) {
  for (const IValue& arg : args)
    each_tensor(arg, [](const at::Tensor& tensor) {
      if (TracedTensorImpl* const traced = as_traced(tensor)) traced->settle();
    });
}

// Straight to the recorder: at the keys in between, the op would be split into its parts.
bool recurrent_layer(const c10::OperatorHandle& op, torch::jit::Stack& args) {
  if (!stays_whole(op_info_of(op), args)) {
    // With symbols, torch warns, and computes the layer in parts instead of as one op of a library.
    if (is_in(OpList::warns_of_symbols, op_info_of(op).def->name)) settle_all(args);
    return false;
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Fake), &args);
  return true;
}

// query, key, value, mask, ...: drops a mask that excludes nothing, if torch takes a mask of this shape.
bool attention(const c10::OperatorHandle& op, torch::jit::Stack& args) {
  if (!args[3].isTensor() || args[5].toBool()) return false;  // a mask and is_causal: an error
  const at::Tensor query = args[0].toTensor(), key = args[1].toTensor(), mask = args[3].toTensor();
  if (query.dim() < 2 || key.dim() < 2 || mask.dim() < 2 || mask.dim() > query.dim() || !is_true_everywhere(mask))
    return false;
  SymInts scores = query.sym_sizes().vec();
  scores.back() = key.sym_size(-2);
  for (int64_t d = 1; d <= mask.dim(); ++d)
    if (mask.sym_size(-d) != 1 && mask.sym_size(-d) != scores[scores.size() - static_cast<size_t>(d)]) return false;
  args[3] = IValue();
  op.callBoxed(args);
  return true;
}

using Composite = bool (*)(const c10::OperatorHandle& op, torch::jit::Stack& args);  // true: the results have replaced
                                                                                     // args

template <Composite composite>
void whole(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  torch::jit::Stack args(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  if (!composite(op, args)) {
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kCompositesKey), stack);
    return;
  }
  torch::jit::drop(*stack, count);
  stack->insert(stack->end(), args.begin(), args.end());
}

}  // namespace

bool stays_whole(const OpInfo& info, std::span<const IValue> args) {
  if (!is_in(OpList::recurrent_layers, info.def->name)) return false;
  const bool draws = args[6].toBool() && args[5].toDouble() > 0;  // train, dropout
  bool on_cpu = true;
  for (const IValue& arg : args)
    each_tensor(arg, [&](const at::Tensor& tensor) { on_cpu = on_cpu && tensor.is_cpu(); });
  return on_cpu && !draws && !at::GradMode::is_enabled() && !at::autocast::is_autocast_enabled(at::kCPU);
}

void register_composites() {
  // Never removed, like the recorder's own.
  auto* fallthrough = new torch::Library(torch::Library::IMPL, "_", kCompositesKey, __FILE__, __LINE__);
  fallthrough->fallback(torch::CppFunction::makeFallthrough());
  auto* library = new torch::Library(torch::Library::IMPL, "aten", kCompositesKey, __FILE__, __LINE__);
  for (std::string_view name : ops_of(OpList::sized_by_scales))
    library->impl(std::string(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&whole<upsample>>());
  for (std::string_view name : ops_of(OpList::recurrent_layers))
    library->impl(std::string(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&whole<recurrent_layer>>());
  library->impl("scaled_dot_product_attention", torch::CppFunction::makeFromBoxedFunction<&whole<attention>>());
  library->impl("max_pool1d", torch::CppFunction::makeFromBoxedFunction<&whole<max_pool1d>>());
  library->impl("kron", torch::CppFunction::makeFromBoxedFunction<&whole<kron>>());
  library->impl("pad_sequence", torch::CppFunction::makeFromBoxedFunction<&whole<pad_sequence>>());
  library->impl("fill_diagonal_", torch::CppFunction::makeFromBoxedFunction<&whole<fill_diagonal>>());
  library->impl("take_along_dim", torch::CppFunction::makeFromBoxedFunction<&whole<take_along_dim>>());
}

}  // namespace framejit::graph
