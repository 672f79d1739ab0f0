// graph/tensor_meta.h — what a graph knows of a tensor without its data.
#pragma once

#include <string>

#include "graph/sym_expr.h"
#include "runtime/dtype.h"

namespace framejit::graph {

enum class DeviceType : uint8_t { kCpu, kCuda, kMeta, kOther };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int8_t index = -1;
  bool is_cpu() const { return type == DeviceType::kCpu; }
  friend bool operator==(const Device&, const Device&) = default;
};

struct TensorMeta {
  DType dtype = DType::kFloat32;
  Device device;
  SymSizes sizes;
  SymSizes strides;  // in elements, one per size
  SymExpr offset;    // storage offset in elements
  bool requires_grad = false;
  bool is_packed = false;  // in the layout of the library that made it; strides and offset mean nothing

  size_t ndim() const { return sizes.size(); }
  bool is_cpu_scalar() const { return sizes.empty() && device.is_cpu(); }  // torch's kernels read it as a number
  SymExpr numel() const;
  bool is_contiguous() const;  // structurally: strides equal the row-major ones of sizes (size-1 dimensions may differ)
  friend bool operator==(const TensorMeta&, const TensorMeta&) = default;
};

std::string text_of(Device device);  // "cpu", "cuda:0"
SymSizes contiguous_strides(const SymSizes& sizes);
std::string text_of(const TensorMeta& meta);  // "f32[s0, 64; 1, s0]"; strides only if not contiguous

}  // namespace framejit::graph
