#include "frame_hook/trace/values/dynamic_sources.h"

#include <algorithm>
#include <cstring>

#include "frame_hook/trace/values/size_marks.h"

namespace framejit::frame_hook {

using guards::kNoSource;
using guards::SourceId;
using guards::SourceKind;

namespace {

bool is_listed(const TraceHints& hints, const std::string& text) {
  return std::find(hints.dynamic_sources.begin(), hints.dynamic_sources.end(), text) != hints.dynamic_sources.end();
}

// The argument itself, or an item of it.
bool is_of_argument(const guards::SourceTable& sources, SourceId source) {
  while (source != kNoSource &&
         (sources[source].kind == SourceKind::tuple_item || sources[source].kind == SourceKind::list_item ||
          sources[source].kind == SourceKind::dict_item))
    source = sources[source].base;
  return source != kNoSource && sources[source].kind == SourceKind::local;
}

void add_dim(std::vector<bool>& dims, size_t dim) {
  if (dim >= dims.size()) dims.resize(dim + 1, false);
  dims[dim] = true;
}

}  // namespace

// 0 and 1 stay constants until the int has changed once, because too much code asks for them. A loop index starts with
// one of them and changes.
bool DynamicSources::becomes_symbol(PyObject* integer, SourceId source) const {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(integer, &overflow);
  if (overflow || !is_dynamic(source)) return false;
  return (value != 0 && value != 1) || is_listed(hints_, this->text(source));
}

bool DynamicSources::holds_symbol(PyObject* object, SourceId source) const {
  if (hints_.dynamic_never || (!hints_.dynamic_all && hints_.dynamic_sources.empty())) return false;
  if (PyLong_CheckExact(object)) return becomes_symbol(object, source);
  for (Py_ssize_t i = 0; PyTuple_CheckExact(object) && i < PyTuple_GET_SIZE(object); ++i)
    if (holds_symbol(PyTuple_GET_ITEM(object, i),
                     sources_.add(SourceKind::tuple_item, source, static_cast<int32_t>(i))))
      return true;
  return false;
}

// Sources are compared as texts, so texts are made only if there is something to compare with.
std::string DynamicSources::name(SourceId source) const {
  for (SourceId at = source; at != kNoSource; at = sources_[at].base)
    if (sources_[at].kind == SourceKind::stack) return "";
  return source == kNoSource || !hints_.names ? "" : sources_.words(source, *hints_.names);
}

bool DynamicSources::is_dynamic(SourceId source) const {
  if (source != kNoSource &&
      (sources_[source].kind == SourceKind::computed || sources_[source].kind == SourceKind::tensor_number))
    return true;
  if (hints_.dynamic_never) return false;
  if (hints_.dynamic_all && is_of_argument(sources_, source)) return true;
  if (hints_.dynamic_sources.empty()) return false;
  return is_listed(hints_, this->text(source));
}

// The frontend keeps sizes and strides of 0 and 1 constant.
graph::DynamicExtents DynamicSources::extents(SourceId source, PyObject* tensor, bool is_parameter) const {
  graph::DynamicExtents found;
  std::vector<bool>& dims = found.sizes;
  if (hints_.dynamic_never) return found;
  if (hints_.dynamic_all && is_dynamic(source)) dims.assign(64, true);
  // Parameters of another size mean another module: with symbols, nothing could be derived from them.
  const bool varies = !hints_.dynamic_sources.empty() && !is_parameter;
  const std::string text = varies ? this->text(source) : "";
  for (const std::string& dynamic : hints_.dynamic_sources) {
    if (!varies || !dynamic.starts_with(text)) continue;
    const std::string_view rest = std::string_view(dynamic).substr(text.size());
    for (auto [what, which] : {std::pair(".size(", &found.sizes), std::pair(".stride(", &found.strides)})
      if (rest.starts_with(what)) add_dim(*which, std::strtoul(rest.data() + std::strlen(what), nullptr, 10));
  }
  if (!dims.empty()) add_dim(dims, 0);  // where lengths vary, batches often do: the last one of an epoch is smaller
  const SizeMarks marks = size_marks(tensor);
  for (const SizeMarks::Dynamic& mark : marks.dynamic) add_dim(dims, mark.dim);
  for (size_t dim : marks.fixed)
    if (dim < dims.size()) dims[dim] = false;
  return found;
}

}  // namespace framejit::frame_hook
