// runtime/base/said_once.h — what the log says once until reset(), whoever says it. Thread-safe.
#pragma once

#include <string>

namespace framejit::log {

bool is_new(const std::string& subject);  // true for the first time since forget_what_was_said()
void forget_what_was_said();

}  // namespace framejit::log
