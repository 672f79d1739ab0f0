// tests/parsers/loop_parser.h — reads the text of a loop program: what inductor/loop/loop_text.cpp prints, and what
// cases write by hand. Errors name line and column. The result is verified.
#pragma once

#include <string_view>

#include "inductor/loop/loop_program.h"

namespace framejit::inductor {

Result<LoopProgram> parse_loops(std::string_view text);

}  // namespace framejit::inductor
