// inductor/output_code.h — FRAMEJIT_LOGS=output_code: the readable text of a kernel, and the part of the program that
// it came from.
#pragma once

#include "graph/graph.h"
#include "inductor/kernel/target.h"

namespace framejit::inductor {

// Logs the kernel's IR and every text that the target has of it (assembly only with FRAMEJIT_ASSEMBLY=1), each below
// the ATen ops and the user lines that it computes. Does nothing if the channel is off.
void log_kernel(const graph::Graph& graph, const std::string& name, const Kernel& kernel, KernelTarget& target);

// "model.py:12 forward: sub.Tensor mul.Tensor", one line for each user line, with `comment` in front.
std::string origins_text(const graph::Graph& graph, const Kernel& kernel, const std::string& comment);

// "sub_mul_tanh": the first of these ops, as part of a symbol's name.
std::string origins_name(const graph::Graph& graph, const Kernel& kernel);

}  // namespace framejit::inductor
