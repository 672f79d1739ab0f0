// guards/aten/tensor_facts.cpp — the tensor guard: loads and compares; no virtual call, no allocation.
#include "guards/aten/tensor_facts.h"

#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "graph/int64_range.h"
#include "guards/describe.h"

namespace framejit::guards {
namespace {

constexpr int64_t kAnyOffset = -1;

const c10::TensorImpl* impl_of(PyObject* tensor) { return THPVariable_Unpack(tensor).unsafeGetTensorImpl(); }

struct GradFacts {
  bool requires_grad = false, is_leaf = true, has_tangent = false;
  friend bool operator==(const GradFacts&, const GradFacts&) = default;
};

inline GradFacts grad_facts(const c10::TensorImpl& impl) {
  const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(impl.autograd_meta());
  if (!meta) return {};
  const bool has_fn = meta->grad_fn_ != nullptr;
  // A view that was made without grad mode needs a gradient as long as its base does.
  const bool asks = meta->requires_grad_ || has_fn || (meta->is_view_ && meta->requires_grad());
  return {asks, !has_fn, meta->fw_grad_ && !meta->fw_grad_->empty()};
}

// What decides whether a tensor can be traced at all.
struct TensorKind {
  PyTypeObject* type;  // Tensor and Parameter live as long as torch; the guard holds any other
  c10::DispatchKeySet keys;
  caffe2::TypeMeta dtype;

  static TensorKind of(PyObject* tensor) {
    return {Py_TYPE(tensor), impl_of(tensor)->key_set(), impl_of(tensor)->dtype()};
  }
  bool is_of(PyObject* tensor) const {
    return Py_TYPE(tensor) == type && impl_of(tensor)->key_set() == keys && impl_of(tensor)->dtype() == dtype;
  }
  // Nothing if it is of this kind. A null device is not compared.
  std::optional<TensorDifference> difference(PyObject* tensor, const c10::Device* device) const;
};

// One size or stride: a constant, a symbol that is bound here, or an expression of symbols bound before.
struct Extent {
  enum Kind : uint8_t { constant, binds, expression } kind = constant;
  int64_t value = 0;  // constant, or the symbol
  graph::SymExpr expr;
};

class TensorImplFacts : public TensorFacts {
 public:
  TensorImplFacts(PyObject* tensor, const graph::TensorMeta& meta) : kind_(TensorKind::of(tensor)), meta_(meta) {
    const c10::TensorImpl& impl = *impl_of(tensor);
    seen_offset_ = impl.storage_offset();
    meta_.offset = 0;
    device_ = impl.device();
    grad_ = grad_facts(impl);
    extents_.reserve(2 * meta.sizes.size());
    for (const graph::SymExpr& e : meta.sizes) extents_.push_back(size_extent(e));
    for (const graph::SymExpr& e : meta.strides) extents_.push_back(size_extent(e));
    std::vector<graph::SymbolId> symbols;
    for (const Extent& e : extents_) e.expr.collect_symbols(symbols);
    for (graph::SymbolId symbol : symbols) symbol_limit_ = std::max<size_t>(symbol_limit_, symbol + 1);
    const bool constant = std::ranges::all_of(extents_, [](const Extent& e) { return e.kind == Extent::constant; });
    if (!constant || extents_.size() > 2 * kFewDims) return;
    few_dims_ = static_cast<int8_t>(meta.sizes.size());
    for (size_t i = 0; i < extents_.size(); ++i) few_[i] = extents_[i].value;
  }

  void include_offset() { offset_ = seen_offset_; }

