// inductor/assemble.cpp — buffers get storages, views get steps, and everything is freed after its last use.
//
// A view of a tensor exists as a tensor only if an extern call or an output needs it (kernels read through index maps).
// It is made when first needed and, like its base, freed after the last step that uses either.
#include "inductor/assemble.h"

#include <algorithm>
#include <unordered_map>

#include "graph/node_values.h"
#include "graph/passes/rebuild.h"
#include "inductor/buffer_placement.h"
#include "inductor/buffer_reuse.h"
#include "inductor/compile_kernels.h"
#include "inductor/joined_kernels.h"
#include "inductor/kernel/base_offsets.h"
#include "inductor/output_code.h"
#include "inductor/schedule/arena_blocks.h"
#include "inductor/schedule/checks.h"

namespace framejit::inductor {

using graph::Graph;
using graph::Node;
using graph::TensorMeta;
using graph::ValueId;
using runtime::BufferId;

namespace {

class Assembler {
 public:
  Assembler(const Graph& graph, size_t derived, const std::vector<ValueForm>& forms, const Schedule& schedule,
            const SizeHints& hints, KernelTarget& target, KernelTuning tuning, const std::vector<bool>& spent)
      : graph_(graph),
        input_count_(graph.inputs.size() - derived),
        forms_(forms),
        schedule_(schedule),
        program_(schedule.program),
        hints_(hints),
        target_(target),
        tuning_(tuning),
        of_{graph, forms, schedule, input_count_, spent},
        device_id_(graph::runtime_device(kernel_device(graph))),
        sizes_(plan_) {}

  Result<runtime::Executable> run() {
    executable_.name = plan_.name = graph_.name;
    plan_.input_count = static_cast<uint32_t>(input_count_);
    plan_.symbol_count = static_cast<uint32_t>(graph_.shapes.symbol_count());
    make_kernels();
    reuse_ = find_buffer_reuse(of_, kernels_, target_.info());
    plan_buffers();
    for (Kernel& kernel : kernels_)
      offsets_.push_back(take_base_offsets(kernel));  // only now: in_place.h compares full addresses
    FJ_TRY_VOID(compile_kernels(kernels_, target_, compiled_));
    for (size_t s = 0; s < schedule_.steps.size(); ++s) {
      if (s == commit_) prepare_commit();
      add_step(s);
    }
    if (commit_ >= schedule_.steps.size()) prepare_commit();
    add_frees();
    if (target_.info().traits.steps_end_in_order) join_kernels(plan_, traits_);
    executable_.forward = std::move(plan_);
    return std::move(executable_);
  }

 private:
  void make_kernels() {
    const std::vector<bool> is_private = private_buffers(schedule_);
    kernels_.resize(schedule_.steps.size());
    for (size_t s = 0; s < schedule_.steps.size(); ++s) {
      const auto* group = std::get_if<Group>(&schedule_.steps[s]);
      if (group == nullptr) continue;
      kernels_[s] = make_kernel(program_, *group, is_private, hints_, target_.info(), tuning_);
      kernels_[s].name = origins_name(graph_, kernels_[s]);
    }
    if (target_.info().traits.launches_overlap) note_settled();
  }

  // Inputs that neither a kernel writes, nor the end of the plan, nor whoever may take their memory.
  void note_settled() {
    std::vector<bool> settled(program_.buffers.size());
    for (size_t b = 0; b < settled.size(); ++b) settled[b] = program_.buffers[b].role != BufferRole::kTemp;
    for (const auto& step : schedule_.steps)
      for (LoopBufferId b : access_of_step(step).writes) settled[b] = false;
    for (const auto& [input, v] : graph_.updates) settled[root_buffer(forms_, graph_.inputs[input])] = false;
    for (size_t i = 0; i < of_.spent.size() && i < input_count_; ++i)
      if (of_.spent[i]) settled[root_buffer(forms_, graph_.inputs[i])] = false;
    for (Kernel& kernel : kernels_)
      for (KernelBuffer& b : kernel.buffers) b.is_settled = !b.is_local && settled[b.source];
  }

