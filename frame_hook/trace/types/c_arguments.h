// frame_hook/trace/types/c_arguments.h — the arguments of C functions: bound to names, counted.
//
// The errors are those of CPython's own argument parsers.
#pragma once

#include <initializer_list>
#include <vector>

#include "frame_hook/trace/machine/errors.h"
#include "frame_hook/trace/values/arguments.h"

namespace framejit::frame_hook {

// In order of the names, '$' before the first keyword-only one; missing optional arguments are null.
std::vector<Value*> parse(Errors& errors, const Arguments& args, const char* function,
                          std::initializer_list<const char*> names, size_t required);
void only_positional(Errors& errors, const Arguments& args, const char* function, size_t least, size_t most);

}  // namespace framejit::frame_hook
