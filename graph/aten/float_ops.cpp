// graph/aten/float_ops.cpp — registers twins with the dispatcher, and runs them.
#include "graph/aten/float_ops.h"

#include <ATen/core/jit_type.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "graph/passes/decompose.h"

namespace framejit::graph {
namespace {

constexpr std::string_view kNamespace = "framejit::";

bool is_number(const c10::Argument& argument) { return class_of(argument) == ArgClass::kScalar; }

c10::Argument with_value(const c10::Argument& a) {
  c10::TypePtr type = a.real_type();
  if (is_number(a))
    type = type->kind() == c10::TypeKind::OptionalType ? c10::TypePtr(c10::OptionalType::create(c10::TensorType::get()))
                                                       : c10::TypePtr(c10::TensorType::get());
  const std::optional<c10::AliasInfo> alias = a.alias_info() ? std::optional(*a.alias_info()) : std::nullopt;
  return c10::Argument(a.name(), std::move(type), a.N(), std::nullopt, a.kwarg_only(),
                       alias);  // nodes give every argument, so there are no defaults
}

// "framejit::pow.Tensor_Scalar" runs pow.Tensor_Scalar.
void run_twin(const c10::OperatorHandle& twin, torch::jit::Stack* stack) {
  const c10::OperatorName& name = twin.operator_name();
  const OpInfo* info =
      find_op_info(name.name.substr(kNamespace.size()) + (name.overload_name.empty() ? "" : "." + name.overload_name));
  FJ_ASSERT(info != nullptr, "a twin without its operator: " + name.name);
  const auto& arguments = info->handle.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    if (!is_number(arguments[i]) || !value.isTensor()) continue;
    const at::Tensor& tensor = value.toTensor();
    value = tensor.defined() ? c10::IValue(tensor.item()) : c10::IValue();
  }
  info->handle.callBoxed(*stack);
}

const OpDef* register_twin(const OpInfo& info) {
  const c10::FunctionSchema& schema = info.handle.schema();
  constexpr std::string_view kAten = "aten::";
  if (!schema.name().starts_with(kAten) || info.def->has(kRefusesNumbers) ||
      std::none_of(schema.arguments().begin(), schema.arguments().end(), is_number))
    return nullptr;
  if (info.def->has(kMutates)) {
    const OpInfo* functional = info.def->functional.empty() ? nullptr : find_op_info(info.def->functional);
    if (functional == nullptr || twin_with_values(*functional) == nullptr) return nullptr;
  }
  std::vector<c10::Argument> arguments;
  for (const c10::Argument& a : schema.arguments()) arguments.push_back(with_value(a));
  const std::string base = schema.name().substr(kAten.size()),
                    name = schema.overload_name().empty() ? base : base + "." + schema.overload_name();
  static auto* const library = new torch::Library(torch::Library::FRAGMENT, "framejit", std::nullopt, __FILE__,
                                                  __LINE__);  // never removed: graphs name its ops
  const std::vector<at::Tag> tags = info.handle.getTags().vec();
  library->def(c10::FunctionSchema(std::string(kNamespace) + base, schema.overload_name(), std::move(arguments),
                                   schema.returns()),
               tags);
  // Its gradient is that of the op which it calls.
  library->impl(name.c_str(), torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd,
                                              torch::CppFunction::makeFromBoxedFunction<&run_twin>()));
  const OpInfo* twin = find_op_info(std::string(kNamespace) + name);
  FJ_ASSERT(twin != nullptr, "the twin of " + name + " is missing");
  // Passes split an op on lists into single ops, so the single op needs a twin too.
  const std::string_view single = single_of_list_op(info.def->name);
  if (const OpInfo* of_single = single.empty() ? nullptr : find_op_info(single)) twin_with_values(*of_single);
  return twin->def;
}

}  // namespace

const OpDef* twin_with_values(const OpInfo& info) {
  static std::recursive_mutex mutex;  // recursive: the twin of a writing op needs the twin of its functional form
  static auto* const twins = new std::unordered_map<const OpDef*, const OpDef*>;
  std::lock_guard lock(mutex);
  if (const auto at = twins->find(info.def); at != twins->end()) return at->second;
  const OpDef* twin = register_twin(info);
  return (*twins)[info.def] = twin;
}

}  // namespace framejit::graph
