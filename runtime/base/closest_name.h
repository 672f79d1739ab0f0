// runtime/base/closest_name.h — what an error says about a name that is not known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace framejit {

// "did you mean graph_breaks? Known: graph, graph_breaks", or "known: graph, graph_breaks" if none is close.
std::string advice_for(std::string_view name, const std::vector<std::string>& known);

}  // namespace framejit
