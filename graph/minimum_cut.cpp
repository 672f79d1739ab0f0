// graph/minimum_cut.cpp — maximum flow by Dinic's method: finds shortest paths for all vertices at once, then
// saturates them.
#include "graph/minimum_cut.h"

#include <algorithm>

namespace framejit::graph {

void MinimumCut::add(size_t from, size_t to, int64_t capacity, int64_t back) {
  out_[from].push_back(edges_.size());
  edges_.push_back({to, capacity});
  out_[to].push_back(edges_.size());
  edges_.push_back({from, back});
}

void MinimumCut::prefer(size_t vertex, int64_t weight) {
  if (weight > 0) add(source(), vertex, weight, 0);
  if (weight < 0) add(vertex, sink(), -weight, 0);
}

void MinimumCut::join(size_t a, size_t b, int64_t weight) { add(a, b, weight, weight); }

void MinimumCut::precede(size_t a, size_t b, int64_t weight) { add(a, b, weight, 0); }

bool MinimumCut::find_levels() {
  level_.assign(out_.size(), -1);
  level_[source()] = 0;
  std::vector<size_t> reached{source()};
  for (size_t i = 0; i < reached.size(); ++i)
    for (const size_t e : out_[reached[i]])
      if (edges_[e].capacity > 0 && level_[edges_[e].to] < 0) {
        level_[edges_[e].to] = level_[reached[i]] + 1;
        reached.push_back(edges_[e].to);
      }
  return level_[sink()] >= 0;
}

int64_t MinimumCut::push(size_t from, int64_t most) {
  if (from == sink()) return most;
  for (size_t& at = next_[from]; at < out_[from].size(); ++at) {
    const size_t e = out_[from][at];
    if (edges_[e].capacity <= 0 || level_[edges_[e].to] != level_[from] + 1) continue;
    const int64_t pushed = push(edges_[e].to, std::min(most, edges_[e].capacity));
    if (pushed == 0) continue;
    edges_[e].capacity -= pushed;
    edges_[e ^ 1].capacity += pushed;
    return pushed;
  }
  return 0;
}

std::vector<bool> MinimumCut::on_first_side() {
  while (find_levels()) {
    next_.assign(out_.size(), 0);
    while (push(source(), INT64_MAX) > 0) {
    }
  }
  std::vector<bool> first(out_.size() - 2);
  for (size_t v = 0; v < first.size(); ++v) first[v] = level_[v] >= 0;
  return first;
}

}  // namespace framejit::graph
