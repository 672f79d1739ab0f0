// inductor/homes.h — which buffers of a schedule live in the arena.
//
// Memory of the arena is mapped once and stays warm from call to call; a tensor of its own is allocated in each call,
// and a large one is zeroed by the system when it is written (runtime/huge_pages.h). What leaves the plan, and what a
// library call might keep, hand back or allocate itself, is a tensor of its own.
#pragma once

#include "graph/graph.h"
#include "inductor/schedule/schedule.h"

namespace framejit::inductor {

// The form of an extern call that writes its result into memory that it is given.
struct OutForm {
  std::string_view op;
  size_t arguments = 0;  // before the memory; missing ones are factors of one
};
std::optional<OutForm> out_form(const graph::Node& node);

// The form of an extern call that writes its result over one of its operands.
struct OverForm {
  std::string_view op;
  size_t operand = 0;  // which argument: it moves to the front
};
std::optional<OverForm> over_form(const graph::Node& node);

// Whether the results of an extern call lie in memory that nobody else holds.
bool makes_its_memory(const graph::Node& node);

// Memory that the library is known to take for an extern call while it runs, besides the results.
SymExpr workspace_bytes(const graph::Graph& graph, const graph::Node& node);

// Per buffer of the program: a temporary of kernels alone, or a large one that library calls may find in the arena.
std::vector<bool> arena_buffers(const graph::Graph& graph, const Schedule& schedule, const TargetInfo& target);

}  // namespace framejit::inductor
