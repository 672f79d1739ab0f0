// runtime/aten/extern_call.cpp — converts plan arguments to boxed values, by the types of the operator's schema.
#include "runtime/aten/extern_call.h"

#include <ATen/ScalarOps.h>

#include <algorithm>

#include "runtime/aten/shape_functions.h"

namespace framejit::runtime {

std::vector<int64_t> constants_of(const std::vector<Size>& sizes) {
  std::vector<int64_t> values;
  for (const Size& size : sizes) values.push_back(size.constant);
  return values;
}

bool all_constant(const std::vector<Size>& sizes) {
  for (const Size& size : sizes)
    if (size.slot >= 0) return false;
  return true;
}

namespace {

using c10::TypeKind;

std::string own_form(const std::string& op) {
#define OWN_OP(name, own) \
  if (op == name) return own;
#include "runtime/aten/own_ops.def"
#undef OWN_OP
  return op;
}

c10::OperatorHandle find_operator(const std::string& text) {
  const size_t space = text.find("::");
  const std::string full = space == std::string::npos ? "aten::" + text : text;
  const size_t dot = full.find('.', full.find("::"));
  const std::string name = full.substr(0, dot), overload = dot == std::string::npos ? "" : full.substr(dot + 1);
  auto found = c10::Dispatcher::singleton().findSchema({name, overload});
  FJ_ASSERT(found, "no operator " + text);
  return *found;
}

c10::TypePtr without_optional(c10::TypePtr type) {
  while (type->kind() == TypeKind::OptionalType) type = type->castRaw<c10::OptionalType>()->getElementType();
  return type;
}
bool is_optional(const c10::TypePtr& type) { return type->kind() == TypeKind::OptionalType; }
c10::TypePtr element_of(const c10::TypePtr& list) {
  return list->kind() == TypeKind::ListType ? list->castRaw<c10::ListType>()->getElementType() : c10::TypePtr();
}
bool wants_float(const c10::TypePtr& type) { return type->kind() == TypeKind::FloatType; }
bool wants_number(const c10::TypePtr& type) { return type->kind() == TypeKind::NumberType; }

// A list of numbers in the element type of the schema. An int[] given as one int becomes a list of one.
c10::IValue integer_list(const std::vector<int64_t>& values, const c10::TypePtr& list) {
  const c10::TypePtr element = element_of(list) ? without_optional(element_of(list)) : c10::TypePtr();
  if (element && wants_float(element)) return c10::IValue(std::vector<double>(values.begin(), values.end()));
  if (element && wants_number(element)) return c10::IValue(std::vector<at::Scalar>(values.begin(), values.end()));
  if (element && element->kind() == TypeKind::BoolType) {
    c10::List<bool> flags;
    for (int64_t v : values) flags.push_back(v != 0);
    return c10::IValue(std::move(flags));
  }
  return c10::IValue(values);
}

c10::IValue integer_value(int64_t value, const c10::TypePtr& type) {
  if (wants_float(type)) return c10::IValue(static_cast<double>(value));
  if (type->kind() == TypeKind::BoolType) return c10::IValue(value != 0);
  if (type->kind() == TypeKind::ListType) return integer_list({value}, type);
  return c10::IValue(value);
}

bool wants_tensor(const c10::TypePtr& type) { return type->kind() == TypeKind::TensorType; }

// A Python number in place of a tensor: a 0-dim tensor that promotes as a number does.
c10::IValue wrapped_number(const at::Scalar& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return c10::IValue(std::move(tensor));
}

struct ConstantValue {  // a value that needs neither a tensor nor a run-time size
  const c10::TypePtr& type;
  const std::vector<c10::IValue>& opaque;
  c10::IValue operator()(const None&) const { return {}; }
  c10::IValue operator()(const Size& s) const {
    return wants_tensor(type) ? wrapped_number(s.constant) : integer_value(s.constant, type);
  }
  c10::IValue operator()(const std::vector<Size>& v) const { return integer_list(constants_of(v), type); }
  c10::IValue operator()(double d) const {
    if (wants_tensor(type)) return wrapped_number(d);
    return type->kind() == TypeKind::ListType ? c10::IValue(std::vector<double>{d}) : c10::IValue(d);
  }
  c10::IValue operator()(const std::vector<double>& v) const {
    if (element_of(type) && wants_number(without_optional(element_of(type))))
      return c10::IValue(std::vector<at::Scalar>(v.begin(), v.end()));
    return c10::IValue(v);
  }
  c10::IValue operator()(bool b) const { return wants_tensor(type) ? wrapped_number(b) : c10::IValue(b); }
  c10::IValue operator()(const std::vector<bool>& v) const {
    c10::List<bool> flags;
    for (bool b : v) flags.push_back(b);
    return c10::IValue(std::move(flags));
  }
  c10::IValue operator()(const std::string& s) const { return c10::IValue(s); }
  c10::IValue operator()(const TorchDType& t) const { return c10::IValue(static_cast<int64_t>(t.scalar_type)); }
  c10::IValue operator()(const TorchDevice& d) const {
    return c10::IValue(c10::Device(static_cast<c10::DeviceType>(d.type), d.index));
  }
  c10::IValue operator()(const TorchEnum& e) const { return c10::IValue(static_cast<int64_t>(e.value)); }
  c10::IValue operator()(const OpaqueSlot& o) const {
    FJ_ASSERT(o.index < opaque.size(), "opaque slot " + std::to_string(o.index));
    return opaque[o.index];
  }
  c10::IValue operator()(BufferId) const { return {}; }
  c10::IValue operator()(const std::vector<BufferId>&) const { return {}; }
};

}  // namespace

ExternCall::ExternCall(const ExternStep& step, const std::vector<c10::IValue>& opaque)
    : op_(find_operator(own_form(step.op))),
      is_users_(is_users(step.op)),
      result_lists_(step.result_lists),
      results_(step.results) {
  const c10::FunctionSchema& schema = op_.schema();
  FJ_ASSERT(step.args.size() <= schema.arguments().size(), "too many arguments of " + step.op);
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& formal = schema.arguments()[i];
    if (i < step.args.size()) {
      add_argument(step.args[i], formal, opaque);
    } else {
      FJ_ASSERT(formal.default_value(), step.op + " lacks " + formal.name());
      constants_.push_back(*formal.default_value());
    }
  }
  note_aliases(schema, step);
  if (is_users_ && written_.empty()) compared_name_ = step.op;
}

