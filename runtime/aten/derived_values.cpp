#include "runtime/aten/derived_values.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "runtime/aten/totals.h"
#include "runtime/base/config.h"
#include "runtime/base/sha256.h"

namespace framejit::runtime {
namespace {

// Up to this many bytes, a comparison costs less than watched pages do.
constexpr int64_t kCompared = 16 << 10;

uintptr_t page_bytes() {
  static const auto bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

c10::OperatorHandle operator_of(const char* name) { return c10::Dispatcher::singleton().findSchemaOrThrow(name, ""); }

std::atomic<uint64_t> g_values{0}, g_bytes{0}, g_made{0}, g_again{0}, g_distrusts{0};

// The bytes from the first element to the last, and where they begin.
std::pair<const char*, int64_t> memory_of(const at::Tensor& tensor) {
  int64_t span = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) == 0) return {nullptr, 0};
    span += (tensor.size(d) - 1) * tensor.stride(d);
  }
  return {static_cast<const char*>(tensor.const_data_ptr()), span * static_cast<int64_t>(tensor.itemsize())};
}

int64_t bytes_of(const at::Tensor& tensor) { return tensor.numel() * static_cast<int64_t>(tensor.itemsize()); }

// For a packed tensor, the bytes that the system has really provided: MKL allocates megabytes more than it writes.
int64_t bytes_of_packed(const at::Tensor& tensor) {
  static const auto nbytes_of = operator_of("mkldnn::_nbytes").typed<int64_t(const at::Tensor&)>();
  static const auto data_of = operator_of("mkldnn::data_ptr").typed<int64_t(const at::Tensor&)>();
  const auto begin = static_cast<uintptr_t>(data_of.call(tensor)), page = page_bytes();
  const auto bytes = static_cast<uintptr_t>(nbytes_of.call(tensor));
  const uintptr_t first = begin / page * page;
  std::vector<unsigned char> pages((begin + bytes - first + page - 1) / page);
  if (mincore(reinterpret_cast<void*>(first), pages.size() * page, pages.data()) != 0)
    return static_cast<int64_t>(bytes);
  const auto there = std::count_if(pages.begin(), pages.end(), [](unsigned char flags) { return (flags & 1) != 0; });
  return static_cast<int64_t>(std::min(bytes, static_cast<uintptr_t>(there) * page));
}

// For a derived value, whose sizes are constants.
int64_t bytes_of(const Buffer& buffer) {
  auto bytes = static_cast<int64_t>(c10::elementSize(static_cast<c10::ScalarType>(buffer.torch_dtype)));
  for (const Size& size : buffer.sizes) bytes *= size.constant;
  return bytes;
}

c10::StorageImpl* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

// Only the watch sees writes to a tensor without a version.
Trust trust_in(const at::Tensor& tensor, Trust trust) { return tensor.is_inference() ? Trust::kWatch : trust; }

}  // namespace

// A weight as it was when values were derived from it. It does not keep the tensor alive.
class KeptOperand {
 public:
  static Result<std::shared_ptr<const KeptOperand>> keep(const at::Tensor& tensor, Trust trust) {
    auto kept = std::shared_ptr<KeptOperand>(new KeptOperand(tensor));
    if (trust == Trust::kIdentityVersion || kept->bytes_ == 0) return {std::move(kept)};
    if (!tensor.device().is_cpu())
      return Error{Reason::not_derived,
                   "memory of a GPU is not watched; options={\"freezing\": True} trusts the "
                   "weights' versions"};
    if (tensor.is_pinned()) return Error{Reason::not_derived, "pinned memory, which devices write, is not watched"};
    const auto begin = reinterpret_cast<uintptr_t>(kept->data_), end = begin + static_cast<uintptr_t>(kept->bytes_),
               page = page_bytes();
    const uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
    if (kept->bytes_ > kCompared) {
      auto answer =
          WriteWatch::instance().watch(reinterpret_cast<const void*>(first), last - first, first - begin, end - last);
      if (!answer.handle) return Error{Reason::not_derived, answer.why};
      kept->handle_ = std::move(answer.handle);
    }
    kept->head_ = kept->handle_ ? first - begin : end - begin;
    kept->tail_ = kept->handle_ ? end - last : 0;
    kept->copy_.assign(kept->data_, kept->data_ + kept->head_);
    kept->copy_.insert(kept->copy_.end(), kept->data_ + kept->bytes_ - kept->tail_, kept->data_ + kept->bytes_);
    return {std::move(kept)};
  }

