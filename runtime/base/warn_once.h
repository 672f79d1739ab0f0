// runtime/base/warn_once.h — what the log says once until reset(), whoever says it. Thread-safe.
#pragma once

#include <string>

#include "runtime/base/reasons.h"

namespace framejit::log {

bool is_first_time(const std::string& subject);  // true for the first time since reset_warn_once()

// One line on the channel `warnings`, once for each reason and detail.
void warn_reason(Reason reason, const std::string& detail, const std::string& where);

void reset_warn_once();

}  // namespace framejit::log
