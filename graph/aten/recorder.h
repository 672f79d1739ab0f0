// graph/aten/recorder.h — from ATen calls on traced tensors to a recorded graph.
//
// A boxed fallback on the dispatch key Fake sees every op below autograd that has a traced argument, and, while a
// RecordScope is open, every op of the thread. Where the shapes of its results come from, in this order:
//   - our shape rule, which sees symbols;
//   - torch's typed C++ shape function;
//   - the op itself, run on zeros, if it is torch's own and on a CPU (counted);
//   - the dispatcher's kernel, in C++ or Python (Python is counted).
// Our rule keeps symbols, and so may the Python shape function of an op that is not torch's own. The others make them
// constants. What cannot be captured throws CaptureBreakError, and the reason is kept for take_break(). Only one thread
// uses a recorder at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/aten/capture_break.h"
#include "graph/aten/op_info.h"
#include "graph/aten/program_modes.h"
#include "graph/aten/sym_node.h"
#include "graph/aten/traced_tensor.h"
#include "graph/dynamic_extents.h"
#include "graph/graph_builder.h"
#include "graph/number_history.h"

namespace framejit::graph {

enum class ShapeOrigin : uint8_t { kRule, kInPlace, kTyped, kDispatcherCpp, kExecuted, kDispatcherPython, kCount };
struct ShapeCounts {
  std::array<uint64_t, static_cast<size_t>(ShapeOrigin::kCount)> calls{};
  std::set<std::string> python_ops, executed_ops;  // shapes came from Python, or from running the op: each needs a rule
};

// One op on its way into the graph.
struct OpCall {
  const OpInfo& info;
  std::span<const c10::IValue> args;
  c10::Device device{c10::kCPU};        // of the results
  Node node;
  std::vector<c10::IValue> results;
  OpCall(const OpInfo& op, std::span<const c10::IValue> arguments) : info(op), args(arguments) {}
  const OpDef& def() const { return *info.def; }
};

// State of one question about the contents of a tensor.
struct Question {
  int budget;  // nodes that may still run
  std::vector<uint32_t> storages;  // whose writes are being redone
};

class Recorder final : public SymOwner, public std::enable_shared_from_this<Recorder> {
 public:
  static std::shared_ptr<Recorder> make(std::string name = "f");
  ~Recorder() override;

  // A traced tensor that stands for `real`; dimensions in `dynamic` with a size above 1 get symbols.
  at::Tensor add_input(const at::Tensor& real, const std::string& source, const DynamicExtents& dynamic = {});
  // The same for something that exists only at run time.
  at::Tensor add_input(TensorMeta meta, const std::string& source);
  size_t input_count() const { return graph().inputs.size(); }
  ValueId value_of(const at::Tensor& tensor);   // a real tensor becomes a constant
  void set_line(const Line& line, const std::string& way = "");  // way: put before the line in why()
  // A Scalar that stands for the number in a traced 0-dim tensor of float64; `now` is the number of this trace.
  c10::SymFloat float_of(const at::Tensor& traced, double now);
  std::vector<FloatRead> take_float_reads() { return std::exchange(float_reads_, {}); }  // since the last call
  void float_is_read(const FloatRead& read) override { float_reads_.push_back(read); }
  // Notes that the trace depends on the offset of the inputs in this storage.
  void offset_is_read(const c10::Storage& traced);
  bool relies_on_offsets() const { return !read_offsets_.empty(); }
  bool relies_on_offset(size_t input) const {
    return read_offsets_.contains(graph().values[index_of(graph().inputs[input])].storage);
  }
  std::optional<Error> take_break();
  [[noreturn]] void fail(Error failure);

  // Ends the recording; traced tensors are useless from here on. An output that is an input's own traced tensor is
  // marked as kInput.
  Result<void> build(const std::vector<at::Tensor>& outputs);
  const std::vector<at::Tensor>& constants() const { return constants_; }
  const std::vector<c10::IValue>& opaques() const { return opaques_; }

  const Graph& graph() const { return built_ ? *built_ : builder_.peek(); }
  ShapeEnv& shapes() override { return built_ ? built_->shapes : builder_.shapes(); }
  std::string why() const override { return why_; }
  const ShapeCounts& counts() const { return counts_; }
  // Nodes that were recorded while grad mode was off: their results have no history.
  const std::vector<uint32_t>& without_history() const { return without_history_; }

  // For the fallback: replaces the arguments on the stack with the results.
  void record(const OpInfo& info, torch::jit::Stack* stack);
  // The real contents of a small traced tensor that depends only on fresh constants and factories, or undefined.
  at::Tensor known_contents(const at::Tensor& tensor);
  // The steps that compute the number in a traced 0-dim tensor; empty: not known.
  NumberSteps number_of(const at::Tensor& traced);
  // Records the nodes from `first` to `end` again. In each pair, the second tensor replaces the first. Returns the new
  // version of each result; a result is undefined, or a tensor of this recording. The nodes must not write to anything
  // older than themselves.
  using StandIns = std::vector<std::pair<at::Tensor, at::Tensor>>;
  std::vector<at::Tensor> repeat(size_t first, size_t end, const StandIns& stand_ins,
                                 const std::vector<at::Tensor>& results);
  void keep_unwritten(const at::Tensor& traced) { kept_storages_.insert(storage_number(traced_storage_of(traced))); }
  // Whether a result may be sparse, as long as no recorded op reads it: a gradient that goes out as it is.
  void allow_sparse_results(bool allowed) { allows_sparse_ = allowed; }
  bool live() const { return !built_; }

