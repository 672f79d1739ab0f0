// frame_hook/trace/values/weight_sources.h — which inputs of a trace are weights of a module, judged by where they come
// from.
#pragma once

#include "frame_hook/trace/values/heap.h"

namespace framejit::frame_hook {

// The nn.Module that holds an input as a parameter or buffer; programs seldom write to those, but read them in each
// call. kNoSource: none.
guards::SourceId owner_of(const Heap& heap, guards::SourceId input);
bool is_parameter(const Heap& heap, guards::SourceId input);

}  // namespace framejit::frame_hook
