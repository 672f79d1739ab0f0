// graph/plan_sizes.cpp — size expressions of a graph become slots of a plan's size program; metas become buffers.
#include "graph/backend.h"

namespace framejit::graph {
namespace {

int8_t c10_device(DeviceType type) {  // values of c10::DeviceType
  switch (type) {
    case DeviceType::kCpu: return 0;
    case DeviceType::kCuda: return 1;
    case DeviceType::kMeta: return 14;
    case DeviceType::kOther: return -1;
  }
  return -1;
}

}  // namespace

runtime::DeviceId runtime_device(Device device) {
  if (device.is_cpu()) return {};
  return {c10_device(device.type), device.index};
}

runtime::Place place_of(const Graph& graph, const Node& node) {
  runtime::Place place;
  for (ValueId v : node.results)
    if (v != kNoValue) place.device = runtime_device(graph.meta(v).device);
  return place;
}

runtime::Size PlanSizes::size(const SymExpr& e) {
  if (e.is_constant()) return {e.constant(), -1};
  return {0, program_.slot(e)};
}

std::vector<runtime::Size> PlanSizes::sizes(const SymSizes& e) {
  std::vector<runtime::Size> result;
  for (const SymExpr& item : e) result.push_back(size(item));
  return result;
}

runtime::Buffer PlanSizes::buffer(const TensorMeta& meta) {
  runtime::Buffer buffer;
  buffer.dtype = meta.dtype;
  buffer.torch_dtype = row_of(meta.dtype).torch_scalar_type;
  buffer.is_packed = meta.is_packed;
  buffer.device = runtime_device(meta.device);
  buffer.sizes = sizes(meta.sizes);
  buffer.strides = sizes(meta.strides);
  buffer.offset = size(meta.offset);
  return buffer;
}

runtime::PlanArg PlanSizes::arg(const Arg& a, const std::vector<runtime::BufferId>& buffer_of_value) {
  runtime::PlanArg result;
  auto buffer_of = [&](ValueId v) { return v == kNoValue ? runtime::kNoBuffer : buffer_of_value[index_of(v)]; };
  if (const auto* v = a.get<ValueId>()) {
    if (*v != kNoValue) result.payload = buffer_of(*v);
  } else if (const auto* values = a.get<std::vector<ValueId>>()) {
    std::vector<runtime::BufferId> list;
    for (ValueId item : *values) list.push_back(buffer_of(item));
    result.payload = std::move(list);
  } else if (const auto* e = a.get<SymExpr>()) {
    result.payload = size(*e);
  } else if (const auto* list = a.get<SymSizes>()) {
    result.payload = sizes(*list);
  } else if (const auto* dtype = a.get<DType>()) {
    result.payload = runtime::TorchDType{row_of(*dtype).torch_scalar_type};
  } else if (const auto* device = a.get<Device>()) {
    result.payload = runtime::TorchDevice{c10_device(device->type), device->index};
  } else if (const auto* e = a.get<TorchEnum>()) {
    result.payload = *e;
  } else if (const auto* opaque = a.get<OpaqueSlot>()) {
    result.payload = *opaque;
  } else if (const auto* d = a.get<double>()) {
    result.payload = *d;
  } else if (const auto* doubles = a.get<std::vector<double>>()) {
    result.payload = *doubles;
  } else if (const auto* b = a.get<bool>()) {
    result.payload = *b;
  } else if (const auto* bools = a.get<std::vector<bool>>()) {
    result.payload = *bools;
  } else if (const auto* s = a.get<std::string>()) {
    result.payload = *s;
  }
  return result;
}

}  // namespace framejit::graph