  BufferId add_buffer(const TensorMeta& meta, runtime::Storage storage, uint32_t index) {
    runtime::Buffer buffer = sizes_.buffer(meta);
    buffer.storage = storage;
    buffer.index = index;
    plan_.buffers.push_back(std::move(buffer));
    return static_cast<BufferId>(plan_.buffers.size() - 1);
  }

  void plan_buffers() {
    buffer_of_.assign(program_.buffers.size(), runtime::kNoBuffer);
    value_buffer_.assign(graph_.values.size(), runtime::kNoBuffer);
    for (size_t i = 0; i < input_count_; ++i) plan_graph_buffer(graph_.inputs[i], runtime::Storage::kInput, i);
    for (size_t i = input_count_; i < graph_.inputs.size(); ++i)
      plan_graph_buffer(graph_.inputs[i], runtime::Storage::kDerived, i - input_count_);
    for (size_t i = 0; i < graph_.constants.size(); ++i)
      plan_graph_buffer(graph_.constants[i], runtime::Storage::kConstant, i);
    for (const auto& [input, v] : graph_.updates) {  // written in place
      const ValueForm& form = forms_[graph::index_of(v)];
      if (form.kind == ValueForm::kBuffer && form.buffer == forms_[graph::index_of(graph_.inputs[input])].buffer)
        value_buffer_[graph::index_of(v)] = buffer_of_[form.buffer];
    }
    for (const NewValue& made : reuse_.in_inputs) {
      buffer_of_[made.value] = buffer_of_[made.input];
      value_buffer_[graph::index_of(graph_.updates[made.update].second)] = buffer_of_[made.input];
      commit_ = schedule_.commit;
    }
    for (const bool owners : {true, false})
      for (size_t b = 0; b < program_.buffers.size(); ++b)
        if (reuse_.exists[b] && (reuse_.owner[b] == b) == owners) plan_temporary(static_cast<LoopBufferId>(b));
    plan_arena_offsets();
    allocated_ = reuse_.in_library;  // the call itself allocates these
  }

  void plan_temporary(LoopBufferId b) {
    const LoopBuffer& buffer = program_.buffers[b];
    const bool is_kept = reuse_.in_arena[reuse_.owner[b]];
    if (reuse_.owner[b] != b && !is_kept &&
        (reuse_.in_library[b] || !reuse_.uses[b].by_extern)) {  // kernels need no view of the owner's tensor
      buffer_of_[b] = buffer_of_[reuse_.owner[b]];
      if (reuse_.in_library[b] && buffer.value != UINT32_MAX) value_buffer_[buffer.value] = buffer_of_[b];
      return;
    }
    buffer_of_[b] = add_buffer(of_.meta_of(b), is_kept ? runtime::Storage::kArena : runtime::Storage::kTensor, 0);
    if (buffer.value != UINT32_MAX) value_buffer_[buffer.value] = buffer_of_[b];
  }

  // The lifetimes of temporaries, in the arena or outside it. Buffers with the same owner follow each other, so they
  // need only one slot.
  std::vector<ArenaRequest> lives(bool in_arena, std::vector<size_t>& request_of) const {
    std::vector<ArenaRequest> requests;
    request_of.assign(program_.buffers.size(), SIZE_MAX);
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
      if (!reuse_.exists[b] || !reuse_.uses[b].any() || reuse_.in_arena[reuse_.owner[b]] != in_arena) continue;
      size_t& request = request_of[reuse_.owner[b]];
      if (request == SIZE_MAX) {
        request = requests.size();
        requests.push_back({bytes_of(program_.buffers[b]), reuse_.uses[b].first, reuse_.uses[b].last});
      }
      requests[request].first_step = std::min(requests[request].first_step, reuse_.uses[b].first);
      requests[request].last_step = program_.buffers[b].is_output
                                        ? schedule_.steps.size() - 1
                                        : std::max(requests[request].last_step, reuse_.uses[b].last);
    }
    return requests;
  }

