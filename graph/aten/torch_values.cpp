// graph/aten/torch_values.cpp — conversions between c10's types and the graph's.
#include "graph/aten/torch_values.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/jit_type.h>

namespace framejit::graph {

namespace {

static_assert(static_cast<int>(c10::kFloat) == 6 && static_cast<int>(c10::kBool) == 11 &&
                  static_cast<int>(c10::kBFloat16) == 15,
              "dtypes.def disagrees with c10::ScalarType");

c10::TypePtr plain_type(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type;
}

std::optional<Arg> scalar_of(const c10::IValue& value) {
  if (value.isBool()) return Arg(value.toBool());
  if (value.isInt()) return Arg(SymExpr(value.toInt()));
  if (value.isDouble()) return Arg(value.toDouble());
  return std::nullopt;
}

// A list of Scalars is supported if all are ints or all are floats.
std::optional<Arg> scalars_of(const c10::IValue& value) {
  std::vector<SymExpr> ints;
  std::vector<double> floats;
  for (const c10::IValue& item : value.toListRef()) {
    if (item.isInt()) ints.push_back(item.toInt());
    else if (item.isDouble()) floats.push_back(item.toDouble());
    else return std::nullopt;
  }
  if (!ints.empty() && !floats.empty()) return std::nullopt;
  return floats.empty() ? Arg(std::move(ints)) : Arg(std::move(floats));
}

}  // namespace

c10::ScalarType scalar_type_of(DType dtype) {
  FJ_ASSERT(dtype != DType::kOther, "a dtype without a row reached a graph");
  return static_cast<c10::ScalarType>(row_of(dtype).torch_scalar_type);
}

Device device_of(c10::Device device) {
  DeviceType type = DeviceType::kOther;
  if (device.is_cpu()) type = DeviceType::kCpu;
  if (device.is_cuda()) type = DeviceType::kCuda;
  if (device.is_meta()) type = DeviceType::kMeta;
  return {type, static_cast<int8_t>(device.index())};
}

c10::Device torch_device_of(Device device) {
  switch (device.type) {
    case DeviceType::kCpu: return {c10::kCPU, device.index};
    case DeviceType::kCuda: return {c10::kCUDA, device.index};
    case DeviceType::kMeta: return {c10::kMeta, device.index};
    case DeviceType::kOther: break;
  }
  FJ_ASSERT(false, "a device of another kind reached a graph");
  return {c10::kCPU};
}

ArgClass class_of(const c10::Argument& argument) {
  const c10::TypePtr type = plain_type(argument);
  switch (type->kind()) {
    case c10::TypeKind::TensorType: return ArgClass::kTensor;
    case c10::TypeKind::ScalarTypeType: return ArgClass::kDType;
    case c10::TypeKind::LayoutType: return ArgClass::kLayout;
    case c10::TypeKind::MemoryFormatType: return ArgClass::kMemoryFormat;
    case c10::TypeKind::QSchemeType: return ArgClass::kQScheme;
    case c10::TypeKind::GeneratorType: return ArgClass::kGenerator;
    case c10::TypeKind::NumberType: return ArgClass::kScalar;
    case c10::TypeKind::ListType: break;
    default: return ArgClass::kPlain;
  }
  const c10::TypePtr element = type->castRaw<c10::ListType>()->getElementType();
  if (element->kind() == c10::TypeKind::TensorType) return ArgClass::kTensorList;
  if (element->kind() == c10::TypeKind::OptionalType) return ArgClass::kOptionalTensorList;
  if (element->kind() == c10::TypeKind::NumberType) return ArgClass::kScalarList;
  return ArgClass::kPlain;
}

TensorMeta meta_of(const at::Tensor& tensor) {
  TensorMeta meta;
  meta.dtype = dtype_of(tensor.scalar_type());
  meta.device = device_of(tensor.device());
  for (int64_t size : tensor.sizes()) meta.sizes.push_back(size);
  for (int64_t stride : tensor.strides()) meta.strides.push_back(stride);
  meta.offset = tensor.storage_offset();
  return meta;
}

std::optional<Arg> number_of(const at::Tensor& wrapped_number) {
  const c10::Scalar scalar = wrapped_number.item();
  if (scalar.isBoolean()) return Arg(scalar.toBool());
  if (scalar.isIntegral(false)) return Arg(SymExpr(scalar.toLong()));
  if (scalar.isFloatingPoint()) return Arg(scalar.toDouble());
  return std::nullopt;
}

namespace {

std::optional<Arg> enum_of(const c10::IValue& value, ArgClass arg_class) {
  switch (arg_class) {
    case ArgClass::kDType: {
      const DType dtype = dtype_of(value.toScalarType());
      return dtype == DType::kOther ? std::nullopt : std::optional<Arg>(dtype);
    }
    case ArgClass::kLayout: return Arg(TorchEnum{'l', static_cast<int8_t>(value.toInt())});
    case ArgClass::kMemoryFormat: return Arg(TorchEnum{'m', static_cast<int8_t>(value.toInt())});
    case ArgClass::kQScheme: return Arg(TorchEnum{'q', static_cast<int8_t>(value.toInt())});
    default: return std::nullopt;
  }
}

std::optional<Arg> device_arg(const c10::Device& device) {
  const Device known = device_of(device);
  return known.type == DeviceType::kOther ? std::nullopt : std::optional<Arg>(known);
}

}  // namespace

std::optional<Arg> arg_of(const c10::IValue& value, ArgClass arg_class) {
  if (value.isNone()) return Arg();
  if (arg_class == ArgClass::kDType || arg_class == ArgClass::kLayout || arg_class == ArgClass::kMemoryFormat ||
      arg_class == ArgClass::kQScheme)
    return enum_of(value, arg_class);
  if (arg_class == ArgClass::kScalarList) return scalars_of(value);
  if (value.isDevice()) return device_arg(value.toDevice());
  if (value.isString()) return Arg(std::string(value.toStringRef()));
  if (value.isIntList()) {
    const auto ints = value.toIntVector();
    return Arg(std::vector<SymExpr>(ints.begin(), ints.end()));
  }
  if (value.isDoubleList()) return Arg(value.toDoubleVector());
  if (value.isBoolList()) {
    const auto list = value.toBoolList();
    return Arg(std::vector<bool>(list.begin(), list.end()));
  }
  return scalar_of(value);
}

namespace {

c10::IValue list_ivalue(const Arg& arg, ArgClass arg_class, std::span<const at::Tensor> values,
                        const SizeValue& size_of) {
  auto at_index = [&](ValueId v) { return v == kNoValue ? at::Tensor() : values[index_of(v)]; };
  if (const auto* ids = arg.get<std::vector<ValueId>>()) {
    if (arg_class == ArgClass::kOptionalTensorList) {
      c10::List<std::optional<at::Tensor>> list;
      for (ValueId v : *ids) list.push_back(v == kNoValue ? std::nullopt : std::optional<at::Tensor>(at_index(v)));
      return list;
    }
    c10::List<at::Tensor> list;
    for (ValueId v : *ids) list.push_back(at_index(v));
    return list;
  }
  c10::impl::GenericList numbers(c10::NumberType::get());
  const bool scalars = arg_class == ArgClass::kScalarList;
  if (const auto* sizes = arg.get<std::vector<SymExpr>>()) {
    c10::List<int64_t> list;
    for (const SymExpr& e : *sizes) scalars ? numbers.push_back(size_of(e)) : list.push_back(size_of(e));
    return scalars ? c10::IValue(numbers) : c10::IValue(list);
  }
  if (const auto* floats = arg.get<std::vector<double>>()) {
    for (double d : *floats) numbers.push_back(d);
    return scalars ? c10::IValue(numbers) : c10::IValue(*floats);
  }
  c10::List<bool> bools;
  for (bool b : *arg.get<std::vector<bool>>()) bools.push_back(b);
  return bools;
}

c10::IValue number_ivalue(const c10::Scalar& number, ArgClass arg_class) {
  if (arg_class == ArgClass::kTensor) return at::native::wrapped_scalar_tensor(number);
  return c10::IValue(number);
}

}  // namespace

c10::IValue ivalue_of(const Arg& arg, const c10::Argument& schema, std::span<const at::Tensor> values,
                      std::span<const c10::IValue> opaques, const SizeValue& size_of) {
  const ArgClass arg_class = class_of(schema);
  if (arg.is_none())
    return arg_class == ArgClass::kTensor && schema.type()->kind() == c10::TypeKind::TensorType
               ? c10::IValue(at::Tensor())
               : c10::IValue();
  if (const auto* v = arg.get<ValueId>()) return *v == kNoValue ? c10::IValue() : c10::IValue(values[index_of(*v)]);
  if (const auto* e = arg.get<SymExpr>()) return number_ivalue(size_of(*e), arg_class);
  if (const auto* d = arg.get<double>()) return number_ivalue(*d, arg_class);
  if (const auto* b = arg.get<bool>()) return number_ivalue(*b, arg_class);
  if (const auto* s = arg.get<std::string>()) return *s;
  if (const auto* t = arg.get<DType>()) return static_cast<int64_t>(scalar_type_of(*t));
  if (const auto* d = arg.get<Device>()) return torch_device_of(*d);
  if (const auto* e = arg.get<TorchEnum>()) return static_cast<int64_t>(e->value);
  if (const auto* slot = arg.get<OpaqueSlot>()) return opaques[slot->index];
  return list_ivalue(arg, arg_class, values, size_of);
}

}  // namespace framejit::graph
