// graph/history_cut.h — a joint graph for a second derivative, if some values of the forward have no history.
//
// What a program detaches, or computes without grad mode, is a constant to every derivative. A replay of the graph
// under autograd would differentiate it, so it runs in two parts: one makes these values, the other takes them.
#pragma once

#include <optional>

#include "graph/joint.h"

namespace framejit::graph {

struct HistoryCut {
  TrainingGraphs values;  // `recorded` makes the values, from the same inputs
  TrainingGraphs rest;    // `recorded` takes them as more inputs, after the others
};

// Nothing: all values have the history that the ops give them. An error: memory of such a value is written.
Result<std::optional<HistoryCut>> cut_histories(const TrainingGraphs& graphs);

}  // namespace framejit::graph