  bool matches(PyObject* tensor, int64_t* symbols) const override {
    if (!kind_.is_of(tensor)) return false;
    const c10::TensorImpl& impl = *impl_of(tensor);
    if (impl.device() != device_ || !(grad_facts(impl) == grad_)) return false;
    if (offset_ != kAnyOffset && impl.storage_offset() != offset_) return false;
    const c10::IntArrayRef sizes = impl.sizes(), strides = impl.strides();
    const size_t n = sizes.size();
    if (few_dims_ >= 0) {
      if (n != static_cast<size_t>(few_dims_)) return false;
      for (size_t i = 0; i < n; ++i)  // a call of memcmp costs more than the comparison itself
        if (sizes[i] != few_[i] || strides[i] != few_[n + i]) return false;
      return true;
    }
    if (2 * n != extents_.size()) return false;
    const Extent* extent = extents_.data();
    for (size_t i = 0; i < n; ++i, ++extent)
      if (!fits(*extent, sizes[i], symbols)) return false;
    for (size_t i = 0; i < n; ++i, ++extent)
      if (!fits(*extent, strides[i], symbols)) return false;
    return true;
  }

  std::optional<TensorDifference> difference(PyObject* tensor) const override;
  std::string text() const override;
  std::vector<int> differing_dims(PyObject* tensor) const override;
  std::vector<int> differing_strides(PyObject* tensor) const override;

 private:
  Extent extent_of(const graph::SymExpr& e) const {
    if (e.is_constant()) return {Extent::constant, e.constant(), {}};
    return {Extent::expression, 0, e};
  }
  Extent size_extent(const graph::SymExpr& e) {
    graph::SymbolId symbol = 0;
    if (!e.is_symbol(&symbol) || std::find(bound_.begin(), bound_.end(), symbol) != bound_.end()) return extent_of(e);
    bound_.push_back(symbol);
    return {Extent::binds, static_cast<int64_t>(symbol), e};
  }
  bool fits(const Extent& extent, int64_t actual, int64_t* symbols) const {
    if (extent.kind == Extent::constant) return actual == extent.value;
    if (extent.kind == Extent::expression) return graph::value_of(extent.expr, {symbols, symbol_limit_}) == actual;
    symbols[extent.value] = actual;
    return actual >= graph::kLeastSize && actual <= graph::kMostSize;
  }
  // Other than those of sizes and strides.
  std::optional<TensorDifference> attribute_difference(PyObject* tensor) const;

  static constexpr size_t kFewDims = 4;

