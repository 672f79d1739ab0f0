// inductor/buffer_reuse.cpp — see buffer_reuse.h.
#include "inductor/buffer_reuse.h"

#include <algorithm>
#include <numeric>

#include "graph/passes/rebuild.h"
#include "inductor/buffer_placement.h"
#include "inductor/kernel/in_place.h"

namespace framejit::inductor {

graph::TensorMeta ScheduledGraph::meta_of(LoopBufferId id) const {
  const LoopBuffer& buffer = schedule.program.buffers[id];
  if (buffer.value != UINT32_MAX) return graph.values[buffer.value].meta;
  graph::TensorMeta meta;
  meta.device = kernel_device(graph);
  meta.dtype = buffer.dtype;
  meta.sizes = buffer.sizes;
  meta.strides = buffer.strides;
  return meta;
}

namespace {

using graph::Node;
using graph::ValueId;

class ReuseFinder {
 public:
  ReuseFinder(const ScheduledGraph& of, std::vector<Kernel>& kernels, const TargetInfo& target)
      : of_(of), schedule_(of.schedule), program_(of.schedule.program), kernels_(kernels), target_(target) {}

  BufferReuse run() {
    find_uses();
    in_memory_.assign(program_.buffers.size(), false);
    for (const Kernel& kernel : kernels_)
      for (const KernelBuffer& b : kernel.buffers)
        if (!b.is_local) in_memory_[b.source] = true;
    found_.in_arena = arena_buffers(of_.graph, schedule_, target_);
    in_input_.assign(program_.buffers.size(), false);
    if (target_.traits.steps_end_in_order)
      for (const NewValue& made : schedule_.new_values) take_input(made);
    for (size_t b = 0; b < program_.buffers.size(); ++b) found_.exists.push_back(exists(b));
    find_library_results();
    find_spent();
    find_takers();
    return std::move(found_);
  }

 private:
  void find_uses() {
    found_.uses.assign(program_.buffers.size(), {});
    for (size_t s = 0; s < schedule_.steps.size(); ++s) {
      const auto touch = [&](LoopBufferId b, bool by_extern) {
        found_.uses[b].first = std::min(found_.uses[b].first, s);
        found_.uses[b].last = s;
        found_.uses[b].by_extern |= by_extern;
      };
      if (const auto* call = std::get_if<ExternCall>(&schedule_.steps[s])) {
        for (LoopBufferId b : call->reads) touch(b, true);
        for (LoopBufferId b : call->writes) touch(b, true);
        continue;
      }
      for (const Nest& nest : std::get<Group>(schedule_.steps[s]).nests)
        for (const LoopInst& inst : nest.body)
          if (inst.op == LoopOp::kLoad || inst.op == LoopOp::kStore) touch(inst.buffer, false);
    }
  }

  bool exists(size_t b) const {
    const LoopBuffer& buffer = program_.buffers[b];
    return buffer.role == BufferRole::kTemp && !in_input_[b] &&
           (found_.uses[b].by_extern || buffer.is_output || in_memory_[b]);
  }

  // The new value of an input lies in the input, unless a later step reads the old value, or the kernel that makes the
  // new one reads the old one at other points.
  void take_input(const NewValue& made) {
    const size_t s = found_.uses[made.value].first;
    if (found_.uses[made.input].any() && found_.uses[made.input].last > s) return;
    std::vector<KernelBuffer>& buffers = kernels_[s].buffers;
    const auto find = [&](LoopBufferId source) {
      const auto at =
          std::find_if(buffers.begin(), buffers.end(), [&](const KernelBuffer& b) { return b.source == source; });
      return static_cast<size_t>(at - buffers.begin());
    };
    const size_t written = find(made.value), read = find(made.input);
    if (written == buffers.size() || !buffers[written].is_written || buffers[written].is_local) return;
    if (read < buffers.size()) {
      if (kept_apart(kernels_[s], static_cast<LoopBufferId>(read), static_cast<LoopBufferId>(written))) return;
      buffers[read].is_written = true;  // its loads are no longer invariant
    }
    in_input_[made.value] = true;
    found_.in_inputs.push_back(made);
  }

  // Finds temporaries in memory that library calls allocate.
  void find_library_results() {
    found_.in_library.assign(program_.buffers.size(), false);
    for (const auto& step : schedule_.steps)
      if (const auto* call = std::get_if<ExternCall>(&step); call && makes_its_memory(of_.graph.nodes[call->node]))
        for (LoopBufferId b : call->writes)
          found_.in_library[b] =
              program_.buffers[b].role == BufferRole::kTemp && !program_.buffers[b].is_output && !found_.in_arena[b];
  }

  bool may_lie_in_library(LoopBufferId operand, LoopBufferId result) const {
    const LoopBuffer &one = program_.buffers[operand], &other = program_.buffers[result];
    return found_.in_library[operand] && !other.is_output && one.sizes == other.sizes && one.strides == other.strides;
  }

  // Finds results that take over the memory of an operand that is not used later. Each result takes the memory of at
  // most one operand, and gives its own to at most one result. If a library call allocated the memory, that call's
  // result owns it. Otherwise the last result of such a chain owns it: it may be an output, and then all of them lie in
  // its tensor.
  void find_takers() {
    found_.owner.resize(program_.buffers.size());
    std::iota(found_.owner.begin(), found_.owner.end(), LoopBufferId{0});
    taken_by_.assign(program_.buffers.size(), kNoLoopBuffer);
    for (size_t s = 0; s < schedule_.steps.size(); ++s) {
      if (const auto* call = std::get_if<ExternCall>(&schedule_.steps[s])) find_overwritten(*call, s);
      else if (target_.traits.points_run_in_order) find_taken(s);
      // On other devices, threads synchronize only for data that nests pass on: one thread might overwrite what another
      // still reads.
    }
    for (size_t b = 0; b < found_.owner.size(); ++b)
      while (taken_by_[found_.owner[b]] != kNoLoopBuffer) found_.owner[b] = taken_by_[found_.owner[b]];
  }

