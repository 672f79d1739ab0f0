// frame_hook/aten/captured_calls.h — the captured graph: the torch-level calls of a recording, each with its user line
// and the ATen nodes that it made. Users read it (log channel graph); nothing is compiled from it.
#pragma once

#include <Python.h>

#include <string>
#include <variant>
#include <vector>

#include "graph/compiler.h"

namespace framejit::frame_hook {

class CapturedCalls {
 public:
  // Text with values in it. Their names are known only when the graph is finished.
  using Words = std::vector<std::variant<std::string, graph::ValueId>>;

  // Records a call that has returned `result`, if the log wants it and it made nodes from number `first_node` on.
  void add_call(const graph::Graph& graph, size_t first_node, PyObject* callable, PyObject* const* args,
                size_t positional, PyObject* kwnames, PyObject* result);
  void add_attribute(const graph::Graph& graph, size_t first_node, PyObject* traced, PyObject* name, PyObject* result);

  size_t size() const { return calls_.size(); }
  // One line per input and per call, and one for the returned values; values have the names of graph::print(graph).
  // Of a joint graph, the forward.
  std::string text(const graph::CapturedGraph& captured) const;

 private:
  struct Call {
    std::vector<graph::ValueId> results;
    Words call;
    size_t first_node, end_node;
  };
  void add(const graph::Graph& graph, size_t first_node, Words call, PyObject* result);
  std::vector<Call> calls_;
};

// As users write it: "torch.relu", "torch.nn.functional.linear", "Tensor.view", "operator.add".
std::string torch_call_name(PyObject* callable);

}  // namespace framejit::frame_hook
