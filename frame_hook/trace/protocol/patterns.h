// frame_hook/trace/protocol/patterns.h — mapping and class patterns of match statements.
//
// Each returns the values of the pattern's parts as a tuple, or None if it does not match.
#pragma once

#include <vector>

#include "frame_hook/trace/machine/tracer.h"

namespace framejit::frame_hook {

Value* mapping_pattern(Tracer& t, Value* mapping, Value* keys);
Value* class_pattern(Tracer& t, Value* subject, Value* type, size_t positional, const std::vector<Value*>& names);

}  // namespace framejit::frame_hook