  // Whether the tensor is unchanged as far as this can tell without the watch.
  bool is(const at::Tensor& tensor) const {
    if (storage_of(tensor) != storage_ || tensor.const_data_ptr() != data_) return false;
    if (tensor.sizes() != sizes_ || tensor.strides() != strides_ || tensor.scalar_type() != dtype_) return false;
    if (is_distrusted_.load(std::memory_order_relaxed)) return false;
    if (has_version_ && tensor._version() != version_) return false;
    return std::memcmp(copy_.data(), data_, head_) == 0 &&
           std::memcmp(copy_.data() + head_, data_ + bytes_ - tail_, tail_) == 0;
  }
  // Whether bytes are compared. Otherwise only the tensor itself and the watch can show that it has changed.
  bool compares() const { return head_ + tail_ > 0; }
  const void* data() const { return data_; }
  int64_t version() const { return has_version_ ? version_ : -1; }
  const std::vector<int64_t>& sizes() const { return sizes_; }
  const std::vector<int64_t>& strides() const { return strides_; }
  c10::ScalarType dtype() const { return dtype_; }
  bool is_written() const { return handle_ && WriteWatch::instance().written({handle_}); }
  void distrust() const { is_distrusted_ = true; }
  const WriteWatch::Handle& handle() const { return handle_; }
  const c10::StorageImpl* storage() const { return storage_; }
  int64_t bytes() const { return bytes_; }

 private:
  explicit KeptOperand(const at::Tensor& tensor)
      : weak_storage_(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage_of(tensor))),
        storage_(storage_of(tensor)),
        sizes_(tensor.sizes().vec()),
        strides_(tensor.strides().vec()),
        dtype_(tensor.scalar_type()),
        has_version_(!tensor.is_inference()),
        version_(has_version_ ? tensor._version() : 0) {
    std::tie(data_, bytes_) = memory_of(tensor);
    if (data_ == nullptr) data_ = static_cast<const char*>(tensor.const_data_ptr());
  }

  const c10::weak_intrusive_ptr<c10::StorageImpl> weak_storage_;  // its address is not reused while this exists
  const c10::StorageImpl* const storage_;
  const char* data_ = nullptr;
  int64_t bytes_ = 0;
  const std::vector<int64_t> sizes_, strides_;
  const c10::ScalarType dtype_;
  const bool has_version_;
  const int64_t version_;
  mutable std::atomic<bool> is_distrusted_{false};
  WriteWatch::Handle handle_;    // of whole pages; null: all of it is compared
  size_t head_ = 0, tail_ = 0;   // bytes before and after them, on pages shared with neighbours
  std::vector<char> copy_;       // of these bytes
};

class KeptValue {
 public:
  KeptValue(at::Tensor tensor, std::vector<std::shared_ptr<const KeptOperand>> operands)
      : tensor_(std::move(tensor)),
        operands_(std::move(operands)),
        bytes_(tensor_.is_mkldnn() ? bytes_of_packed(tensor_) : bytes_of(tensor_)) {
    g_values += 1, g_made += 1;
    g_bytes += static_cast<uint64_t>(bytes_);
  }
  ~KeptValue() {
    g_values -= 1;
    g_bytes -= static_cast<uint64_t>(bytes_);
  }
  KeptValue(const KeptValue&) = delete;
  const at::Tensor& tensor() const { return tensor_; }
  int64_t bytes() const { return bytes_; }

 private:
  const at::Tensor tensor_;
  const std::vector<std::shared_ptr<const KeptOperand>> operands_;
  const int64_t bytes_;
};