 private:
  friend class RecordScope;
  friend bool is_true_everywhere(const at::Tensor& mask);
  explicit Recorder(std::string name) : builder_(std::move(name)) {}

  bool fill_in_memory_order(const OpInfo& info, torch::jit::Stack* stack);
  void find_device(OpCall& call);
  void move_indices(const OpInfo& info, torch::jit::Stack* stack);
  void settle_offset(const OpInfo& info, torch::jit::Stack* stack);
  bool answer_from_known_contents(OpCall& call);
  at::Tensor lifted(const at::Tensor& real);
  bool answer_lift(OpCall& call);
  void build_args(OpCall& call);
  using FloatArgs = std::vector<std::pair<size_t, ValueId>>;
  FloatArgs settle_floats(const OpInfo& info, torch::jit::Stack* stack);
  Arg tensor_arg(const OpCall& call, const at::Tensor& tensor);
  void refuse_writes_to_constants(const OpCall& call);
  void refuse_memory(const OpCall& call);
  void refuse_op_of_users(const OpCall& call);
  bool reads_what_it_writes(const OpCall& call);

  bool keep_shape_in_place(OpCall& call);
  bool keep_shape_of_outs(OpCall& call);
  bool fits_in_place(const OpCall& call) const;
  bool shape_by_rule(OpCall& call);
  ShapeOrigin shape_by_torch(OpCall& call);
  void specialise_symbols(const OpCall& call);
  void add_rule_results(OpCall& call, const std::vector<TensorMeta>& metas);
  at::Tensor result_of_rule(OpCall& call, size_t result, TensorMeta meta);
  void note_writes(const OpCall& call);
  void add_copy(Node node);
  at::Tensor tensor_of(ValueId copy, const at::Tensor& like, const std::map<uint32_t, c10::Storage>& objects);

  friend class MetaCall;
  void log_python_shapes() const;
  at::Tensor new_traced(TensorMeta meta, c10::Storage storage, const at::Tensor* view_of);
  at::Tensor fresh_result(TensorMeta meta);
  at::Tensor sparse_result(const OpCall& call, TensorMeta meta);
  ValueId value_to_read(const OpCall& call, const at::Tensor& tensor);
  at::Tensor view_result(TensorMeta meta, const at::Tensor& base);
  void change_shape(TracedTensorImpl& traced, TensorMeta meta);
  const c10::Storage& traced_storage_of(const at::Tensor& tensor);
  uint32_t storage_number(const c10::Storage& traced);
  ValueId add_constant(const at::Tensor& real, bool fresh);
  const at::Tensor* find_contents(ValueId value, size_t before, Question& question);
  const at::Tensor* redo_writes(ValueId value, size_t before, Question& question);
  bool run_for_real(size_t node, std::optional<uint32_t> redone, Question& question);

  GraphBuilder builder_;
  std::optional<Graph> built_;
  TracedStorages storages_;
  std::vector<at::Tensor> constants_;
  std::vector<bool> constant_is_fresh_;                        // no other code sees the contents
  std::unordered_map<const void*, ValueId> constant_ids_;
  std::unordered_map<const void*, uint32_t> opaque_ids_;
  std::vector<c10::IValue> opaques_;
  std::set<ValueId> sparse_;
  bool allows_sparse_ = false;
  std::set<uint32_t> written_storages_, read_offsets_, kept_storages_;
  std::vector<FloatRead> float_reads_;
  NumberHistory numbers_;
  std::vector<uint32_t> without_history_;
  std::vector<at::Tensor> contents_;                           // by value: contents that were asked for
  const ProgramModes modes_ = ProgramModes::now();  // when the recording began
  std::optional<Error> broken_;
  ShapeCounts counts_;
  std::string why_;
  int open_scopes_ = 0;
  struct ShapeChange { c10::intrusive_ptr<c10::TensorImpl> tensor; ValueId old_value; };
  std::vector<ShapeChange> shape_changes_;                     // of the open scope
};

// Open during one call of a torch function. Its ops are recorded; drop() forgets them.
class RecordScope {
 public:
  explicit RecordScope(Recorder& recorder);
  ~RecordScope();
  RecordScope(const RecordScope&) = delete;
  void drop();

 private:
  Recorder& recorder_;
  Recorder* outer_;
  bool outer_fake_, outer_cache_;
  GraphBuilder::Mark mark_;
};

// For kernels that run for real while a recording is open: without our keys and without autograd.
struct PlainExecution {
  c10::impl::ExcludeDispatchKeyGuard no_recording{c10::DispatchKeySet(c10::DispatchKey::Fake)};
  at::AutoDispatchBelowADInplaceOrView below;
};

// Registers the fallback, once; throws if the key is taken.
void register_recorder();
Recorder* recorder_of_thread();  // of the innermost open scope, or null
// Stores the failure in the thread's recorder and throws.
[[noreturn]] void note_break_on_thread(Error failure);
// The symbolic number in a wrapped number tensor, set by the Python side (torch keeps it as a Python attribute).
using WrappedSymbolFn = std::optional<SymExpr> (*)(const at::Tensor& wrapped_number);
void set_wrapped_symbol_reader(WrappedSymbolFn reader);
std::optional<SymExpr> wrapped_symbol_of(const at::Tensor& wrapped_number);

}  // namespace framejit::graph
