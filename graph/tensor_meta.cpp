// graph/tensor_meta.cpp — questions that a meta can answer alone, without a ShapeEnv.
#include "graph/tensor_meta.h"

namespace framejit::graph {

SymExpr TensorMeta::numel() const {
  SymExpr product = 1;
  for (const SymExpr& size : sizes) product = product * size;
  return product;
}

SymSizes contiguous_strides(const SymSizes& sizes) {
  SymSizes strides(sizes.size());
  SymExpr running = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = running;
    if (sizes[i] != SymExpr(0)) running = running * sizes[i];  // as torch: an empty dimension counts as one
  }
  return strides;
}

bool TensorMeta::is_contiguous() const {
  SymExpr running = 1;
  bool row_major = true;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == SymExpr(0)) return true;
    if (sizes[i] == SymExpr(1)) continue;
    row_major = row_major && strides[i] == running;
    running = running * sizes[i];
  }
  return row_major;
}

namespace {

std::string list_text(const SymSizes& list) {
  std::string text;
  for (size_t i = 0; i < list.size(); ++i) text += (i != 0 ? ", " : "") + list[i].text();
  return text;
}

}  // namespace

std::string text_of(Device device) {
  static constexpr const char* kNames[] = {"cpu", "cuda", "meta", "other"};
  return kNames[static_cast<int>(device.type)] + (device.index >= 0 ? ":" + std::to_string(device.index) : "");
}

std::string text_of(const TensorMeta& meta) {
  std::string text = std::string(row_of(meta.dtype).text) + "[" + list_text(meta.sizes);
  const bool has_offset = meta.offset != SymExpr(0);
  if (has_offset || meta.strides != contiguous_strides(meta.sizes)) text += "; " + list_text(meta.strides);
  if (has_offset) text += "; " + meta.offset.text();
  text += "]";
  if (meta.device != Device{}) text += " @" + text_of(meta.device);
  if (meta.requires_grad) text += " grad";
  if (meta.is_packed) text += " packed";
  return text;
}

}  // namespace framejit::graph
