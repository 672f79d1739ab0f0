// inductor/buffer_placement.h — which buffers of a schedule live in the arena.
//
// Memory of the arena is mapped once and stays warm from call to call. A separate tensor is allocated in each call: by
// the plan, whose large tensors get warm memory too (runtime/aten/result_memory.h), or by a library call, which takes
// new pages. Outputs, and whatever a library call might keep, return or allocate itself, are separate tensors.
#pragma once

#include "graph/graph.h"
#include "inductor/schedule/schedule.h"

namespace framejit::inductor {

// The form of an extern call that writes its result into given memory.
struct OutForm {
  std::string_view op;
  size_t arguments = 0;  // before the memory; missing ones are factors and are set to one
};
std::optional<OutForm> out_form(const graph::Node& node);

// The form of an extern call that writes its result over one of its operands.
struct OverForm {
  std::string_view op;
  size_t operand = 0;  // which argument; it moves to the front
};
std::optional<OverForm> over_form(const graph::Node& node);

// Whether the results of an extern call lie in memory that nobody else holds.
bool makes_its_memory(const graph::Node& node);

// Memory, besides the results, that the library is known to take for an extern call while it runs.
SymExpr workspace_bytes(const graph::Graph& graph, const graph::Node& node);

// Bytes from the first to the last element.
SymExpr bytes_of(const LoopBuffer& buffer);

// Per buffer of the program: whether it lies in the arena. A temporary that only kernels use does, and so does a large
// one if library calls may find it there.
std::vector<bool> arena_buffers(const graph::Graph& graph, const Schedule& schedule, const TargetInfo& target);

// Whether the only result of an extern call is a large output that the call can write into memory of the plan. The
// library would take new memory in each call.
bool is_written_output(const graph::Node& node, const LoopBuffer& result, const TargetInfo& target);

}  // namespace framejit::inductor
