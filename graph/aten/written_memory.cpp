// graph/aten/written_memory.cpp — what an op writes, and whether it reads or writes the same memory elsewhere.
//
// A functional form reads all its arguments before it writes. Kernels do so only element by element: one that reads an
// element after it has written it shows the difference. Eager refuses some of those calls, and computes others.
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <optional>
#include <span>

#include "graph/aten/eager_errors.h"
#include "graph/aten/recorder.h"
#include "graph/op_lists.h"
#include "graph/ops/rule_kit.h"

namespace framejit::graph {
namespace {

// native_batch_norm writes the running statistics, although its schema does not say so.
std::vector<int8_t> written_arguments(const OpCall& call) {
  if (!call.def().is(KnownOp::native_batch_norm) || call.args.size() < 6 || !call.args[5].isBool() ||
      !call.args[5].toBool())
    return call.def().write_args;
  return {3, 4};
}

// A tensor among the arguments.
struct Place {
  ValueId value;
  uint32_t storage;
  size_t arg;
  std::optional<size_t> item;  // in a list
  bool is_written;
  int64_t begin = 0, end = 0;  // the range of bytes that it spans in the storage, for the hints
};

std::vector<Place> places_of(const OpCall& call, const Graph& g) {
  const std::vector<int8_t> written = written_arguments(call);
  std::vector<Place> places;
  for (size_t i = 0; i < call.node.args.size(); ++i) {
    const bool is_written = std::ranges::find(written, static_cast<int8_t>(i)) != written.end();
    const auto add = [&](ValueId v, std::optional<size_t> item) {
      if (v != kNoValue) places.push_back({v, g.values[index_of(v)].storage, i, item, is_written});
    };
    if (const ValueId* one = call.node.args[i].get<ValueId>()) add(*one, std::nullopt);
    if (const auto* list = call.node.args[i].get<std::vector<ValueId>>())
      for (size_t item = 0; item < list->size(); ++item) add((*list)[item], item);
  }
  return places;
}

// Whether `distance` is a sum of multiples of the strides, where each multiple is between 0 and its size - 1. The steps
// are sorted by stride, the longest first. After too many tries, it gives up and returns true.
struct Step {
  int64_t stride, size;
};
bool reaches(int64_t distance, std::span<const Step> steps, int& budget) {
  if (distance == 0) return true;
  if (distance < 0 || steps.empty()) return false;
  if (--budget < 0) return true;
  int64_t rest = 0;  // how far the other steps come
  for (const Step& step : steps.subspan(1)) rest += step.stride * (step.size - 1);
  const auto [stride, size] = steps.front();
  const int64_t first = distance > rest ? (distance - rest + stride - 1) / stride : 0;
  for (int64_t n = first; n < size && n * stride <= distance; ++n)
    if (reaches(distance - n * stride, steps.subspan(1), budget)) return true;
  return false;
}

// Whether two tensors of one storage and one size of elements have an element in common, for the hints. An index into b
// counts from its end, so that both move in one direction.
bool share_elements(const TensorMeta& a, const TensorMeta& b, const ShapeEnv& env) {
  std::vector<Step> steps;
  int64_t distance = env.hint(b.offset) - env.hint(a.offset);
  const auto take = [&](const TensorMeta& meta, bool backwards) {
    for (size_t d = 0; d < meta.ndim(); ++d) {
      const int64_t stride = env.hint(meta.strides[d]), size = env.hint(meta.sizes[d]);
      if (backwards) distance += stride * (size - 1);
      if (stride != 0 && size > 1) steps.push_back({stride, size});
    }
  };
  take(a, false);
  take(b, true);
  std::ranges::stable_sort(steps, std::greater(), &Step::stride);
  int budget = 10'000;
  return reaches(distance, steps, budget);
}

bool is_same_layout(const TensorMeta& a, const TensorMeta& b) {
  return a.dtype == b.dtype && a.sizes == b.sizes && a.strides == b.strides && a.offset == b.offset;
}

// Whether an element of the result is written after the last read of the same element of each argument.
bool reads_each_element_first(const OpCall& call) {
  const OpDef& op = call.def();
  const OpInfo* functional = op.functional.empty() ? nullptr : find_op_info(op.functional);
  const auto is_pointwise = [](const OpInfo& info) {
    return info.def->has(kPointwise) || info.handle.hasTag(at::Tag::pointwise);
  };
  return op.is(KnownOp::copy_in_place) || is_pointwise(call.info) ||
         (functional != nullptr && (is_pointwise(*functional) || is_in(OpList::in_order, functional->def->name)));
}

}  // namespace

void Recorder::refuse_writes_to_constants(const OpCall& call) {
  for (int8_t i : written_arguments(call))
    each_tensor(call.args[static_cast<size_t>(i)], [&](const at::Tensor& tensor) {
      if (as_traced(tensor) == nullptr)
        fail({Reason::unsupported_op, call.def().name + " that writes to a tensor captured as a constant"});
    });
}

// Ops on lists compute one item after the other: item i of a result from item i of each list.
bool Recorder::reads_what_it_writes(const OpCall& call) {
  const Graph& g = graph();
  std::vector<Place> places = places_of(call, g);
  std::erase_if(places, [&](const Place& place) { return g.meta(place.value).numel() == SymExpr(0); });
  for (Place& place : places) {
    const TensorMeta& meta = g.meta(place.value);
    const int64_t first = shapes().hint(meta.offset), bytes = row_of(meta.dtype).bytes;
    int64_t last = first;
    for (size_t d = 0; d < meta.ndim(); ++d)
      last += (shapes().hint(meta.sizes[d]) - 1) * shapes().hint(meta.strides[d]);
    place.begin = first * bytes;
    place.end = (last + 1) * bytes;
  }
  std::ranges::stable_sort(places, {}, [](const Place& place) { return std::pair(place.storage, place.begin); });
  const auto collide = [&](const Place& a, const Place& b) {
    if (!a.is_written && !b.is_written) return false;
    const bool is_first_read =
        a.item && b.item && a.is_written != b.is_written && (a.is_written ? b.item < a.item : a.item < b.item);
    if (is_first_read) return false;
    const TensorMeta &one = g.meta(a.value), &other = g.meta(b.value);
    if (a.value == b.value || is_same_layout(one, other)) {
      if (a.is_written && b.is_written) return true;
      return a.item || b.item ? a.item != b.item : !reads_each_element_first(call);
    }
    return one.dtype != other.dtype || share_elements(one, other, shapes());
  };
  for (auto a = places.begin(); a != places.end(); ++a)
    for (auto b = a + 1; b != places.end() && b->storage == a->storage && b->begin < a->end; ++b)
      if (collide(*a, *b)) return true;
  return false;
}

// Refuses what has no functional form: several writes to one element, and results that keep the storage offset of their
// first argument.
void Recorder::refuse_memory(const OpCall& call) {
  const auto meta_at = [&](size_t i) -> const TensorMeta* {
    const ValueId* v = i < call.node.args.size() ? call.node.args[i].get<ValueId>() : nullptr;
    return v == nullptr || *v == kNoValue ? nullptr : &graph().meta(*v);
  };
  for (int8_t i : written_arguments(call))
    each_tensor(call.args[static_cast<size_t>(i)], [&](const at::Tensor& tensor) {
      if (kept_storages_.contains(storage_number(traced_storage_of(tensor))))
        fail({Reason::unsupported_op, call.def().name + " that writes to memory shared with an array"});
    });
  for (int8_t i : written_arguments(call))
    if (const TensorMeta* written = meta_at(static_cast<size_t>(i));
        !call.info.in_place && written != nullptr && overlaps_itself(*written))
      fail({Reason::unsupported_op, call.def().name + " that writes to a tensor whose elements share memory"});
  if (reads_what_it_writes(call))
    fail({Reason::unsupported_op, call.def().name + " that writes to a part of what it reads"});
  if (call.def().has(kKeepsPlace) && meta_at(0) != nullptr) {
    if (!(meta_at(0)->offset == SymExpr(0)))
      fail({Reason::unsupported_op, call.def().name + " of a tensor whose storage begins before it"});
    offset_is_read(traced_storage_of(call.args[0].toTensor()));
  }
}

// The dispatcher's own layers count writes. What the kernels of ops count is counted here, because they do not run:
// writes to lists, and those with which a function fills its new tensor, unless the caller (Python) turns that off.
void Recorder::note_writes(const OpCall& call) {
  const auto count_write = [](const at::Tensor& tensor) {
    if (tensor.unsafeGetTensorImpl()->version_counter().enabled()) tensor.unsafeGetTensorImpl()->bump_version();
  };
  const bool kernel_counts = call.def().name.starts_with("_foreach_");
  for (int8_t i : written_arguments(call))
    each_tensor(call.args[static_cast<size_t>(i)], [&](const at::Tensor& tensor) {
      written_storages_.insert(storage_number(traced_storage_of(tensor)));
      if (kernel_counts) count_write(tensor);
    });
  if (is_in(OpList::fills_result, call.def().name) &&
      !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::ADInplaceOrView))
    for (const c10::IValue& result : call.results) each_tensor(result, count_write);
}

}  // namespace framejit::graph
