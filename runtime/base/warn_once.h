// runtime/base/warn_once.h — what the log says once until reset(), whoever says it. Thread-safe.
#pragma once

#include <string>

namespace framejit::log {

bool is_first_time(const std::string& subject);  // true for the first time since reset_warn_once()
void reset_warn_once();

}  // namespace framejit::log