  TensorKind kind_;
  int64_t offset_ = kAnyOffset;
  c10::Device device_{c10::kCPU};
  GradFacts grad_;
  int8_t few_dims_ = -1;  // this many dimensions with constant sizes and strides: then few_ holds all of them
  int64_t few_[2 * kFewDims];    // sizes, then strides
  graph::TensorMeta meta_;
  int64_t seen_offset_ = 0;
  std::vector<Extent> extents_;  // sizes, then strides
  std::vector<graph::SymbolId> bound_;
  size_t symbol_limit_ = 0;
};

std::string flag(bool b) { return b ? "True" : "False"; }
bool is_inference(c10::DispatchKeySet keys) {
  return !keys.has_any(c10::inplace_or_view_ks) && !keys.has_any(c10::autograd_dispatch_keyset);
}

std::optional<TensorDifference> TensorKind::difference(PyObject* tensor, const c10::Device* device) const {
  if (Py_TYPE(tensor) != type)
    return TensorDifference{ChangeKind::tensor_class, "__class__", type_name(type), type_name(Py_TYPE(tensor))};
  const c10::TensorImpl& impl = *impl_of(tensor);
  if (impl.dtype() != dtype)
    return TensorDifference{ChangeKind::dtype, "dtype", dtype_name(c10::typeMetaToScalarType(dtype)),
                            dtype_name(c10::typeMetaToScalarType(impl.dtype()))};
  if (device != nullptr && impl.device() != *device)
    return TensorDifference{ChangeKind::device, "device", device->str(), impl.device().str()};
  const c10::DispatchKeySet now = impl.key_set();
  const auto of_mode = [](const char* what, bool was, bool is) {
    return TensorDifference{ChangeKind::tensor_mode, what, flag(was), flag(is)};
  };
  if (is_inference(now) != is_inference(keys)) return of_mode("is_inference()", is_inference(keys), is_inference(now));
  for (auto [key, name] :
       {std::pair(c10::DispatchKey::Conjugate, "is_conj()"), std::pair(c10::DispatchKey::Negative, "is_neg()")})
    if (now.has(key) != keys.has(key)) return of_mode(name, keys.has(key), now.has(key));
  if (now == keys) return std::nullopt;
  return TensorDifference{ChangeKind::tensor_mode, "dispatch keys", c10::toString(keys), c10::toString(now)};
}

std::optional<TensorDifference> TensorImplFacts::attribute_difference(PyObject* tensor) const {
  if (auto of_kind = kind_.difference(tensor, &device_)) return of_kind;
  const c10::TensorImpl& impl = *impl_of(tensor);
  const GradFacts grad = grad_facts(impl);
  const auto of_grad = [](const char* what, bool was, bool is) {
    return TensorDifference{ChangeKind::requires_grad, what, flag(was), flag(is)};
  };
  if (grad.requires_grad != grad_.requires_grad)
    return of_grad("requires_grad", grad_.requires_grad, grad.requires_grad);
  if (grad.is_leaf != grad_.is_leaf) return of_grad("is_leaf", grad_.is_leaf, grad.is_leaf);
  if (grad.has_tangent != grad_.has_tangent)
    return TensorDifference{ChangeKind::tensor_mode, "forward-mode tangent", flag(grad_.has_tangent),
                            flag(grad.has_tangent)};
  if (2 * static_cast<size_t>(impl.dim()) == extents_.size()) return std::nullopt;
  return TensorDifference{ChangeKind::dims, "dim()", std::to_string(extents_.size() / 2), std::to_string(impl.dim())};
}

TensorDifference extent_difference(bool is_size, int dim, const Extent& extent, int64_t actual) {
  const std::string what = (is_size ? "size(" : "stride(") + std::to_string(dim) + ")", now = std::to_string(actual);
  if (extent.kind == Extent::binds && actual < graph::kLeastSize)
    return {ChangeKind::small_size, what, std::to_string(graph::kLeastSize), now, ">=", dim};
  if (extent.kind == Extent::binds)
    return {ChangeKind::size_again, what, std::to_string(graph::kMostSize), now, "<=", dim};
  const std::string was = extent.kind == Extent::constant ? std::to_string(extent.value) : extent.expr.text();
  const ChangeKind of_size = actual < graph::kLeastSize ? ChangeKind::small_size : ChangeKind::size;
  return {is_size ? of_size : ChangeKind::stride, what, was, now, "==", dim};
}

std::optional<TensorDifference> TensorImplFacts::difference(PyObject* tensor) const {
  if (auto of_attribute = attribute_difference(tensor)) return of_attribute;
  const c10::TensorImpl& impl = *impl_of(tensor);
  std::vector<int64_t> symbols(symbol_limit_ + 1);
  const size_t n = extents_.size() / 2;
  for (size_t i = 0; i < 2 * n; ++i) {
    const int64_t actual = i < n ? impl.sizes()[i] : impl.strides()[i - n];
    if (!fits(extents_[i], actual, symbols.data()))
      return extent_difference(i < n, static_cast<int>(i < n ? i : i - n), extents_[i], actual);
  }
  if (offset_ == kAnyOffset || impl.storage_offset() == offset_) return std::nullopt;
  return TensorDifference{ChangeKind::offset, "storage_offset()", std::to_string(offset_),
                          std::to_string(impl.storage_offset())};
}

std::string TensorImplFacts::text() const {
  std::string text = type_name(kind_.type) + " " + graph::text_of(meta_) + " " + device_.str();
  if (grad_.requires_grad) text += grad_.is_leaf ? " requires_grad" : " requires_grad non-leaf";
  if (is_inference(kind_.keys)) text += " inference";
  if (offset_ != kAnyOffset) text += " storage_offset() " + std::to_string(offset_);
  return text;
}

std::vector<int> TensorImplFacts::differing_dims(PyObject* tensor) const {
  if (attribute_difference(tensor)) return {};
  const c10::IntArrayRef sizes = impl_of(tensor)->sizes();
  std::vector<int> dims;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (extents_[i].kind == Extent::constant && extents_[i].value != sizes[i]) dims.push_back(static_cast<int>(i));
  return dims;
}

// For a view of a larger tensor, whose rows are as far apart as those of that tensor.
std::vector<int> TensorImplFacts::differing_strides(PyObject* tensor) const {
  if (attribute_difference(tensor) || !differing_dims(tensor).empty()) return {};
  const c10::IntArrayRef sizes = impl_of(tensor)->sizes(), strides = impl_of(tensor)->strides();
  const size_t n = sizes.size();
  std::vector<int64_t> symbols(symbol_limit_ + 1), expected(n);
  for (size_t i = 0; i < n; ++i)
    if (!fits(extents_[i], sizes[i], symbols.data())) return {};
  std::vector<int> dims;
  for (size_t i = 0; i < n; ++i) {
    const Extent& e = extents_[n + i];
    expected[i] = e.kind == Extent::constant     ? e.value
                  : e.kind == Extent::expression ? graph::value_of(e.expr, {symbols.data(), symbol_limit_}).value_or(0)
                                                 : strides[i];
    if (expected[i] == strides[i]) continue;
    if (expected[i] < graph::kLeastSize || strides[i] < graph::kLeastSize) return {};
    dims.push_back(static_cast<int>(i));
  }
  for (size_t i = 0; i < n; ++i)
    for (size_t k = i + 1; k < n; ++k)
      if ((expected[i] < expected[k]) != (strides[i] < strides[k]) && sizes[i] > 1 && sizes[k] > 1) return {};
  return dims;
}

// For a tensor that cannot be traced. Its sizes, strides and device are not read: it may have none, or answer by Python
// code.
class KindFacts : public TensorFacts {
 public:
  explicit KindFacts(PyObject* tensor) : kind_(TensorKind::of(tensor)) {}
  bool matches(PyObject* tensor, int64_t*) const override { return kind_.is_of(tensor); }
  std::optional<TensorDifference> difference(PyObject* tensor) const override {
    return kind_.difference(tensor, nullptr);
  }
  std::string text() const override {
    return type_name(kind_.type) + " " + dtype_name(c10::typeMetaToScalarType(kind_.dtype)) + " " +
           c10::toString(kind_.keys);
  }
  std::vector<int> differing_dims(PyObject*) const override { return {}; }
  std::vector<int> differing_strides(PyObject*) const override { return {}; }