  // Per step, the bytes that libraries take and tensors hold; empty if a size is unknown.
  std::vector<int64_t> bytes_beside_arena() const {
    std::vector<size_t> unused;
    std::vector<ArenaRequest> tensors = lives(false, unused);
    for (size_t s = 0; s < schedule_.steps.size(); ++s)
      if (const auto* call = std::get_if<ExternCall>(&schedule_.steps[s]))
        tensors.push_back({workspace_bytes(graph_, graph_.nodes[call->node]), s, s});
    std::vector<int64_t> beside(schedule_.steps.size(), 0);
    for (const ArenaRequest& tensor : tensors) {
      if (!tensor.bytes.is_constant()) return {};
      for (size_t s = tensor.first_step; s <= tensor.last_step; ++s) beside[s] += tensor.bytes.constant();
    }
    return beside;
  }

  void plan_arena_offsets() {
    std::vector<size_t> request_of;
    const std::vector<ArenaRequest> requests = lives(true, request_of);
    const TargetInfo& target = target_.info();
    arena_ =
        plan_blocks(requests, target.traits.library_memory_is_known ? bytes_beside_arena() : std::vector<int64_t>{},
                    target.costs.block_saving);
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
      if (buffer_of_[b] == runtime::kNoBuffer || request_of[reuse_.owner[b]] == SIZE_MAX) continue;
      const ArenaBlocks::Place& place = arena_.places[request_of[reuse_.owner[b]]];
      plan_.buffers[buffer_of_[b]].index = place.block;
      plan_.buffers[buffer_of_[b]].offset = sizes_.size(place.offset);
    }
    for (const SymExpr& bytes : arena_.bytes) plan_.arena.push_back({device_id_, sizes_.size(bytes)});
  }

  // Makes memory for a buffer that a step writes. If several buffers share it, the first one allocates it, and the
  // others are views of it.
  void make_tensor(LoopBufferId b) {
    if (plan_.buffers[buffer_of_[b]].storage != runtime::Storage::kTensor || allocated_[b]) return;
    const LoopBufferId owner = reuse_.owner[b];
    const BufferId id = buffer_of_[b], whole = buffer_of_[owner];
    if (!allocated_[owner]) {
      allocated_[owner] = true;
      note_use(whole);
      const LoopBufferId over = reuse_.over[owner];
      plan_.steps.emplace_back(
          runtime::AllocateStep{whole, over == kNoLoopBuffer ? runtime::kNoBuffer : buffer_of_[over]});
    }
    if (id == whole) return;
    allocated_[b] = true;
    note_use(whole);
    note_use(id);
    plan_.steps.emplace_back(runtime::ViewStep{whole, id});
  }

  void plan_graph_buffer(ValueId v, runtime::Storage storage, size_t index) {
    const BufferId id = add_buffer(graph_.meta(v), storage, static_cast<uint32_t>(index));
    buffer_of_[forms_[graph::index_of(v)].buffer] = id;
    value_buffer_[graph::index_of(v)] = id;
  }

  void note_use(BufferId id) {
    if (last_use_.size() < plan_.buffers.size()) last_use_.resize(plan_.buffers.size(), SIZE_MAX);
    last_use_[id] = plan_.steps.size();
  }

  // The tensor of a value: its own, or a view of its root's.
  BufferId buffer_of_value(ValueId v) {
    if (v == graph::kNoValue) return runtime::kNoBuffer;
    BufferId& known = value_buffer_[graph::index_of(v)];
    if (known != runtime::kNoBuffer) return known;
    const BufferId base = buffer_of_[root_buffer(forms_, v)];
    FJ_ASSERT(base != runtime::kNoBuffer, "a view of a value that has no tensor");
    known = add_buffer(graph_.meta(v), runtime::Storage::kTensor, 0);
    note_use(base);
    note_use(known);
    plan_.steps.emplace_back(runtime::ViewStep{base, known});
    return known;
  }

  // Nothing may fail from the commit point on, so later steps get their memory before it.
  void prepare_commit() {
    for (const BlockSpan& span : arena_.spans)
      if (span.first_step >= commit_) take_block(span);
    for (size_t s = commit_; s < schedule_.steps.size(); ++s)
      for (const KernelBuffer& b : kernels_[s].buffers)
        if (b.is_written && !b.is_local) make_tensor(b.source);
    for (size_t i = 0; i < graph_.outputs.size(); ++i) plan_.outputs.push_back(output(i));
    for (const auto& [input, v] : graph_.updates) plan_.updates.emplace_back(input, buffer_of_value(v));
  }