void ExternCall::add_argument(const PlanArg& arg, const c10::Argument& formal, const std::vector<c10::IValue>& opaque) {
  const c10::TypePtr type = without_optional(formal.real_type());
  const auto index = static_cast<uint32_t>(constants_.size());
  const auto* size = std::get_if<Size>(&arg.payload);
  const auto* sizes = std::get_if<std::vector<Size>>(&arg.payload);
  if (std::holds_alternative<None>(arg.payload) && wants_tensor(type) && !is_optional(formal.real_type()))
    // Torch's formulas may omit tensors that are not optional.
    return constants_.push_back(c10::IValue(at::Tensor()));
  if (const auto* buffer = std::get_if<BufferId>(&arg.payload)) {
    if (*buffer != kNoBuffer) filled_.push_back({Filled::tensor, index, {*buffer}, {}});
    else if (!is_optional(formal.real_type())) return constants_.push_back(c10::IValue(at::Tensor()));
  } else if (const auto* buffers = std::get_if<std::vector<BufferId>>(&arg.payload)) {
    const bool optional = element_of(type) && is_optional(element_of(type));
    filled_.push_back({optional ? Filled::optional_tensors : Filled::tensors, index, *buffers, {}});
  } else if (size && size->slot >= 0) {
    const auto kind = wants_tensor(type)                   ? Filled::wrapped
                      : type->kind() == TypeKind::ListType ? Filled::integers
                      : wants_float(type)                  ? Filled::number
                                                           : Filled::integer;
    filled_.push_back({kind, index, {}, {*size}});
  } else if (sizes && (!all_constant(*sizes) || sizes->empty())) {
    const bool numbers = element_of(type) && wants_number(without_optional(element_of(type)));
    filled_.push_back({numbers ? Filled::scalars : Filled::integers, index, {}, *sizes});
    const bool no_integers = element_of(type) && element_of(type)->kind() == TypeKind::TensorType;
    if (no_integers) filled_.back().kind = Filled::tensors;  // an empty list has no type of its own
  }
  constants_.push_back(std::visit(ConstantValue{type, opaque}, arg.payload));
}

void ExternCall::note_aliases(const c10::FunctionSchema& schema, const ExternStep& step) {
  for (const c10::Argument& result : schema.returns())
    returns_view_ |= result.alias_info() && !result.alias_info()->isWrite();
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    if (!alias) continue;
    if (i >= step.args.size()) continue;
    const auto note = [&](BufferId buffer) {
      viewed_.push_back(buffer);
      if (alias->isWrite()) written_.push_back(buffer);
    };
    if (const auto* buffer = std::get_if<BufferId>(&step.args[i].payload)) note(*buffer);
    if (const auto* buffers = std::get_if<std::vector<BufferId>>(&step.args[i].payload))
      std::for_each(buffers->begin(), buffers->end(), note);
  }
}