namespace {

// The values that exist, so that others can share them. It keeps nothing alive.
class Registry {
 public:
  static Registry& instance() {
    static auto* const shared = new Registry;
    return *shared;
  }

  Result<std::shared_ptr<const KeptOperand>> operand(const at::Tensor& tensor, Trust trust) {
    const std::lock_guard lock(mutex_);
    std::weak_ptr<const KeptOperand>& slot = operands_[view_of(tensor, trust)];
    if (auto known = slot.lock(); known && known->is(tensor) && !known->is_written()) return known;
    FJ_TRY(auto kept, KeptOperand::keep(tensor, trust));
    slot = kept;
    return kept;
  }

  using Key = std::pair<std::string, std::vector<const KeptOperand*>>;
  std::shared_ptr<const KeptValue> find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto at = values_.find(key);
    return at == values_.end() ? nullptr : at->second.lock();
  }
  void add(const Key& key, const std::shared_ptr<const KeptValue>& value) {
    const std::lock_guard lock(mutex_);
    std::erase_if(values_, [](const auto& item) { return item.second.expired(); });
    std::erase_if(operands_, [](const auto& item) { return item.second.expired(); });
    values_[key] = value;
  }
  int64_t bytes_made_of(const std::set<const KeptOperand*>& operands) {
    const std::lock_guard lock(mutex_);
    int64_t bytes = 0;
    for (const auto& [key, slot] : values_)
      if (std::any_of(key.second.begin(), key.second.end(), [&](auto* one) { return operands.contains(one); }))
        if (const auto value = slot.lock()) bytes += value->bytes();
    return bytes;
  }
  void distrust(const std::set<const c10::StorageImpl*>& storages) {
    const std::lock_guard lock(mutex_);
    for (const auto& [view, slot] : operands_)
      if (storages.contains(std::get<0>(view)))
        if (const auto kept = slot.lock()) kept->distrust();
  }

 private:
  using View = std::tuple<const c10::StorageImpl*, const void*, c10::ScalarType, std::vector<int64_t>,
                          std::vector<int64_t>, Trust>;
  static View view_of(const at::Tensor& tensor, Trust trust) {
    return {storage_of(tensor),
            tensor.const_data_ptr(),
            tensor.scalar_type(),
            tensor.sizes().vec(),
            tensor.strides().vec(),
            trust};
  }

  std::mutex mutex_;
  std::map<View, std::weak_ptr<const KeptOperand>> operands_;
  std::map<Key, std::weak_ptr<const KeptValue>> values_;  // live values have live operands, so no address is used twice
};

std::string key_of(const Executable& executable, const CallPlan& derivation) {
  Sha256 hash;
  hash.add_part(print(derivation));
  for (const auto& code : executable.kernels) hash.add_part(code->id.text());
  const auto digest = hash.digest();
  return {digest.begin(), digest.end()};
}

}  // namespace

Derivations::Derivations(std::shared_ptr<const BoundExecutable> executable, std::vector<at::Tensor> constants)
    : executable_(std::move(executable)), constants_(std::move(constants)) {
  for (const BoundPlan& derivation : executable_->derive()) {
    runners_.emplace_back(executable_, derivation, std::vector<at::Tensor>{});
    keys_.push_back(key_of(executable_->executable(), *derivation.plan));
  }
}

std::string DerivedValues::refusal(const std::vector<at::Tensor>& weights, Trust trust) {
  for (const at::Tensor& weight : weights) {
    if (bytes_of(weight) <= kCompared) continue;
    const auto kept = Registry::instance().operand(weight, trust_in(weight, trust));
    return kept.ok() ? "" : kept.error().message;  // weights of one module lie in the same kind of memory
  }
  return "";
}

struct DerivedValues::Operands {
  struct One {
    std::shared_ptr<const KeptOperand> kept;
    const at::Tensor* tensor;
  };
  std::map<uint32_t, One> by_number;  // an input, or a constant after all inputs
  std::set<const KeptOperand*> kept;
  int64_t bytes = 0;
};

