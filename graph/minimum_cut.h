// graph/minimum_cut.h — splits vertices into two sides so that the edges between the sides weigh least.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace framejit::graph {

class MinimumCut {
 public:
  explicit MinimumCut(size_t vertices) : out_(vertices + 2) {}

  void prefer(size_t vertex, int64_t weight);           // the first side; a negative weight: the second
  void join(size_t a, size_t b, int64_t weight);        // weighs if a and b are on different sides
  void precede(size_t a, size_t b, int64_t weight);     // weighs if a is on the first side and b on the second
  std::vector<bool> on_first_side();                    // ties go to the second side

 private:
  struct Edge {
    size_t to;
    int64_t capacity;
  };
  size_t source() const { return out_.size() - 2; }
  size_t sink() const { return out_.size() - 1; }
  void add(size_t from, size_t to, int64_t capacity, int64_t back);
  bool find_levels();
  int64_t push(size_t from, int64_t most);

  std::vector<Edge> edges_;                // an edge and its reverse are neighbours
  std::vector<std::vector<size_t>> out_;   // per vertex; the last two are source and sink
  std::vector<int> level_;
  std::vector<size_t> next_;
};

}  // namespace framejit::graph