 private:
  TensorKind kind_;
};

}  // namespace

std::shared_ptr<TensorFacts> make_kind_facts(PyObject* tensor) { return std::make_shared<KindFacts>(tensor); }

std::string dtype_name(c10::ScalarType dtype) { return std::string("torch.") + torch::getTHPDtype(dtype)->name; }

std::shared_ptr<TensorFacts> make_tensor_facts(PyObject* tensor, const graph::TensorMeta& meta) {
  return std::make_shared<TensorImplFacts>(tensor, meta);
}

bool read_number(PyObject* tensor, double& number) {
  if (!THPVariable_Check(tensor)) return false;
  const c10::TensorImpl& impl = *impl_of(tensor);
  if (!impl.device().is_cpu() || impl.layout() != c10::kStrided || impl.dim() != 0 || !impl.has_storage() ||
      impl.storage().data() == nullptr)
    return false;
  if (impl.dtype() == caffe2::TypeMeta::Make<double>()) number = *static_cast<const double*>(impl.data());
  else if (impl.dtype() == caffe2::TypeMeta::Make<float>()) number = *static_cast<const float*>(impl.data());
  else return false;
  return true;
}

void include_offset(TensorFacts& facts) { static_cast<TensorImplFacts&>(facts).include_offset(); }

}  // namespace framejit::guards
