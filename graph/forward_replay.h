// graph/forward_replay.h — the forward of a joint graph, to be run again op by op under autograd.
//
// A backward that is differentiated itself needs formulas that can be differentiated. PyTorch has some of them only
// where its engine runs with grad mode, so the joint graph, which was recorded without, does not say them.
// What a program detaches, or computes without grad mode, is a constant to every derivative. A replay would
// differentiate it, so it runs in two parts: one makes these values, the other takes them.
#pragma once

#include <optional>
#include <vector>

#include "graph/joint.h"

namespace framejit::graph {

struct ForwardReplay {
  std::optional<Graph> constants;  // from the forward's inputs; nothing: all values have the history of their ops
  // Takes the forward's inputs, then the constants. Gives each root, then, for each root with a gradient of its own
  // (in order), the alias of it that the ops after it read.
  Graph roots;
  std::vector<bool> reads;  // per input of the forward: whether one of the two needs it
};

// Whether the replay finds the gradients without the contents of some inputs, if it is told what the roots hold: no
// formula reads anything else that is made of them. So it is where eager keeps the result of an activation, and its
// input is gone. missing: per input of the forward.
bool replays_without(const TrainingGraphs& graphs, const std::vector<bool>& missing);

// Both are functional and write nothing. An error: memory of a value without a history is written, the old value of an
// input is needed that the forward writes, or a root is the same value as another.
Result<ForwardReplay> forward_replay(const TrainingGraphs& graphs);

}  // namespace framejit::graph
