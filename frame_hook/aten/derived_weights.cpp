#include "frame_hook/aten/derived_weights.h"

#include <algorithm>
#include <set>

#include "frame_hook/trace/machine/graph_break.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/running_compile.h"
#include "runtime/aten/torch_words.h"
#include "runtime/base/config.h"
#include "runtime/base/log.h"
#include "runtime/base/warn_once.h"

namespace framejit::frame_hook {
namespace {

constexpr uint32_t kMostDoublings = 10;  // of the number of calls to wait for: one each time that weights change
constexpr size_t kManyInstances = 1024;  // from here on, those not used for long are forgotten
constexpr size_t kMostNames = 8;         // of sources in a line of the log

uint64_t g_questions = 0;

std::set<DerivedWeights*>& all() {
  static auto* const living = new std::set<DerivedWeights*>;
  return *living;
}

using Keeper = std::weak_ptr<DerivedWeights>;
void drop_keeper(PyObject* capsule) { delete static_cast<Keeper*>(PyCapsule_GetPointer(capsule, nullptr)); }

}  // namespace

// Holds the owners and the weights of one call, from before its plan runs.
class DerivedWeights::Due final : public DueDerivation {
 public:
  Due(std::shared_ptr<DerivedWeights> by, const WeightOwners& held, const at::Tensor* const* inputs)
      : by_(std::move(by)) {
    for (size_t i = 0; i < held.count; ++i) owners.push_back(PyRef::borrow(held.objects[i]));
    for (uint32_t i : by_->weights_) weights.push_back(*inputs[i]);
  }
  void derive() override { by_->derive(*this); }
  Instance& instance() const {
    std::vector<PyObject*> objects;
    for (const PyRef& owner : owners) objects.push_back(owner.get());
    return by_->instance_of(objects.data(), objects.size());
  }

  std::vector<PyRef> owners;
  std::vector<at::Tensor> weights;

