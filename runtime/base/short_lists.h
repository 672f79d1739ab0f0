// runtime/base/short_lists.h — texts of graphs as people read them: long lists of long lines end with "... 120 more".
// What programs read (dumps, JSON, listeners) keeps them whole.
#pragma once

#include <string>
#include <string_view>

namespace framejit::text {

std::string with_short_lists(std::string_view text);

}  // namespace framejit::text
