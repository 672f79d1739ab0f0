// frame_hook/trace/torch/broadcast_sizes.cpp — the sizes that several sizes are broadcast to.
#include <algorithm>

#include "frame_hook/trace/types/builtins.h"
#include "frame_hook/trace/types/containers.h"
#include "frame_hook/trace/values/known_types.h"
#include "frame_hook/trace/values/payloads.h"

namespace framejit::frame_hook::rows {

namespace {

bool is_size_object(Value* v) { return is_known(v->type, KnownType::torch_size); }
bool is_sequence_of_sizes(Value* v) { return v->type == &PyTuple_Type || v->type == &PyList_Type || is_size_object(v); }

}  // namespace

// torch._refs._broadcast_shapes(*shapes). Null: its own code must run, to raise or because an argument is not a size.
Value* broadcast_shapes(Tracer& t, const Arguments& args) {
  std::vector<std::vector<Value*>> shapes;
  size_t ndim = 0;
  for (Value* v : args.positional) {
    if (is_none(t.facts, v)) continue;
    if (!is_int(v) && !is_sequence_of_sizes(v)) return nullptr;
    shapes.push_back(is_int(v) ? std::vector<Value*>{v} : t.unpack(v));
    if (!std::ranges::all_of(shapes.back(), is_int)) return nullptr;
    ndim = std::max(ndim, shapes.back().size());
  }
  if (!args.keywords.empty()) return nullptr;
  if (shapes.empty()) return t.heap.none();
  const auto equal = [&](Value* a, Value* b) { return t.truth(t.compare(Py_EQ, a, b)); };
  Value *const zero = t.heap.integer(0), *const one = t.heap.integer(1);
  std::vector<Value*> common(ndim, one);
  for (const std::vector<Value*>& shape : shapes)
    for (size_t from_end = 1; from_end <= shape.size(); ++from_end) {
      Value *size = shape[shape.size() - from_end], *&joined = common[ndim - from_end];
      if (equal(size, joined)) continue;
      if (equal(joined, one)) {
        if (t.truth(t.compare(Py_LT, size, zero))) return nullptr;
        joined = size;
      } else if (!equal(size, one)) {
        return nullptr;
      }
    }
  return t.heap.list(std::move(common));
}

// torch._C._infer_size(a, b): the same of two torch.Size, as one.
Value* infer_size(Tracer& t, const Arguments& args) {
  const bool two_sizes = args.positional.size() == 2 && std::ranges::all_of(args.positional, is_size_object);
  Value* const common = two_sizes ? broadcast_shapes(t, args) : nullptr;
  if (!common) graph_break(Reason::exception_raised, "an error of _infer_size(), whose sizes do not match,");
  return sequence_like(t.heap, args.positional[0], t.unpack(common));
}

}  // namespace framejit::frame_hook::rows
