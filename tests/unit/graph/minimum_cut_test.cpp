// The minimum cut, compared with the least of all cuts, on small random graphs.
#include "graph/minimum_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

namespace framejit::graph {
namespace {

struct Weighted {
  size_t vertices;
  std::vector<int64_t> preference;
  std::vector<std::array<int64_t, 3>> edges;  // two vertices, weight

  int64_t weight(const std::vector<bool>& first) const {
    int64_t total = 0;
    for (size_t v = 0; v < vertices; ++v)
      if ((preference[v] > 0) != first[v]) total += std::abs(preference[v]);
    for (const auto& [a, b, w] : edges)
      if (first[static_cast<size_t>(a)] != first[static_cast<size_t>(b)]) total += w;
    return total;
  }
};

TEST(MinimumCut, IsTheLeastOfAll) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Weighted graph{1 + random() % 8, {}, {}};
    for (size_t v = 0; v < graph.vertices; ++v) graph.preference.push_back(static_cast<int64_t>(random() % 21) - 10);
    for (size_t e = random() % 14; e-- > 0;)
      graph.edges.push_back({static_cast<int64_t>(random() % graph.vertices),
                             static_cast<int64_t>(random() % graph.vertices), static_cast<int64_t>(random() % 12)});
    MinimumCut cut(graph.vertices);
    for (size_t v = 0; v < graph.vertices; ++v) cut.prefer(v, graph.preference[v]);
    for (const auto& [a, b, w] : graph.edges) cut.join(static_cast<size_t>(a), static_cast<size_t>(b), w);
    int64_t least = INT64_MAX;
    for (size_t mask = 0; mask < size_t{1} << graph.vertices; ++mask) {
      std::vector<bool> first;
      for (size_t v = 0; v < graph.vertices; ++v) first.push_back((mask >> v & 1) != 0);
      least = std::min(least, graph.weight(first));
    }
    EXPECT_EQ(graph.weight(cut.on_first_side()), least) << "round " << round;
  }
}

TEST(MinimumCut, WithoutPreferencesNothingIsOnTheFirstSide) {
  MinimumCut cut(3);
  cut.join(0, 1, 5);
  EXPECT_EQ(cut.on_first_side(), std::vector<bool>(3));
}

}  // namespace
}  // namespace framejit::graph