  // Finds inputs that the plan may write over: it returns none of them.
  void find_spent() {
    is_spent_.assign(program_.buffers.size(), false);
    found_.over.assign(program_.buffers.size(), kNoLoopBuffer);
    for (size_t i = 0; i < of_.spent.size() && i < of_.input_count; ++i)
      if (const ValueForm& form = of_.forms[graph::index_of(of_.graph.inputs[i])]; form.kind == ValueForm::kBuffer)
        is_spent_[form.buffer] = of_.spent[i];
    for (ValueId v : of_.graph.outputs)
      if (v != graph::kNoValue) is_spent_[root_buffer(of_.forms, v)] = false;
  }

  void take(LoopBufferId operand, LoopBufferId result) {
    if (found_.in_library[operand]) {
      found_.owner[result] = found_.owner[operand];
      found_.in_library[result] = true;
      found_.in_arena[result] = false;
    } else {
      taken_by_[operand] = result;
    }
  }

  // Lets a library call write over an operand, if nothing reads that operand later.
  void find_overwritten(const ExternCall& call, size_t s) {
    const Node& node = of_.graph.nodes[call.node];
    const auto over = over_form(node);
    if (!over) return;
    const ValueForm& form = of_.forms[graph::index_of(*node.args[over->operand].get<ValueId>())];
    if (form.kind != ValueForm::kBuffer) return;
    const LoopBufferId operand = form.buffer, result = call.writes[0];
    if (found_.uses[operand].last != s || found_.uses[result].first != s || !may_lie_in_library(operand, result) ||
        std::count(call.reads.begin(), call.reads.end(), operand) != 1)
      return;
    take(operand, result);
    found_.writes_over.insert(call.node);
  }

  void find_taken(size_t s) {
    const std::vector<KernelBuffer>& buffers = kernels_[s].buffers;
    for (size_t w = 0; w < buffers.size(); ++w) {
      const LoopBufferId result = buffers[w].source;
      if (!buffers[w].is_written || buffers[w].is_local || found_.uses[result].first != s || !found_.exists[result])
        continue;
      // Temporaries prefer the arena; outputs prefer memory that already exists.
      const bool spent_first = program_.buffers[result].is_output;
      if (spent_first && take_spent(s, w)) continue;
      if (!take_operand(s, w) && !spent_first) take_spent(s, w);
    }
  }

  bool take_operand(size_t s, size_t w) {
    const LoopBufferId result = kernels_[s].buffers[w].source;
    for (size_t r = 0; r < kernels_[s].buffers.size(); ++r) {
      const LoopBufferId operand = kernels_[s].buffers[r].source;
      if (!is_last_read(s, r) || taken_by_[operand] != kNoLoopBuffer ||
          !(found_.in_arena[operand] || may_lie_in_library(operand, result)) ||
          program_.buffers[operand].dtype != program_.buffers[result].dtype ||
          !(bytes_of(program_.buffers[operand]) == bytes_of(program_.buffers[result])) || !write_over(s, r, w))
        continue;
      take(operand, result);
      return true;
    }
    return false;
  }

  // Takes a spent input of the same layout. When the plan runs, it is used only if nobody else holds its tensor.
  bool take_spent(size_t s, size_t w) {
    const LoopBufferId result = kernels_[s].buffers[w].source;
    for (size_t r = 0; r < kernels_[s].buffers.size(); ++r) {
      const LoopBufferId operand = kernels_[s].buffers[r].source;
      if (!is_spent_[operand] || !is_last_read(s, r) ||
          !graph::same_layout(of_.meta_of(operand), of_.meta_of(result)) || !write_over(s, r, w))
        continue;
      is_spent_[operand] = false;
      found_.over[result] = operand;
      found_.in_arena[result] = false;
      return true;
    }
    return false;
  }

  // Whether kernel s only reads its buffer r, and nothing reads it later.
  bool is_last_read(size_t s, size_t r) const {
    const KernelBuffer& buffer = kernels_[s].buffers[r];
    return !buffer.is_written && !buffer.is_local && found_.uses[buffer.source].last == s;
  }

  // Lets kernel s write buffer `written` over what it reads from `read`. False: it cannot.
  bool write_over(size_t s, size_t read, size_t written) {
    if (kept_apart(kernels_[s], static_cast<LoopBufferId>(read), static_cast<LoopBufferId>(written))) return false;
    kernels_[s].buffers[read].is_written = true;  // its loads are no longer invariant
    return true;
  }

  const ScheduledGraph& of_;
  const Schedule& schedule_;
  const LoopProgram& program_;
  std::vector<Kernel>& kernels_;
  const TargetInfo& target_;
  BufferReuse found_;
  // Per loop buffer.
  std::vector<bool> in_memory_;         // kernels find it there
  std::vector<bool> in_input_;          // the new value of an input, in its memory
  std::vector<LoopBufferId> taken_by_;  // the one that takes over its memory
  std::vector<bool> is_spent_;          // an input that may be written over, after its last use
};

}  // namespace

BufferReuse find_buffer_reuse(const ScheduledGraph& of, std::vector<Kernel>& kernels, const TargetInfo& target) {
  return ReuseFinder(of, kernels, target).run();
}

}  // namespace framejit::inductor
