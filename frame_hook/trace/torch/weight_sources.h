// frame_hook/trace/torch/weight_sources.h — which inputs of a trace a module keeps as its weights: by where they come
// from.
#pragma once

#include "guards/source.h"

namespace framejit::frame_hook {

// The module that keeps an input as a parameter or buffer, by which a program seldom writes and reads in each call;
// kNoSource: none does.
guards::SourceId owner_of(const guards::SourceTable& sources, guards::SourceId input);
bool is_parameter(const guards::SourceTable& sources, guards::SourceId input);

}  // namespace framejit::frame_hook
