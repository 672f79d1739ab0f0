// frame_hook/trace/values/weight_sources.cpp — module.__dict__['_parameters' or '_buffers'][name].
#include "frame_hook/trace/values/weight_sources.h"

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

SourceId owner_of(const SourceTable& sources, SourceId input) {
  const SourceId holder = holder_of(sources, input);
  if (holder == kNoSource || !(is_named(sources, holder, "_parameters") || is_named(sources, holder, "_buffers")))
    return kNoSource;
  return base_of(sources, sources[holder].base, SourceKind::instance_dict);
}

bool is_parameter(const SourceTable& sources, SourceId input) {
  const SourceId holder = holder_of(sources, input);
  return holder != kNoSource && is_named(sources, holder, "_parameters") && owner_of(sources, input) != kNoSource;
}

}  // namespace framejit::frame_hook