 private:
  const std::shared_ptr<DerivedWeights> by_;
};

std::shared_ptr<DerivedWeights> DerivedWeights::make(const graph::CompiledGraph& compiled, const RecordedValues& values,
                                                     Deriving deriving) {
  const bool has_weights = std::find(compiled.weights.begin(), compiled.weights.end(), true) != compiled.weights.end();
  if (!has_weights || deriving.freezing == Freezing::kNever || config().derive_after == 0) return nullptr;
  auto made = std::shared_ptr<DerivedWeights>(new DerivedWeights(compiled, values, deriving));
  made->self_ = made;
  return made;
}

DerivedWeights::DerivedWeights(const graph::CompiledGraph& compiled, const RecordedValues& values, Deriving deriving)
    : name_(compiled.functional.name),
      place_(graph::where_it_begins(compiled.functional)),
      trust_(deriving.freezing == Freezing::kTrusted ? runtime::Trust::kIdentityVersion : runtime::Trust::kWatch),
      is_at_once_(deriving.is_at_once),
      compiled_(compiled),
      names_(compiled.functional.input_names),
      constants_(values.constants),
      opaques_(values.opaques),
      forgets_at_(kManyInstances) {
  for (uint32_t i = 0; i < compiled.weights.size(); ++i)
    if (compiled.weights[i]) weights_.push_back(i);
  all().insert(this);
}

DerivedWeights::~DerivedWeights() { all().erase(this); }

void DerivedWeights::drop_all() {
  for (DerivedWeights* one : all())
    for (auto& [owner, instance] : one->instances_)
      if (instance.values) lose(instance);
}

int64_t DerivedWeights::calls_before(const Instance& instance) const {
  return (is_at_once_ ? 1 : config().derive_after) << std::min(instance.losses, kMostDoublings);
}

// Runs no code of the program. The reference is valid until the next call asks.
DerivedWeights::Instance& DerivedWeights::instance_of(PyObject* const* owners, size_t count) {
  const auto [begin, end] = instances_.equal_range(owners[0]);
  for (auto at = begin; at != end; ++at)
    if (std::equal(at->second.owners.begin(), at->second.owners.end(), owners, owners + count)) return at->second;
  if (instances_.size() >= forgets_at_) forget_some();
  Instance& made = instances_.emplace(owners[0], Instance())->second;
  made.owners.assign(owners, owners + count);
  return made;
}

// A program may make new modules for each call: their number must stay bounded.
void DerivedWeights::forget_some() {
  std::erase_if(instances_, [&](const auto& item) {
    return !item.second.values && item.second.last_use + 2 * kManyInstances < g_questions;
  });
  forgets_at_ = std::max(kManyInstances, 2 * instances_.size());
}

DerivedWeights::Use DerivedWeights::ask(const at::Tensor* const* inputs, WeightOwners& owners) {
  if (weights_.empty() || owners.count == 0) return {};
  Instance& instance = instance_of(owners.objects, owners.count);
  instance.last_use = ++g_questions;
  int64_t changed = -1;
  std::shared_ptr<const runtime::DerivedValues> old;
  if (instance.values) {
    changed = instance.values->changed_input(inputs);
    if (changed < 0) return {&*runner_, instance.values, &held_inputs_};
    old = instance.values;
    lose(instance);
  }
  if (instance.calls == 0) instance.since = g_questions;
  const int64_t wanted = calls_before(instance);
  if (++instance.calls >= wanted) owners.due = std::make_unique<Due>(self_.lock(), owners, inputs);
  if (changed >= 0 && log::enabled(log::Kind::NotFresh))  // runs code: the instance may be gone afterwards
    log::emit(log::Kind::NotFresh, place_,
              {{"graph", name_}, {"source", names_[static_cast<size_t>(changed)]}, {"calls", std::to_string(wanted)}});
  return {};
}

void DerivedWeights::lose(Instance& instance) {
  instance.had_values = instance.had_values || instance.values != nullptr;
  instance.values.reset();
  instance.references.clear();
  instance.calls = 0;
  instance.losses += 1;
}

// Derives nothing now; a later call tries again.
void DerivedWeights::refuse(const Due& due, const std::string& reason) {
  lose(due.instance());
  if (log::enabled(log::Kind::NotDerived))
    log::emit(log::Kind::NotDerived, place_, {{"graph", name_}, {"reason", reason}});
}

// Derives nothing any more.
void DerivedWeights::stop(const std::string& reason) {
  weights_.clear();
  compiled_.reset();
  instances_.clear();
  if (log::enabled(log::Kind::NotDerived))
    log::emit(log::Kind::NotDerived, place_, {{"graph", name_}, {"reason", reason}});
}

void DerivedWeights::derive(const Due& due) {
  try {
    derive_now(due);
  } catch (const std::exception& e) {
    if (is_out_of_memory(e)) return refuse(due, runtime::torch_words(e));
    stop(runtime::torch_words(e));
    throw;
  }
}

// Runs inside a compile, so only once at a time. Other threads may ask for the values meanwhile.
void DerivedWeights::derive_now(const Due& due) {
  if (weights_.empty()) return;  // another call has found that nothing can be derived
  if (const std::string why = runtime::DerivedValues::refusal(due.weights, trust_); !why.empty()) {
    warn_not_watched(why);
    return refuse(due, why);
  }
  if (!runner_) make_runner();
  if (!runner_) return;
  std::vector<const at::Tensor*> inputs(names_.size(), nullptr);
  for (size_t k = 0; k < weights_.size(); ++k) inputs[weights_[k]] = &due.weights[k];
  Result<std::shared_ptr<const runtime::DerivedValues>> made = Error{Reason::not_derived, ""};
  auto in_the_way = runtime::InTheWay::kNone;
  do {
    const Unlocked others_run;
    made = runtime::DerivedValues::make(*derivations_, inputs.data(), trust_, &in_the_way);
  } while (!made.ok() && drop_idlest(due.instance(), due.weights, in_the_way));
  if (!made.ok()) return refuse(due, made.error().message);
  keep(due, made.take());
}

void DerivedWeights::make_runner() {
  std::shared_ptr<const runtime::BoundExecutable> bound;
  Error error{Reason::not_derived, "no op would gain from it"};
  {
    const Unlocked others_run;
    auto made = graph::compiler().derive(*compiled_);
    if (made.ok()) bound = made.take();
    else if (made.error().reason == Reason::interrupted) return;  // a later call tries again
    else error = made.error();
  }
  if (interrupt_is_kept()) return;
  if (!bound) {
    stop(error.message);
    if (error.reason != Reason::not_derived) graph_break(error.reason, error.message);
    return;
  }
  derivations_.emplace(bound, constants_);
  runner_.emplace(std::move(bound), std::move(constants_), std::move(opaques_));
  held_inputs_ = copied_inputs(runner_->plan());
  compiled_.reset();
}

// Drops the least recently used values among those that take the needed room, if nobody has used them since this
// instance started counting. So entries that run alternately do not evict each other.
bool DerivedWeights::drop_idlest(const Instance& instance, const std::vector<at::Tensor>& weights,
                                 runtime::InTheWay in_the_way) {
  if (in_the_way == runtime::InTheWay::kNone) return false;
  const bool are_any = in_the_way == runtime::InTheWay::kOfAnyWeights;
  Instance* idlest = nullptr;
  for (DerivedWeights* one : all())
    for (auto& [owner, other] : one->instances_)
      if (other.values && other.last_use < (idlest ? idlest->last_use : instance.since) &&
          (are_any || other.values->derives_from(weights)))
        idlest = &other;
  if (idlest) lose(*idlest);
  return idlest != nullptr;
}

// Printed even if no log is on, because the user can change it.
void DerivedWeights::warn_not_watched(const std::string& why) const {
  if (log::is_first_time("weights that are not watched") && log::enabled(log::Kind::NotWatched))
    log::emit(log::Kind::NotWatched, place_, {{"reason", why}, {"setting", "options={\"freezing\": True}"}});
}

std::string DerivedWeights::sources_of(const runtime::DerivedValues& values) const {
  const std::vector<uint32_t> inputs = values.inputs();
  std::string text;
  for (size_t i = 0; i < std::min(inputs.size(), kMostNames); ++i) text += (i == 0 ? "" : ", ") + names_[inputs[i]];
  return inputs.size() <= kMostNames ? text : text + " and " + std::to_string(inputs.size() - kMostNames) + " more";
}

void DerivedWeights::keep(const Due& due, std::shared_ptr<const runtime::DerivedValues> values) {
  static PyMethodDef method{"on_death", &DerivedWeights::on_death, METH_O, nullptr};
  const PyRef capsule = PyRef::steal(PyCapsule_New(new Keeper(self_), nullptr, drop_keeper)),
              callback = PyRef::steal(capsule ? PyCFunction_New(&method, capsule.get()) : nullptr);
  std::vector<PyRef> references;
  for (const PyRef& owner : due.owners) {
    references.push_back(PyRef::steal(callback ? PyWeakref_NewRef(owner.get(), callback.get()) : nullptr));
    if (references.back()) continue;
    drop_error();
    return stop("the object that holds a weight takes no weak references, so its end would go unnoticed");
  }
  const log::Fields fields = {{"graph", name_},
                              {"values", std::to_string(values->tensors().size())},
                              {"bytes", std::to_string(values->bytes())},
                              {"made", std::to_string(values->made_now())},
                              {"weights", sources_of(*values)}};
  Instance& instance = due.instance();
  if (instance.had_values) runtime::count_derived_again(values->made_now());
  instance.values = std::move(values);
  instance.references = std::move(references);
  if (log::enabled(log::Kind::Derived)) log::emit(log::Kind::Derived, place_, fields);
}

// The owner of a weight is gone: its instance and derived values are dropped.
PyObject* DerivedWeights::on_death(PyObject* capsule, PyObject* reference) {
  const auto keeper = static_cast<Keeper*>(PyCapsule_GetPointer(capsule, nullptr))->lock();
  if (keeper)
    for (auto at = keeper->instances_.begin(); at != keeper->instances_.end(); ++at) {
      const auto& held = at->second.references;
      if (std::none_of(held.begin(), held.end(), [&](const PyRef& r) { return r.get() == reference; })) continue;
      const Instance gone = std::move(at->second);  // dropping it may run code
      keeper->instances_.erase(at);
      break;
    }
  Py_RETURN_NONE;
}

}  // namespace framejit::frame_hook
