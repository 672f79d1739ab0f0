// frame_hook/trace/protocol/strings.h — the text of a value, and codecs.
//
// str(), repr() and format() themselves are members of Tracer.
#pragma once

#include <string>

#include "frame_hook/trace/machine/tracer.h"

namespace framejit::frame_hook {

std::string repr_text(Tracer& t, Value* v);
Value* itself_if_unchanged(Shadows& shadows, Value* v, Value* result);
void refuse_foreign_codecs(Shadows& shadows, const Arguments& args);  // of self, encoding, errors

}  // namespace framejit::frame_hook
