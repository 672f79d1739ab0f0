// inductor/buffer_reuse.h — which buffers of a schedule lie in memory that another one no longer needs.
//
// A result may take over the memory of an operand: of a temporary, of memory that a library call has allocated, of an
// input that is spent, or of an input whose new value it is. kernel/in_place.h says whether a kernel may write over
// what it reads.
#pragma once

#include <set>
#include <vector>

#include "inductor/kernel/kernel_ir.h"
#include "inductor/lowering/lower.h"

namespace framejit::inductor {

inline constexpr LoopBufferId kNoLoopBuffer = UINT32_MAX;

struct BufferReuse {
  struct Use {
    size_t first = SIZE_MAX, last = 0;  // steps
    bool by_extern = false;
    bool any() const { return first != SIZE_MAX; }
  };
  // Per loop buffer.
  std::vector<Use> uses;
  std::vector<bool> exists;         // a temporary that needs memory: its own, or that of others
  std::vector<bool> in_arena;       // in the arena, or wherever its owner lies
  std::vector<bool> in_library;     // in memory that a library call has allocated
  std::vector<LoopBufferId> owner;  // itself, or the last one that takes over its memory, directly or through others
  std::vector<LoopBufferId> over;   // the spent input that it is written over, or kNoLoopBuffer

  std::vector<NewValue> in_inputs;    // new values of inputs that lie in the inputs
  std::set<size_t> writes_over;       // nodes whose library call writes over an operand
};

// The graph of a schedule, and the forms that its values have there.
struct ScheduledGraph {
  const graph::Graph& graph;
  const std::vector<ValueForm>& forms;
  const Schedule& schedule;
  size_t input_count;              // before the derived values
  const std::vector<bool>& spent;  // per input: may be written over, after its last use; empty: none
  graph::TensorMeta meta_of(LoopBufferId buffer) const;
};

// kernels: per step; an operand whose memory is taken over becomes written.
BufferReuse find_buffer_reuse(const ScheduledGraph& of, std::vector<Kernel>& kernels, const TargetInfo& target);

}  // namespace framejit::inductor
