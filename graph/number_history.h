// graph/number_history.h — the number in a 0-dim tensor of a recorded graph, as arithmetic on numbers that are known
// before the graph runs.
//
// An optimizer counts its steps in tensors, and reads the counts as Python numbers. What a program computes from such a
// number need not wait for the graph: the steps found here are computed where the call begins.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>

#include "graph/graph.h"

namespace framejit::graph {

struct NumberStep {
  enum Op : uint8_t {
    kInput,  // of the graph, a 0-dim tensor
    kFloat,  // an input that is a float of the program
    kConstant,
    kAdd,
    kSub,
    kMul,
    kDiv,
    kNeg,
    kNarrow,  // rounded to float32
  } op = kConstant;
  uint32_t a = 0, b = 0;  // operands: earlier steps; kInput, kFloat: which input
  double number = 0;  // kConstant
  bool is_single = false;  // operands and result are float32, otherwise float64
};
using NumberSteps = std::vector<NumberStep>;

class NumberHistory {
 public:
  using ConstantOf = std::function<std::optional<double>(ValueId)>;  // the number in a captured tensor, if it is known
  // The steps that compute the number that `value` holds after all nodes so far; the last step is the result. Empty: no
  // such steps are known, or there are too many.
  NumberSteps find(const Graph& graph, ValueId value, const ConstantOf& constant_of);
  void forget();  // must be called after nodes were dropped

 private:
  std::unordered_map<uint32_t, std::vector<uint32_t>> writers_;  // storage -> nodes that write it, in order
  size_t scanned_ = 0;  // nodes that writers_ knows
};

}  // namespace framejit::graph