// They are watched before they are read.
Result<DerivedValues::Operands> DerivedValues::keep_operands(const Derivations& derivations,
                                                             const at::Tensor* const* inputs, Trust trust) {
  const Executable& executable = derivations.executable();
  const uint32_t input_count = executable.forward.input_count;
  Operands operands;
  std::vector<WriteWatch::Handle> handles;
  for (const runtime::DerivedValue& value : executable.derived)
    for (uint32_t number : value.operands) {
      if (operands.by_number.contains(number)) continue;
      const bool is_input = number < input_count;
      const at::Tensor* const tensor = is_input ? inputs[number] : &derivations.constants_[number - input_count];
      const Trust own_trust = is_input ? trust_in(*tensor, trust) : Trust::kIdentityVersion;
      FJ_TRY(std::shared_ptr<const KeptOperand> kept, Registry::instance().operand(*tensor, own_trust));
      operands.bytes += kept->bytes();
      operands.kept.insert(kept.get());
      if (is_input) kept_.push_back({number, kept});
      if (kept->handle()) handles.push_back(kept->handle());
      operands.by_number[number] = {std::move(kept), tensor};
    }
  question_ = WriteWatch::Question(std::move(handles));
  note_briefs();
  return operands;
}

namespace {

// Of all derived values, with so many bytes more; `own`: those of the values to be made.
bool is_beyond_limit(int64_t more, int64_t own, InTheWay* in_the_way) {
  const int64_t limit = config().derived_mb << 20;
  const bool is_met = limit > 0 && static_cast<int64_t>(derived_totals().bytes) + more > limit;
  if (is_met && own <= limit) *in_the_way = InTheWay::kOfAnyWeights;
  return is_met;
}

Error limit_is_met() { return {Reason::not_derived, "the limit of FRAMEJIT_DERIVED_MB is reached"}; }

// Whether memory may be used for new values that take so many bytes.
Result<void> ask_for_memory(int64_t new_bytes, const std::set<const KeptOperand*>& operands, int64_t operand_bytes,
                            InTheWay* in_the_way) {
  if (new_bytes > operand_bytes) return Error{Reason::not_derived, "it would take more memory than the weights"};
  if (new_bytes > 0 && Registry::instance().bytes_made_of(operands) + new_bytes > operand_bytes) {
    *in_the_way = InTheWay::kOfTheseWeights;
    return Error{Reason::not_derived, "with the values of other graphs, it would take more memory than the weights"};
  }
  if (is_beyond_limit(new_bytes, new_bytes, in_the_way)) return limit_is_met();
  return {};
}

}  // namespace

Result<std::shared_ptr<const DerivedValues>> DerivedValues::make(const Derivations& derivations,
                                                                 const at::Tensor* const* inputs, Trust trust,
                                                                 InTheWay* in_the_way) {
  *in_the_way = InTheWay::kNone;
  auto made = std::make_shared<DerivedValues>();
  made->distrusts_ = g_distrusts;
  FJ_TRY(const Operands operands, made->keep_operands(derivations, inputs, trust));

  const std::vector<runtime::DerivedValue>& wanted = derivations.executable().derived;
  std::vector<Registry::Key> keys;
  int64_t new_bytes = 0;
  for (const runtime::DerivedValue& value : wanted) {
    keys.push_back({derivations.keys_[value.derivation], {}});
    for (uint32_t number : value.operands) keys.back().second.push_back(operands.by_number.at(number).kept.get());
    made->values_.push_back(Registry::instance().find(keys.back()));
    if (!made->values_.back()) new_bytes += bytes_of(value.buffer);
  }
  FJ_TRY_VOID(ask_for_memory(new_bytes, operands.kept, operands.bytes, in_the_way));

  const c10::InferenceMode normal(false);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!made->values_[i]) {
      std::vector<std::shared_ptr<const KeptOperand>> made_of;
      std::vector<const at::Tensor*> tensors;
      for (uint32_t number : wanted[i].operands) {
        made_of.push_back(operands.by_number.at(number).kept);
        tensors.push_back(operands.by_number.at(number).tensor);
      }
      at::Tensor tensor;
      FJ_TRY_VOID(derivations.runners_[wanted[i].derivation].run(tensors.data(), nullptr, &tensor));
      made->values_[i] = std::make_shared<const KeptValue>(std::move(tensor), std::move(made_of));
      Registry::instance().add(keys[i], made->values_[i]);
      ++made->made_now_;
    }
    made->bytes_ += made->values_[i]->bytes();
    made->tensors_.push_back(made->values_[i]->tensor());
  }
  if (made->made_now_ > 0 && is_beyond_limit(0, made->bytes_, in_the_way))
    return limit_is_met();  // packed ones take more
  if (made->changed_input(inputs) >= 0) return Error{Reason::not_derived, "a weight was written meanwhile"};
  return std::shared_ptr<const DerivedValues>(std::move(made));
}

