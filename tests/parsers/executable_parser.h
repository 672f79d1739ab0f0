// tests/parsers/executable_parser.h — reads what runtime/executable_text.cpp prints. Errors name line and column.
#pragma once

#include <optional>
#include <string_view>

#include "runtime/executable.h"

namespace framejit::runtime {

std::optional<KernelId> parse_kernel_id(std::string_view text);  // of KernelId::text()
// Kernels have an id, a target and a name, but no code. Whoever binds the result verifies it.
Result<Executable> parse_executable(std::string_view printed);

}  // namespace framejit::runtime
