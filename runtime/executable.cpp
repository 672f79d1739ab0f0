// runtime/executable.cpp — the table of kernels, the rules, and binding.
#include "runtime/executable.h"

#include <algorithm>
#include <bit>

namespace framejit::runtime {
namespace {

// The rules of one plan.
class Verifier {
 public:
  Verifier(const Executable& executable, const CallPlan& plan, const char* kind)
      : executable_(executable), plan_(plan), kind_(kind) {}

  Result<void> run() {
    if (plan_.arena.size() > kArenaBlocks) wrong("more than " + std::to_string(kArenaBlocks) + " blocks of the arena");
    for (size_t i = 0; i < plan_.size_program.size(); ++i) verify_size_op(i);
    for (const ArenaBlock& block : plan_.arena) verify(block.bytes);
    for (const Buffer& b : plan_.buffers) verify(b);
    for (step_ = 0; step_ < plan_.steps.size(); ++step_)
      std::visit([&](const auto& s) { verify(s); }, plan_.steps[step_]);
    for (const auto& [input, buffer] : plan_.updates) {
      if (input >= plan_.input_count) wrong("an update of input " + std::to_string(input));
      verify(buffer);
    }
    for (const Output& o : plan_.outputs) {
      if (o.kind == Output::kInput && o.index >= plan_.input_count) wrong("output of input " + std::to_string(o.index));
      if (o.kind == Output::kBuffer && o.index != kNoBuffer) verify(o.index);
    }
    for (BufferId b : plan_.saves) verify(b);
    if (wrong_.empty()) return {};
    return Error{Reason::not_verified, "plan " + std::string(kind_) + " @" + plan_.name + ": " + wrong_};
  }

