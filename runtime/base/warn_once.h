// runtime/base/warn_once.h — what the log says once until reset(), whoever says it. Thread-safe.
#pragma once

#include <string>

#include "runtime/base/reasons.h"

namespace framejit::log {

bool is_first_time(const std::string& subject);  // true for the first time since reset_warn_once()

enum class Extent { call, instruction };  // what runs as plain Python: a call, or what a graph break stops before
enum class OnceFor { detail, place };  // a line for each detail, or for each place and detail

// One line on the channel `warnings`.
void warn_reason(Reason reason, const std::string& detail, const std::string& where, Extent extent, OnceFor once_for);
void warn_reason(Reason reason, const std::string& detail, const std::string& where);  // of a call, once for the detail

void reset_warn_once();

}  // namespace framejit::log
