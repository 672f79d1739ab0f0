// tests/parsers/graph_parser.h — reads the text of a graph: what graph/graph_text.cpp prints, and what cases write by
// hand. Errors name line and column. Verify the result before anything else uses it.
#pragma once

#include <string_view>

#include "graph/graph.h"

namespace framejit::graph {

Result<Graph> parse_graph(std::string_view text);

}  // namespace framejit::graph