  void take_block(const BlockSpan& span) { plan_.steps.emplace_back(runtime::TakeStep{span.block}); }

  void add_step(size_t s) {
    for (const BlockSpan& span : arena_.spans)
      if (span.first_step == s && s < commit_) take_block(span);
    if (const auto* call = std::get_if<ExternCall>(&schedule_.steps[s])) add_extern(*call);
    else add_kernel(kernels_[s], offsets_[s], std::move(compiled_[s]), may_fail(std::get<Group>(schedule_.steps[s])));
    for (const BlockSpan& span : arena_.spans)
      if (span.last_step == s) plan_.steps.emplace_back(runtime::GiveStep{span.block});
  }

  void add_extern(const ExternCall& call) {
    const Node& node = graph_.nodes[call.node];
    graph::for_each_value(node, [&](ValueId v) { buffer_of_value(v); });
    runtime::ExternStep step;
    step.op = node.op->name;
    step.line = node.line;
    step.place = graph::place_of(graph_, node);
    step.result_lists = node.result_lists;
    for (const graph::Arg& a : node.args) step.args.push_back(sizes_.arg(a, value_buffer_));
    for (ValueId v : node.results) {
      step.results.push_back(v == graph::kNoValue ? runtime::kNoBuffer : value_buffer_[graph::index_of(v)]);
      if (v != graph::kNoValue) note_use(step.results.back());
    }
    const auto is_given_memory = [&](LoopBufferId b) {
      return reuse_.in_arena[b] || is_written_output(node, program_.buffers[b], target_.info());
    };
    if (call.writes.size() == 1 && is_given_memory(call.writes[0])) {
      make_tensor(call.writes[0]);  // or the tensor of the buffer that takes over its memory
      write_into_result(step, *out_form(node));
    } else if (reuse_.writes_over.contains(call.node)) {
      write_over_operand(step, *over_form(node));
    }
    graph::for_each_value(node, [&](ValueId v) {
      if (v != graph::kNoValue) note_use(value_buffer_[graph::index_of(v)]);
    });
    plan_.steps.emplace_back(std::move(step));
  }

  // The operand moves to the front.
  static void write_over_operand(runtime::ExternStep& step, const OverForm& form) {
    step.op = form.op;
    const auto operand = step.args.begin() + static_cast<ptrdiff_t>(form.operand);
    std::rotate(step.args.begin(), operand, operand + 1);
    step.results.clear();
  }

  // The result becomes the last argument: memory of the arena that the op fills.
  static void write_into_result(runtime::ExternStep& step, const OutForm& form) {
    step.op = form.op;
    step.args.resize(form.arguments, {runtime::Size{1}});
    step.args.push_back({step.results[0]});
    step.results.clear();
  }

  static bool may_fail(const Group& group) { return std::any_of(group.nests.begin(), group.nests.end(), has_checks); }

  void add_kernel(const Kernel& kernel, const std::vector<int64_t>& offsets, CompiledKernel compiled, bool may_fail) {
    runtime::KernelStep step;
    KernelTraits traits{may_fail, {}};
    step.kernel = number_of(std::move(compiled.code));
    step.place.device = device_id_;
    step.name = "k" + std::to_string(next_kernel_++);
    log_kernel(graph_, step.name, kernel, target_);
    for (size_t k = 0; k < kernel.buffers.size(); ++k) {
      const KernelBuffer& b = kernel.buffers[k];
      if (b.is_local) continue;
      if (b.is_written) make_tensor(b.source);
      if (offsets[k] != 0)
        step.offsets.emplace_back(static_cast<uint32_t>(step.buffers.size()), offsets[k] * row_of(b.dtype).bytes);
      step.buffers.push_back(buffer_of_[b.source]);
      traits.is_written.push_back(b.is_written);
    }
    for (graph::SymbolId symbol : kernel.symbols) step.sizes.push_back(sizes_.size(SymExpr::symbol(symbol)));
    step.extent = sizes_.size(compiled.extent);
    step.grain = compiled.grain;
    step.unit = kernel.unit();
    for (BufferId id : step.buffers) note_use(id);
    plan_.steps.emplace_back(std::move(step));
    traits_.push_back(std::move(traits));
  }

