// graph/aten/accepted_kinds.cpp — runs the op to find out, and caches the answers.
#include "graph/aten/accepted_kinds.h"

#include <ATen/ops/ones.h>

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "graph/aten/meta_call.h"

namespace framejit::graph {
namespace {

using c10::IValue;

void add_kind(const at::Tensor& tensor, std::string& key) {
  if (!tensor.defined()) {
    key += 'u';
    return;
  }
  key += is_number(tensor) ? 'n' : tensor.dim() == 0 ? '0' : 't';
  key += static_cast<char>(tensor.scalar_type());
}

void add_kind(const IValue& arg, ArgClass arg_class, std::string& key) {
  if (arg.isTensor()) {
    add_kind(arg.toTensor(), key);
  } else if (arg.isTensorList()) {
    key += '[';
    for (const at::Tensor& tensor : arg.toTensorList()) add_kind(tensor, key);
  } else if (arg.isInt()) {
    key += arg.toInt() < 0 ? 'j' : 'i';
    if (arg_class == ArgClass::kDType) key += std::to_string(arg.toInt());
  } else if (arg.isString()) {
    key += '"' + arg.toStringRef() + '"';
  } else {
    key += arg.isNone()            ? 'N'
           : arg.isBool()          ? 'b'
           : arg.isDouble()        ? (arg.toDouble() < 0 ? 'e' : 'd')
           : arg.isSymInt()        ? 'i'
           : arg.isComplexDouble() ? 'c'
                                   : 'o';
  }
}

std::string kinds_of(const OpInfo& info, std::span<const IValue> args) {
  std::string key(reinterpret_cast<const char*>(&info.def), sizeof info.def);
  for (size_t i = 0; i < args.size(); ++i) add_kind(args[i], info.arg_classes[i], key);
  return key;
}

// Answers by kinds, kept as long as the process lives.
class Answers {
 public:
  std::optional<bool> find(const std::string& kinds) {
    const std::lock_guard lock(mutex_);
    const auto at = known_.find(kinds);
    return at == known_.end() ? std::nullopt : std::optional<bool>(at->second);
  }
  void add(std::string kinds, bool answer) {
    const std::lock_guard lock(mutex_);
    known_.emplace(std::move(kinds), answer);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, bool> known_;
};

Answers& mixes() {
  static auto* const noted = new Answers;
  return *noted;
}

IValue one_like(const IValue& arg, ArgClass arg_class) {
  if (arg.isSymInt()) return IValue(int64_t{1});
  if (arg.isInt() && arg_class == ArgClass::kScalar) return IValue(int64_t{arg.toInt() < 0 ? -1 : 1});
  if (arg.isDouble() && arg_class == ArgClass::kScalar) return IValue(arg.toDouble() < 0 ? -1.0 : 1.0);
  if (!arg.isTensor() || !arg.toTensor().defined()) return arg;
  const at::Tensor& tensor = arg.toTensor();
  const auto options = at::TensorOptions().dtype(tensor.scalar_type()).device(at::kCPU);
  if (tensor.dim() > 0) return at::ones({1}, options);
  at::Tensor one = at::ones({}, options);
  if (is_number(tensor)) one.unsafeGetTensorImpl()->set_wrapped_number(true);
  return one;
}

bool raises(const OpInfo& info, std::span<const IValue> args) {
  const PlainExecution plain;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
  torch::jit::Stack stack;
  for (size_t i = 0; i < args.size(); ++i) stack.push_back(one_like(args[i], info.arg_classes[i]));
  try {
    info.handle.callBoxed(stack);
  } catch (const c10::Error&) {
    return true;
  }
  return false;
}

}  // namespace

bool refuses_kinds(const OpInfo& info, std::span<const IValue> args) {
  static auto* const answers = new Answers;
  std::string kinds = kinds_of(info, args);
  if (const auto known = answers->find(kinds)) return *known;
  const bool answer = raises(info, args);
  answers->add(std::move(kinds), answer);
  return answer;
}

bool is_new_mix(const OpInfo& info, std::span<const IValue> args) {
  std::optional<at::ScalarType> dtype;
  bool is_mixed = false;
  for (const IValue& arg : args)
    each_tensor(arg, [&](const at::Tensor& tensor) {
      if (!dtype) dtype = tensor.scalar_type();
      is_mixed = is_mixed || tensor.scalar_type() != *dtype;
    });
  const bool is_plain = dtype && !is_mixed && at::isFloatingType(*dtype);
  return !is_plain && !mixes().find(kinds_of(info, args));
}

void note_mix(const OpInfo& info, std::span<const IValue> args) { mixes().add(kinds_of(info, args), true); }

}  // namespace framejit::graph