std::vector<uint32_t> DerivedValues::inputs() const {
  std::vector<uint32_t> numbers;
  for (const Kept& kept : kept_) numbers.push_back(kept.input);
  return numbers;
}

bool DerivedValues::derives_from(const std::vector<at::Tensor>& weights) const {
  return std::any_of(weights.begin(), weights.end(), [&](const at::Tensor& weight) {
    return std::any_of(kept_.begin(), kept_.end(),
                       [&](const Kept& kept) { return kept.operand->storage() == storage_of(weight); });
  });
}

void DerivedValues::note_briefs() {
  for (const Kept& kept : kept_) {
    const KeptOperand& operand = *kept.operand;
    Brief& brief = briefs_.emplace_back(
        Brief{kept.input, operand.dtype(), -1, operand.storage(), operand.data(), operand.version(), {}});
    const size_t ndim = operand.sizes().size();
    if (operand.compares() || ndim > Brief::kMostDims) continue;
    brief.ndim = static_cast<int8_t>(ndim);
    std::copy(operand.sizes().begin(), operand.sizes().end(), brief.shape);
    std::copy(operand.strides().begin(), operand.strides().end(), brief.shape + ndim);
  }
}

// As KeptOperand::is(), for one that compares no bytes and was not distrusted.
bool DerivedValues::fits(const Brief& brief, const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const auto ndim = static_cast<size_t>(brief.ndim);
  if (storage_of(tensor) != brief.storage || tensor.const_data_ptr() != brief.data ||
      tensor.scalar_type() != brief.dtype || impl.sizes().size() != ndim)
    return false;
  if (!std::equal(brief.shape, brief.shape + ndim, impl.sizes().begin()) ||
      !std::equal(brief.shape + ndim, brief.shape + 2 * ndim, impl.strides().begin()))
    return false;
  return brief.version < 0 || static_cast<int64_t>(impl.version_counter().current_version()) == brief.version;
}

int64_t DerivedValues::changed_input(const at::Tensor* const* inputs) const {
  const bool is_trusted = g_distrusts.load(std::memory_order_relaxed) == distrusts_;
  for (size_t k = 0; k < kept_.size(); ++k) {
    const Brief& brief = briefs_[k];
    const at::Tensor& tensor = *inputs[brief.input];
    if (is_trusted && brief.ndim >= 0 ? !fits(brief, tensor) : !kept_[k].operand->is(tensor)) return brief.input;
  }
  if (!question_.written()) return -1;
  for (const Kept& kept : kept_)
    if (kept.operand->is_written()) return kept.input;
  return kept_.empty() ? -1 : kept_.front().input;
}

DerivedTotals derived_totals() {
  return {g_values, g_bytes, g_made, g_again, WriteWatch::instance().bytes_made_anonymous()};
}
void count_derived_again(uint64_t values) { g_again += values; }
void reset_derived_totals() { g_made = 0, g_again = 0; }
void distrust(const std::vector<at::Tensor>& weights) {
  std::set<const c10::StorageImpl*> storages;
  for (const at::Tensor& weight : weights)
    if (weight.has_storage()) storages.insert(storage_of(weight));
  Registry::instance().distrust(storages);
  ++g_distrusts;
}

}  // namespace framejit::runtime