  // The code's index in the executable's table, which holds equal code only once.
  uint32_t number_of(std::shared_ptr<const runtime::KernelCode> code) {
    const auto [known, is_new] = number_of_kernel_.emplace(code->id, static_cast<uint32_t>(executable_.kernels.size()));
    if (is_new) executable_.kernels.push_back(std::move(code));
    return known->second;
  }

  runtime::Output output(size_t i) {
    const ValueId v = graph_.outputs[i];
    const bool is_input =
        i < graph_.output_aliases.size() && graph_.output_aliases[i].kind == graph::OutputKind::kInput;
    if (is_input) return {runtime::Output::kInput, graph_.output_aliases[i].of};
    const auto input = std::find(graph_.inputs.begin(), graph_.inputs.end(), v);
    if (input != graph_.inputs.end())
      return {runtime::Output::kInput, static_cast<uint32_t>(input - graph_.inputs.begin())};
    return {runtime::Output::kBuffer, buffer_of_value(v)};
  }

  // Tensors that are not outputs are freed after their last use; a base lives as long as its views.
  void add_frees() {
    last_use_.resize(plan_.buffers.size(), SIZE_MAX);
    std::vector<bool> leaves(plan_.buffers.size(), false);
    for (const runtime::Output& o : plan_.outputs)
      if (o.kind == runtime::Output::kBuffer && o.index != runtime::kNoBuffer) leaves[o.index] = true;
    for (const auto& [input, buffer] : plan_.updates) leaves[buffer] = true;
    for (size_t s = plan_.steps.size(); s-- > 0;) {
      const auto* view = std::get_if<runtime::ViewStep>(&plan_.steps[s]);
      if (view == nullptr) continue;
      leaves[view->base] = leaves[view->base] || leaves[view->result];
      last_use_[view->base] = std::max(last_use_[view->base], last_use_[view->result]);
    }
    std::vector<std::vector<BufferId>> freed(plan_.steps.size());
    for (BufferId b = 0; b < plan_.buffers.size(); ++b)
      if (plan_.buffers[b].storage == runtime::Storage::kTensor && !leaves[b] && last_use_[b] != SIZE_MAX)
        freed[last_use_[b]].push_back(b);
    std::vector<runtime::Step> steps;
    for (size_t s = 0; s < plan_.steps.size(); ++s) {
      steps.push_back(std::move(plan_.steps[s]));
      for (BufferId b : freed[s]) steps.emplace_back(runtime::FreeStep{b});
    }
    plan_.steps = std::move(steps);
  }

  const Graph& graph_;
  const size_t input_count_;  // before the derived values
  const std::vector<ValueForm>& forms_;
  const Schedule& schedule_;
  const LoopProgram& program_;
  const SizeHints& hints_;
  KernelTarget& target_;
  const KernelTuning tuning_;
  const ScheduledGraph of_;
  const runtime::DeviceId device_id_;
  runtime::Executable executable_;
  std::unordered_map<runtime::KernelId, uint32_t> number_of_kernel_;
  runtime::CallPlan plan_;  // the executable's forward
  graph::PlanSizes sizes_;
  std::vector<Kernel> kernels_;              // per step; extern calls have none
  std::vector<std::vector<int64_t>> offsets_;  // per step and argument, in elements
  std::vector<CompiledKernel> compiled_;     // per step
  BufferReuse reuse_;
  std::vector<bool> allocated_;  // per loop buffer
  size_t commit_ = SIZE_MAX;  // from this step on, inputs may have been written
  ArenaBlocks arena_;
  std::vector<BufferId> buffer_of_;          // per loop buffer
  std::vector<BufferId> value_buffer_;       // per graph value
  std::vector<size_t> last_use_;             // per plan buffer: step
  uint32_t next_kernel_ = 0;
  std::vector<KernelTraits> traits_;  // of the plan's kernel steps, in order
};

}  // namespace

Result<runtime::Executable> assemble(const Graph& graph, const std::vector<ValueForm>& forms, const Schedule& schedule,
                                     const SizeHints& hints, KernelTarget& target, KernelTuning tuning, size_t derived,
                                     const std::vector<bool>& spent) {
  return Assembler(graph, derived, forms, schedule, hints, target, tuning, spent).run();
}

}  // namespace framejit::inductor
