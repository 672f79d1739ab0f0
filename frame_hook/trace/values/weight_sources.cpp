// frame_hook/trace/values/weight_sources.cpp — module.__dict__['_parameters' or '_buffers'][name].
#include "frame_hook/trace/values/weight_sources.h"

#include "frame_hook/trace/values/object_kinds.h"

namespace framejit::frame_hook {
namespace {

using guards::kNoSource;
using guards::SourceId;
using guards::SourceKind;
using guards::SourceTable;

SourceId base_of(const SourceTable& sources, SourceId id, SourceKind kind) {
  return id != kNoSource && sources[id].kind == kind ? sources[id].base : kNoSource;
}

// The dict that holds the input as an item, if that dict is itself an item.
SourceId holder_of(const SourceTable& sources, SourceId input) {
  const SourceId holder = base_of(sources, input, SourceKind::dict_item);
  return base_of(sources, holder, SourceKind::dict_item) == kNoSource ? kNoSource : holder;
}

bool is_named(const SourceTable& sources, SourceId holder, const char* name) {
  PyObject* const key = sources[holder].key.get();
  return key != nullptr && PyUnicode_CheckExact(key) && PyUnicode_CompareWithASCIIString(key, name) == 0;
}

}  // namespace

SourceId owner_of(const Heap& heap, SourceId input) {
  const SourceTable& sources = heap.facts.sources();
  const SourceId holder = holder_of(sources, input);
  if (holder == kNoSource || !(is_named(sources, holder, "_parameters") || is_named(sources, holder, "_buffers")))
    return kNoSource;
  const SourceId owner = base_of(sources, sources[holder].base, SourceKind::instance_dict);
  const Value* const module = owner == kNoSource ? nullptr : heap.find(owner);
  return module && module->object && is_torch_module(module->object.get()) ? owner : kNoSource;
}

bool is_parameter(const Heap& heap, SourceId input) {
  return owner_of(heap, input) != kNoSource &&
         is_named(heap.facts.sources(), holder_of(heap.facts.sources(), input), "_parameters");
}

}  // namespace framejit::frame_hook
