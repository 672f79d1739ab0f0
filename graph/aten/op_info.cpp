// graph/aten/op_info.cpp — reading schemas.
#include "graph/aten/op_info.h"

#include <ATen/core/enum_tag.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "graph/aten/torch_texts.h"
#include "graph/aten/typed_meta.h"
#include "graph/op_lists.h"
#include "runtime/aten/shape_functions.h"

namespace framejit::graph {
namespace {

using c10::DispatchKey;
using c10::FunctionSchema;

constexpr std::string_view kAten = "aten::";

std::string name_of(const FunctionSchema& schema) {
  std::string name = schema.name();
  if (name.starts_with(kAten)) name.erase(0, kAten.size());
  if (!schema.overload_name().empty()) name += "." + schema.overload_name();
  return name;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

const c10::KernelFunction* find_typed_meta(const std::string& name) {
  static const auto* const table = [] {
    auto* rows = new std::unordered_map<std::string, c10::KernelFunction>;
    for (TypedMetaRow& row : typed_meta_rows()) rows->emplace(row.name, std::move(row.kernel));
    return rows;
  }();
  const auto at = table->find(name);
  return at == table->end() ? nullptr : &at->second;
}

struct AliasNames {
  static bool share(const c10::AliasInfo* a, const c10::AliasInfo* b) {
    if (a == nullptr || b == nullptr) return false;
    return std::any_of(a->beforeSets().begin(), a->beforeSets().end(),
                       [&](const auto& set) { return b->beforeSets().count(set) != 0; });
  }
};

void read_aliases(const FunctionSchema& schema, OpDef& def, std::vector<bool>& returns_argument) {
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    def.arg_names.push_back(arguments[i].name());
    if (is_written(arguments[i])) def.write_args.push_back(static_cast<int8_t>(i));
  }
  for (const auto& result : schema.returns()) {
    int8_t alias = -1;
    for (size_t i = 0; i < arguments.size() && alias < 0; ++i)
      if (AliasNames::share(arguments[i].alias_info(), result.alias_info())) alias = static_cast<int8_t>(i);
    def.result_alias.push_back(alias);
    const bool written = result.alias_info() != nullptr && result.alias_info()->isWrite();
    returns_argument.push_back(alias >= 0 && written);
    if (alias >= 0 && !written) def.flags |= kView;
  }
  if (!def.write_args.empty()) def.flags |= kMutates;
}

DataDependence data_dependence_of(const c10::OperatorHandle& op, const std::string& name) {
  // A tensor with one number for each tensor of the lists: torch reads the numbers and passes them to the kernels.
  const auto& arguments = op.schema().arguments();
  const auto reads_numbers = [](const c10::Argument& a) {
    return a.name() == "scalars" && a.type()->kind() == c10::TypeKind::TensorType;
  };
  if (std::any_of(arguments.begin(), arguments.end(), reads_numbers)) return DataDependence::kAlways;
  const auto tags = op.getTags();
  const bool tagged = std::any_of(tags.begin(), tags.end(), [](at::Tag tag) {
    return tag == at::Tag::data_dependent_output || tag == at::Tag::dynamic_output_shape;
  });
  if (!tagged && known_op(name) != KnownOp::local_scalar_dense) return DataDependence::kNone;
  if (is_in(OpList::of_masks, name)) return DataDependence::kOfMasks;
  return is_in(OpList::without_size, name) ? DataDependence::kWithoutSize : DataDependence::kAlways;
}

void read_tags(const c10::OperatorHandle& op, OpDef& def) {
  for (at::Tag tag : op.getTags())
    if (tag == at::Tag::nondeterministic_seeded) def.flags |= kRandom;
  if (is_in(OpList::only_asserts, def.name)) def.flags |= kSideEffect;
  if (runtime::is_users(def.name)) def.flags |= kSideEffect;  // it may count, print or draw
}

bool same_argument(const c10::Argument& a, const c10::Argument& b) {
  return a.name() == b.name() && *a.real_type() == *b.real_type();
}

// Whether `candidate` takes the arguments of `schema`, except the out= arguments.
bool is_functional_twin(const FunctionSchema& candidate, const FunctionSchema& schema, bool out_style) {
  size_t next = 0;
  for (const c10::Argument& argument : candidate.arguments())
    if (is_written(argument)) return false;
  for (const c10::Argument& argument : schema.arguments()) {
    if (out_style && is_written(argument)) continue;
    if (next == candidate.arguments().size() || !same_argument(candidate.arguments()[next], argument)) return false;
    ++next;
  }
  return next == candidate.arguments().size();
}

// The overload of a functional form may have the name of the mutating overload, or another one; the arguments decide.
std::vector<std::string> overload_candidates(const std::string& name, const std::string& overload) {
  std::vector<std::string> names{overload};
  for (const char* suffix : {"_out", ".out", "out"})
    if (overload.ends_with(suffix))
      names.push_back(overload.substr(0, overload.size() - std::string_view(suffix).size()));
  for (const c10::OperatorName& other : c10::Dispatcher::singleton().getAllOpNames())
    if (other.name == name) names.push_back(other.overload_name);
  return names;
}

void find_functional(const FunctionSchema& schema, OpDef& def) {
  const bool out_style = std::any_of(schema.arguments().begin(), schema.arguments().end(),
                                     [](const auto& a) { return is_written(a) && a.kwarg_only(); });
  std::string base = schema.name();
  if (!out_style && base.ends_with("_")) base.pop_back();
  for (const std::string& name : {base, base + "_functional"})
    for (const std::string& overload : overload_candidates(name, schema.overload_name())) {
      const auto twin = c10::Dispatcher::singleton().findSchema({name, overload});
      if (!twin || !is_functional_twin(twin->schema(), schema, out_style)) continue;
      def.functional = name_of(twin->schema());
      def.drops_out_args = out_style;
      return;
    }
}

std::unique_ptr<OpInfo> read_op_info(const c10::OperatorHandle& op) {
  const FunctionSchema& schema = op.schema();
  auto info = std::make_unique<OpInfo>(op);
  OpDef def;
  def.name = name_of(schema);
  read_aliases(schema, def, info->returns_argument);
  read_tags(op, def);
  info->data_dependence = data_dependence_of(op, def.name);
  if (info->data_dependence == DataDependence::kAlways) def.flags |= kDataDependent;
  if (def.has(kMutates)) find_functional(schema, def);
  info->decomposes = op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
                     !op.hasKernelForDispatchKey(DispatchKey::CPU) &&
                     !op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd);
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    info->arg_classes.push_back(class_of(schema.arguments()[i]));
    if (schema.arguments()[i].name() == "device") info->device_arg = static_cast<int>(i);
  }
  for (const c10::Argument& result : schema.returns()) {
    const ArgClass c = class_of(result);
    info->returns.push_back(c == ArgClass::kTensor       ? ReturnClass::kTensor
                            : c == ArgClass::kTensorList ? ReturnClass::kTensorList
                                                         : ReturnClass::kOther);
  }
  info->typed_meta = find_typed_meta(def.name);
  info->in_place = def.write_args == std::vector<int8_t>{0} && info->returns_argument == std::vector<bool>{true} &&
                   !is_in(OpList::changes_shape, base_name(def.name)) && !schema.arguments()[0].kwarg_only();
  info->def = declare_op(std::move(def));
  if (!info->def->functional.empty() && info->def->has(kMutates))
    find_op_info(info->def->functional);  // passes need its definition
  return info;
}

}  // namespace

