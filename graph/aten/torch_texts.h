// graph/aten/torch_texts.h — texts of torch that decide something: rows of torch_texts.def.
#pragma once

#include <string_view>

namespace framejit::graph {

enum class TorchText {
  no_memory,
  reads_memory,
  traced_limit,
  freed_graph,
  written_since,
  written_views,
  meta_kernel,
  python_kernel,
};

// The position in `text` of the first row of the group that occurs in it; npos: none does.
inline size_t find_torch_text(TorchText group, std::string_view text) {
  struct Row {
    TorchText group;
    std::string_view part;
  };
  static constexpr Row kRows[] = {
#define TORCH_TEXT(group, text, why) {TorchText::group, text},
#include "graph/aten/torch_texts.def"
#undef TORCH_TEXT
  };
  for (const Row& row : kRows)
    if (const size_t at = row.group == group ? text.find(row.part) : text.npos; at != text.npos) return at;
  return text.npos;
}
inline bool has_torch_text(TorchText group, std::string_view text) { return find_torch_text(group, text) != text.npos; }

}  // namespace framejit::graph