 private:
  void wrong(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }
  void verify(const Size& s) {
    if (s.slot >= 0 && static_cast<size_t>(s.slot) >= plan_.size_program.size())
      wrong("size slot z" + std::to_string(s.slot));
  }
  void verify(const std::vector<Size>& sizes) {
    for (const Size& s : sizes) verify(s);
  }
  void verify(BufferId b) {
    if (b >= plan_.buffers.size()) wrong("buffer b" + std::to_string(b));
  }
  void verify_size_op(size_t at) {
    const SizeOp& op = plan_.size_program[at];
    const auto is_earlier = [&](int32_t slot) { return slot >= 0 && static_cast<size_t>(slot) < at; };
    if (op.opcode == SizeOpcode::kConstant) return;
    const bool fits = op.opcode == SizeOpcode::kSymbol ? op.constant >= 0 && op.constant < plan_.symbol_count
                                                       : is_earlier(op.left) && is_earlier(op.right);
    if (!fits) wrong("operands of z" + std::to_string(at));
  }
  void verify(const Buffer& b) {
    verify(b.sizes);
    verify(b.strides);
    verify(b.offset);
    if (b.sizes.size() != b.strides.size()) wrong("a buffer with " + std::to_string(b.strides.size()) + " strides");
    if (b.storage == Storage::kInput && b.index >= plan_.input_count)
      wrong("a buffer of input " + std::to_string(b.index));
    if (b.storage == Storage::kArena && b.index >= plan_.arena.size())
      wrong("a buffer of arena " + std::to_string(b.index));
    if (b.storage == Storage::kArena && b.index < plan_.arena.size() && !(b.device == plan_.arena[b.index].device))
      wrong("a buffer of device " + text_of(b.device) + " in arena " + std::to_string(b.index));
    if (b.storage == Storage::kDerived &&
        (b.index >= executable_.derived.size() || std::string_view(kind_) == "derive"))
      wrong("a buffer of derived value " + std::to_string(b.index));
    if (b.storage == Storage::kSaved && (b.index >= executable_.saved.size() || std::string_view(kind_) != "backward"))
      wrong("a buffer of saved value " + std::to_string(b.index));
  }
  void verify_together(const KernelStep& s) {
    for (uint32_t k = 1; k < s.together; ++k) {
      const auto* next = step_ + k < plan_.steps.size() ? std::get_if<KernelStep>(&plan_.steps[step_ + k]) : nullptr;
      if (next == nullptr || next->together != 1 || !next->place.device.is_cpu() || !s.place.device.is_cpu())
        return wrong("kernels that cannot run together with kernel " + s.name);
    }
  }
  void verify(const KernelStep& s) {
    if (s.kernel >= executable_.kernels.size()) wrong("kernel c" + std::to_string(s.kernel));
    if (s.place.stream != 0) wrong("stream " + std::to_string(s.place.stream) + ": only each device's first is there");
    if (s.unit < 1) wrong("a unit of " + std::to_string(s.unit));
    if (!s.place.device.is_cpu() && s.grain > 0)
      wrong("parts of a kernel that runs on device " + text_of(s.place.device));
    verify_together(s);
    for (BufferId b : s.buffers) verify(b);
    for (const auto& [argument, bytes] : s.offsets)
      if (argument >= s.buffers.size() || bytes < 0) wrong("an offset of argument " + std::to_string(argument));
    verify(s.sizes);
    verify(s.extent);
  }
  struct VerifyArg {
    Verifier& v;
    void operator()(BufferId b) const {
      if (b != kNoBuffer) v.verify(b);
    }
    void operator()(const std::vector<BufferId>& list) const {
      for (BufferId b : list) (*this)(b);
    }
    void operator()(const Size& s) const { v.verify(s); }
    void operator()(const std::vector<Size>& s) const { v.verify(s); }
    template <class Other> void operator()(const Other&) const {}
  };
  void verify(const ExternStep& s) {
    for (const PlanArg& a : s.args) std::visit(VerifyArg{*this}, a.payload);
    for (BufferId b : s.results)
      if (b != kNoBuffer) verify(b);
  }
  void verify(const AllocateStep& s) {
    verify_tensor(s.buffer);
    if (s.over == kNoBuffer) return;
    verify(s.over);
    if (s.buffer >= plan_.buffers.size() || s.over >= plan_.buffers.size()) return;
    const Buffer &made = plan_.buffers[s.buffer], &over = plan_.buffers[s.over];
    if (over.storage != Storage::kSaved && over.storage != Storage::kInput)
      wrong("b" + std::to_string(s.over) + " is not a saved value to write over");
    if (made.torch_dtype != over.torch_dtype || made.sizes != over.sizes || made.strides != over.strides ||
        !(made.device == over.device))
      wrong("b" + std::to_string(s.buffer) + " does not fit over b" + std::to_string(s.over));
  }
  void verify(const ViewStep& s) { verify(s.base), verify_tensor(s.result); }
  void verify(const FreeStep& s) {
    verify(s.buffer);
    if (s.buffer < plan_.buffers.size() && plan_.buffers[s.buffer].storage != Storage::kSaved) verify_tensor(s.buffer);
  }
  void verify_tensor(BufferId b) {
    verify(b);
    if (b < plan_.buffers.size() && plan_.buffers[b].storage != Storage::kTensor)
      wrong("b" + std::to_string(b) + " has no tensor of its own");
  }
  void verify_block(uint32_t block) {
    if (block == 0 || block >= plan_.arena.size()) wrong("arena " + std::to_string(block) + " is not taken by a step");
  }
  void verify(const TakeStep& s) { verify_block(s.block); }
  void verify(const GiveStep& s) { verify_block(s.block); }

  const Executable& executable_;
  const CallPlan& plan_;
  const char* kind_;
  size_t step_ = 0;  // the step that is checked now
  std::string wrong_;
};

}  // namespace

bool PlanArg::operator==(const PlanArg& other) const {
  const auto same = [](double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); };
  if (const auto* number = std::get_if<double>(&payload)) {
    const auto* theirs = std::get_if<double>(&other.payload);
    return theirs != nullptr && same(*number, *theirs);
  }
  if (const auto* list = std::get_if<std::vector<double>>(&payload)) {
    const auto* theirs = std::get_if<std::vector<double>>(&other.payload);
    return theirs != nullptr && std::equal(list->begin(), list->end(), theirs->begin(), theirs->end(), same);
  }
  return payload == other.payload;
}

bool Executable::operator==(const Executable& other) const {
  const auto same_id = [](const auto& a, const auto& b) {
    return a->id == b->id && a->target == b->target && a->name == b->name;
  };
  return name == other.name &&
         std::equal(kernels.begin(), kernels.end(), other.kernels.begin(), other.kernels.end(), same_id) &&
         derived == other.derived && saved == other.saved && derive == other.derive && forward == other.forward &&
         backward == other.backward;
}