MetaKernel OpInfo::meta_kernel() const {
  if (meta_kernel_ != MetaKernel::kUnknown) return meta_kernel_;
  if (!handle.hasComputedKernelForDispatchKey(DispatchKey::Meta)) return meta_kernel_ = MetaKernel::kNone;
  const std::string dump = handle.dumpState();
  const size_t start = find_torch_text(TorchText::meta_kernel, dump);
  const std::string line = start == std::string::npos ? "" : dump.substr(start, dump.find('\n', start + 1) - start);
  return meta_kernel_ = has_torch_text(TorchText::python_kernel, line) ? MetaKernel::kPython : MetaKernel::kCpp;
}

namespace {

struct KnownOps {
  std::recursive_mutex mutex;  // recursive: a mutating op declares its functional form
  std::unordered_map<std::string, std::unique_ptr<OpInfo>> by_name;
  std::atomic<uint64_t> deregistrations = 0;
};

KnownOps& known_ops() {
  static auto* const known = new KnownOps;
  return *known;
}

// A later operator may have the name, or the address, of one that is gone.
class Forgets final : public c10::OpRegistrationListener {
 public:
  void onOperatorRegistered(const c10::OperatorHandle&) override {}
  void onOperatorDeregistered(const c10::OperatorHandle& op) override {
    const std::string name = name_of(op.schema());
    KnownOps& known = known_ops();
    const std::lock_guard lock(known.mutex);
    const auto at = known.by_name.find(name);
    if (at == known.by_name.end()) return;
    (void)at->second.release();  // graphs may name it
    known.by_name.erase(at);
    forget_op(name);
    known.deregistrations += 1;
  }
};

}  // namespace

const OpInfo& op_info_of(const c10::OperatorHandle& op) {
  static const auto* const listening = new c10::RegistrationHandleRAII(
      c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Forgets>()));
  (void)listening;
  KnownOps& known = known_ops();
  thread_local std::unordered_map<const void*, const OpInfo*> seen;
  thread_local uint64_t seen_deregistrations = 0;
  if (const uint64_t now = known.deregistrations; std::exchange(seen_deregistrations, now) != now) seen.clear();
  const void* const key = &op.schema();
  if (const auto at = seen.find(key); at != seen.end()) return *at->second;

  const std::lock_guard lock(known.mutex);
  std::unique_ptr<OpInfo>& slot = known.by_name[name_of(op.schema())];
  if (!slot) slot = read_op_info(op);
  seen[key] = slot.get();
  return *slot;
}

const OpInfo* find_op_info(std::string_view name) {
  const size_t dot = name.find('.');
  std::string base(name.substr(0, dot)), overload(dot == std::string_view::npos ? "" : name.substr(dot + 1));
  if (base.find("::") == std::string::npos) base = std::string(kAten) + base;
  const auto op = c10::Dispatcher::singleton().findSchema({base, overload});
  return op ? &op_info_of(*op) : nullptr;
}

}  // namespace framejit::graph