c10::IValue ExternCall::make(const Filled& filled, Operands& operands) const {
  const auto integers = [&] {
    std::vector<int64_t> values;
    for (const Size& size : filled.sizes) values.push_back(operands.value(size));
    return values;
  };
  switch (filled.kind) {
    case Filled::tensor: return c10::IValue(operands.tensor(filled.buffers[0]));
    case Filled::tensors: {
      c10::List<at::Tensor> list;
      for (BufferId b : filled.buffers) list.push_back(b == kNoBuffer ? at::Tensor() : operands.tensor(b));
      return c10::IValue(std::move(list));
    }
    case Filled::optional_tensors: {
      c10::List<std::optional<at::Tensor>> list;
      for (BufferId b : filled.buffers)
        list.push_back(b == kNoBuffer ? std::optional<at::Tensor>() : std::optional<at::Tensor>(operands.tensor(b)));
      return c10::IValue(std::move(list));
    }
    case Filled::wrapped: return wrapped_number(operands.value(filled.sizes[0]));
    case Filled::integer: return c10::IValue(operands.value(filled.sizes[0]));
    case Filled::number: return c10::IValue(static_cast<double>(operands.value(filled.sizes[0])));
    case Filled::integers: return integer_list(integers(), op_.schema().arguments()[filled.arg].real_type());
    case Filled::scalars: {
      const std::vector<int64_t> values = integers();
      return c10::IValue(std::vector<at::Scalar>(values.begin(), values.end()));
    }
  }
  return {};
}

namespace {

// Whether lists among the results have the lengths in the node's result_lists. -1 stands for a tensor; an empty
// result_lists means that all results are tensors.
bool has_lengths(const std::vector<c10::IValue>& results, const std::vector<int16_t>& lists) {
  if (lists.empty()) return std::ranges::none_of(results, &c10::IValue::isTensorList);
  return std::ranges::equal(results, lists, [](const c10::IValue& result, int16_t length) {
    return result.isTensorList() ? static_cast<int64_t>(result.toTensorList().size()) == length : length < 0;
  });
}

}  // namespace

void ExternCall::run(Operands& operands, std::vector<c10::IValue>& stack) const {
  stack.clear();
  auto filled = filled_.begin();
  for (uint32_t i = 0; i < constants_.size(); ++i) {
    if (filled != filled_.end() && filled->arg == i) stack.push_back(make(*filled++, operands));
    else stack.push_back(constants_[i]);
  }
  if (is_users_) {
    const c10::impl::ForceDispatchKeyGuard as_the_program(operands.callers_keys());
    op_.callBoxed(&stack);
  } else {
    op_.callBoxed(&stack);
  }
  size_t at = 0;
  const auto next = [&](at::Tensor tensor) {
    const BufferId buffer = at < results_.size() ? results_[at] : kNoBuffer;
    ++at;
    if (buffer == kNoBuffer) return;
    if (!compared_name_.empty() && !operands.is_as_planned(buffer, tensor)) throw ShapeFunctionErred(compared_name_);
    operands.store(buffer, std::move(tensor));
  };
  if (!compared_name_.empty() && !has_lengths(stack, result_lists_)) throw ShapeFunctionErred(compared_name_);
  for (c10::IValue& result : stack) {
    if (result.isTensor()) next(std::move(result).toTensor());
    else if (result.isTensorList()) for (const at::Tensor& t : result.toTensorVector()) next(t);
    // Numbers are not results of a node: the trace knows them.
  }
  stack.clear();
}

bool ExternCall::draws(std::optional<at::Generator>& generator) const {
  bool has_argument = op_.hasTag(at::Tag::nondeterministic_seeded);
  for (size_t i = 0; i < constants_.size(); ++i) {
    if (op_.schema().arguments()[i].name() == "dropout_p" && constants_[i].isDouble() && constants_[i].toDouble() == 0)
      return false;  // attention without dropout
    if (constants_[i].isGenerator()) generator = constants_[i].toGenerator();
    const c10::Type& type = *op_.schema().arguments()[i].type();
    has_argument |= type.kind() == c10::TypeKind::GeneratorType ||
                    (type.kind() == c10::TypeKind::OptionalType &&
                     type.castRaw<c10::OptionalType>()->getElementType()->kind() == c10::TypeKind::GeneratorType);
  }
  return has_argument;
}

}  // namespace framejit::runtime
