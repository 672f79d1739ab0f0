// frame_hook/aten/derived_weights.cpp — see derived_weights.h.
#include "frame_hook/aten/derived_weights.h"

#include <algorithm>
#include <set>

#include "guards/interrupts.h"
#include "guards/running_compile.h"
#include "runtime/base/config.h"
#include "runtime/base/log.h"

namespace framejit::frame_hook {
namespace {

constexpr uint32_t kMostDoublings = 10;  // of the calls to wait for, one each time that weights have changed
constexpr size_t kMostWaiting = 64;  // instances: a program that makes new weights for each call has no end of them

std::set<DerivedWeights*>& all() {
  static auto* const living = new std::set<DerivedWeights*>;
  return *living;
}

using Owner = std::weak_ptr<DerivedWeights>;
void drop_owner(PyObject* capsule) { delete static_cast<Owner*>(PyCapsule_GetPointer(capsule, nullptr)); }

}  // namespace

std::shared_ptr<DerivedWeights> DerivedWeights::make(const graph::CompiledGraph& compiled, const RecordedValues& values,
                                                     Freezing freezing) {
  const bool has_weights = std::find(compiled.weights.begin(), compiled.weights.end(), true) != compiled.weights.end();
  if (!has_weights || freezing == Freezing::kNever || config().derive_after == 0) return nullptr;
  auto made = std::shared_ptr<DerivedWeights>(new DerivedWeights(compiled, values, freezing));
  made->self_ = made;
  return made;
}

DerivedWeights::DerivedWeights(const graph::CompiledGraph& compiled, const RecordedValues& values, Freezing freezing)
    : name_(compiled.functional.name),
      trust_(freezing == Freezing::kTrusted ? runtime::Trust::kIdentityVersion : runtime::Trust::kWatch),
      compiled_(compiled),
      names_(compiled.functional.input_names),
      constants_(values.constants),
      opaques_(values.opaques) {
  for (uint32_t i = 0; i < compiled.weights.size(); ++i)
    if (compiled.weights[i]) weights_.push_back(i);
  all().insert(this);
}

DerivedWeights::~DerivedWeights() { all().erase(this); }

void DerivedWeights::drop() { instances_.clear(); }
void DerivedWeights::drop_all() {
  for (DerivedWeights* one : all()) one->drop();
}

int64_t DerivedWeights::calls_before(const Instance& instance) const {
  return config().derive_after << std::min(instance.losses, kMostDoublings);
}

DerivedWeights::Use DerivedWeights::ask(const at::Tensor* const* inputs) {
  if (weights_.empty()) return {};
  due_.clear();
  const auto [at, is_new] = instances_.try_emplace(inputs[weights_.front()]->unsafeGetTensorImpl());
  Instance& instance = at->second;
  if (is_new && instances_.size() > kMostWaiting)
    std::erase_if(instances_, [&](const auto& item) { return !item.second.values && &item.second != &instance; });
  if (instance.values) {
    const int64_t changed = instance.values->changed_input(inputs);
    if (changed < 0) return {&*runner_, instance.values, &held_inputs_};
    lose(instance, names_[static_cast<size_t>(changed)]);
  }
  if (++instance.calls < calls_before(instance)) return {};
  for (uint32_t i : weights_) due_.push_back(*inputs[i]);
  return {};
}

void DerivedWeights::lose(Instance& instance, const std::string& source) {
  instance.values.reset();
  instance.references.clear();
  instance.calls = 0;
  instance.losses += 1;
  if (log::enabled(log::Kind::NotFresh))
    log::emit(log::Kind::NotFresh, name_,
              {{"graph", name_}, {"source", source}, {"calls", std::to_string(calls_before(instance))}});
}

// Nothing is tried again.
void DerivedWeights::stop(const std::string& reason) {
  if (log::enabled(log::Kind::NotDerived))
    log::emit(log::Kind::NotDerived, name_, {{"graph", name_}, {"reason", reason}});
  weights_.clear();
  compiled_.reset();
  instances_.clear();
}

void DerivedWeights::make_runner() {
  std::shared_ptr<const runtime::BoundExecutable> bound;
  std::string reason = "no op would gain from it";
  {
    const Unlocked others_run;
    auto made = graph::compiler().derive(*compiled_);
    if (made.ok()) bound = made.take();
    else reason = made.error().message;
  }
  if (interrupt_is_kept()) return;
  if (!bound) return stop(reason);
  recipes_.emplace(bound, constants_);
  runner_.emplace(std::move(bound), std::move(constants_), std::move(opaques_));
  held_inputs_ = copied_inputs(runner_->plan());
  compiled_.reset();
}

void DerivedWeights::derive(const std::vector<PyRef>& owners) {
  const std::vector<at::Tensor> held = std::exchange(due_, {});
  if (held.empty() || owners.empty()) return;
  const Tensor* const key = held.front().unsafeGetTensorImpl();
  try {
    if (!runner_) make_runner();
  } catch (const std::exception& e) {
    stop(e.what());
    throw;
  }
  if (!runner_) return;
  std::vector<const at::Tensor*> inputs(names_.size(), nullptr);
  for (size_t k = 0; k < weights_.size(); ++k) inputs[weights_[k]] = &held[k];
  Result<std::shared_ptr<const runtime::DerivedValues>> made = Error{Reason::not_derived, ""};
  try {
    const Unlocked others_run;
    made = runtime::DerivedValues::make(*recipes_, inputs.data(), trust_);
  } catch (const std::exception& e) { made = Error{Reason::not_derived, e.what()}; }
  Instance& instance = instances_[key];
  if (!made.ok()) {
    instance.calls = 0;
    instance.losses += 1;
    if (log::enabled(log::Kind::NotDerived))
      log::emit(log::Kind::NotDerived, name_, {{"graph", name_}, {"reason", made.error().message}});
    return;
  }
  keep(key, made.take(), owners);
}

void DerivedWeights::keep(const Tensor* key, std::shared_ptr<const runtime::DerivedValues> values,
                          const std::vector<PyRef>& owners) {
  if (log::enabled(log::Kind::Derived))
    log::emit(log::Kind::Derived, name_,
              {{"graph", name_},
               {"values", std::to_string(values->tensors().size())},
               {"bytes", std::to_string(values->bytes())},
               {"made", std::to_string(values->made_now())}});
  static PyMethodDef method{"on_death", &DerivedWeights::on_death, METH_O, nullptr};
  const PyRef capsule = PyRef::steal(PyCapsule_New(new Owner(self_), nullptr, drop_owner)),
              callback = PyRef::steal(capsule ? PyCFunction_New(&method, capsule.get()) : nullptr);
  std::vector<PyRef> references;
  for (const PyRef& owner : owners) {
    references.push_back(PyRef::steal(callback ? PyWeakref_NewRef(owner.get(), callback.get()) : nullptr));
    if (!references.back()) return drop_error();  // without it they would outlive the weights
  }
  Instance& instance = instances_[key];
  instance.values = std::move(values);
  instance.references = std::move(references);
}

// The owner of a weight is gone: what was derived goes, and with it the instance.
PyObject* DerivedWeights::on_death(PyObject* capsule, PyObject* reference) {
  const auto owner = static_cast<Owner*>(PyCapsule_GetPointer(capsule, nullptr))->lock();
  if (owner)
    for (auto at = owner->instances_.begin(); at != owner->instances_.end(); ++at) {
      const auto& held = at->second.references;
      if (std::none_of(held.begin(), held.end(), [&](const PyRef& r) { return r.get() == reference; })) continue;
      const Instance gone = std::move(at->second);  // dropping it may run code
      owner->instances_.erase(at);
      break;
    }
  Py_RETURN_NONE;
}

}  // namespace framejit::frame_hook