namespace {

// A derivation takes inputs that are the same in each call, and has one output.
Result<void> verify_derivation(const Executable& executable, const CallPlan& derivation) {
  FJ_TRY_VOID(Verifier(executable, derivation, "derive").run());
  const bool is_one_value = derivation.outputs.size() == 1 && derivation.outputs[0].kind == Output::kBuffer;
  if (is_one_value && derivation.symbol_count == 0 && derivation.updates.empty()) return {};
  return Error{Reason::not_verified,
               "plan derive @" + derivation.name + ": it does not derive one value of constant size"};
}

Result<void> verify_derived(const Executable& executable) {
  for (const CallPlan& derivation : executable.derive) FJ_TRY_VOID(verify_derivation(executable, derivation));
  for (const DerivedValue& value : executable.derived)
    if (value.derivation >= executable.derive.size() ||
        executable.derive[value.derivation].input_count != value.operands.size() || value.operands.empty())
      return Error{Reason::not_verified, "@" + executable.name + " has a derived value that no derivation makes"};
  return {};
}

}  // namespace

Result<void> verify(const Executable& executable) {
  FJ_TRY_VOID(verify_derived(executable));
  FJ_TRY_VOID(Verifier(executable, executable.forward, "forward").run());
  const bool is_backward_alone = executable.forward == CallPlan{} && !executable.backward.empty();
  if (!is_backward_alone && executable.forward.saves.size() != executable.saved.size())
    return Error{Reason::not_verified, "plan forward @" + executable.name + " saves " +
                                   std::to_string(executable.forward.saves.size()) + " values of " +
                                   std::to_string(executable.saved.size())};
  for (const CallPlan& plan : executable.backward) FJ_TRY_VOID(Verifier(executable, plan, "backward").run());
  return {};
}

CallPlan moved_plan(Executable from, Executable& to) {
  for (Step& step : from.forward.steps) {
    auto* kernel = std::get_if<KernelStep>(&step);
    if (kernel == nullptr) continue;
    const auto& code = from.kernels[kernel->kernel];
    const auto known =
        std::find_if(to.kernels.begin(), to.kernels.end(), [&](const auto& k) { return k->id == code->id; });
    kernel->kernel = static_cast<uint32_t>(known - to.kernels.begin());
    if (known == to.kernels.end()) to.kernels.push_back(code);
  }
  return std::move(from.forward);
}

Result<const LoadedKernel*> BoundExecutable::load(const KernelStep& step, KernelLoader& loader) {
  const DeviceId device = step.place.device;
  const std::pair<uint32_t, DeviceId> key{step.kernel, device};
  if (const auto known = loaded_.find(key); known != loaded_.end()) return &known->second;
  FJ_TRY(LoadedKernel code, loader.load(executable_.kernels[step.kernel], device));
  return &loaded_.emplace(key, std::move(code)).first->second;
}

Result<BoundPlan> BoundExecutable::bind_plan(const CallPlan& plan, KernelLoader& loader) {
  BoundPlan bound{&plan, {}};
  for (const Step& step : plan.steps) {
    bound.kernels.push_back(nullptr);
    if (const auto* kernel = std::get_if<KernelStep>(&step)) {
      FJ_TRY(bound.kernels.back(), load(*kernel, loader));
    }
  }
  return bound;
}

Result<std::shared_ptr<const BoundExecutable>> BoundExecutable::bind(Executable executable, KernelLoader& loader) {
  FJ_TRY_VOID(verify(executable));
  auto bound = std::make_shared<BoundExecutable>();
  bound->executable_ = std::move(executable);
  const Executable& whole = bound->executable_;
  FJ_TRY(bound->forward_, bound->bind_plan(whole.forward, loader));
  for (const auto& [plans, made] : {std::pair(&whole.derive, &bound->derive_), {&whole.backward, &bound->backward_}})
    for (const CallPlan& plan : *plans) {
      FJ_TRY(BoundPlan one, bound->bind_plan(plan, loader));
      made->push_back(std::move(one));
    }
  return std::shared_ptr<const BoundExecutable>(std::move(bound));
}

}  // namespace framejit::runtime
