// tests/unit/inductor/plan_runner.cpp — memory, views and extern ops for tests.
#include "tests/parsers/graph_parser.h"
#include "tests/parsers/executable_parser.h"
#include "tests/unit/inductor/plan_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iomanip>
#include <memory>
#include <optional>
#include <sstream>

#include "graph/passes/pipeline.h"
#include "graph/scalar_op.h"
#include "inductor/assemble.h"
#include "inductor/cpu/jit.h"
#include "inductor/interp/interpreter.h"
#include "inductor/lowering/lower.h"
#include "inductor/schedule/input_writes.h"
#include "tests/unit/inductor/guarded_memory.h"
#include "tests/unit/inductor/planted.h"

namespace framejit::inductor::testing {

using graph::Graph;
using graph::TensorMeta;
using graph::ValueId;

namespace {

struct View {
  char* data = nullptr;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sizes, strides;
};

std::vector<int64_t> eval(const graph::SymSizes& e, const std::vector<int64_t>& symbols) {
  std::vector<int64_t> out;
  for (const auto& x : e) out.push_back(x.eval(symbols));
  return out;
}

int64_t span_bytes(DType dtype, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  int64_t span = 1;
  for (size_t k = 0; k < sizes.size(); ++k) {
    if (sizes[k] == 0) return 0;
    span += (sizes[k] - 1) * strides[k];
  }
  return span * row_of(dtype).bytes;
}

template <class Visit>
void for_each_index(const std::vector<int64_t>& sizes, Visit visit) {
  std::vector<int64_t> at(sizes.size(), 0);
  for (int64_t s : sizes)
    if (s == 0) return;
  for (;;) {
    visit(at);
    size_t d = sizes.size();
    while (d > 0 && ++at[d - 1] == sizes[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

char* element(const View& v, const std::vector<int64_t>& at) {
  int64_t offset = 0;
  for (size_t k = 0; k < at.size(); ++k) offset += at[k] * v.strides[k];
  return v.data + offset * row_of(v.dtype).bytes;
}

double number_at(DType dtype, const char* at) {
  const auto value = graph::load_element(dtype, at);
  return is_float(dtype) ? value.f : static_cast<double>(value.i);
}
double get(const View& v, const std::vector<int64_t>& at) { return number_at(v.dtype, element(v, at)); }
void set(const View& v, const std::vector<int64_t>& at, double x) {
  graph::ScalarValue value;
  value.f = x;
  if (!is_float(v.dtype)) value.i = static_cast<int64_t>(x);
  graph::store_element(v.dtype, element(v, at), value);
}

void add_output(Outputs& out, const View& v) {
  out.dtypes.push_back(v.dtype);
  std::vector<double>& values = out.values.emplace_back();
  std::string& bytes = out.bytes.emplace_back();
  for_each_index(v.sizes, [&](const std::vector<int64_t>& at) {
    values.push_back(get(v, at));
    bytes.append(element(v, at), static_cast<size_t>(row_of(v.dtype).bytes));
  });
}

bool is_emulated(const std::string& op) { return op == "mm" || op == "bmm" || op == "addmm" || op == "opaque_copy"; }

// mm(a, b), bmm(a, b), addmm(c, a, b), opaque_copy(a).
void emulate(const std::string& op, const std::vector<View>& in, const View& out) {
  const size_t first = op == "addmm" ? 1 : 0;
  ASSERT_TRUE(is_emulated(op)) << op << ": the test host does not know this op";
  if (op == "opaque_copy") {
    for_each_index(out.sizes, [&](const std::vector<int64_t>& at) { set(out, at, get(in[0], at)); });
    return;
  }
  const View &a = in[first], &b = in[first + 1];
  for_each_index(out.sizes, [&](const std::vector<int64_t>& at) {
    std::vector<int64_t> left = at, right = at;
    double sum = first == 1 ? get(in[0], in[0].sizes.size() == 1 ? std::vector<int64_t>{at[1]} : at) : 0;
    left.back() = right[right.size() - 2] = 0;
    const char *l = element(a, left), *r = element(b, right);
    const int64_t bytes = row_of(a.dtype).bytes, along = a.strides.back() * bytes,
                  down = b.strides[right.size() - 2] * bytes;
    for (int64_t k = 0; k < a.sizes.back(); ++k)
      sum += number_at(a.dtype, l + k * along) * number_at(b.dtype, r + k * down);
    set(out, at, sum);
  });
}

class Host : public runtime::PlanHost {
 public:
  Host(const runtime::CallPlan& plan, const std::vector<Data>& inputs, int threads)
      : plan_(plan), inputs_(inputs), threads_(threads), storage_(plan.buffers.size()), data_(plan.buffers.size()) {}

  void enter(const runtime::Place&) override {}
  void* data(runtime::BufferId b) override {
    const runtime::Buffer& buffer = plan_.buffers[b];
    if (buffer.storage == runtime::Storage::kInput && data_[b] == nullptr) {
      const View v = view(b, nullptr);
      const int64_t bytes = span_bytes(v.dtype, v.sizes, v.strides);
      const char* const given = inputs_[buffer.index].bytes.data();
      const bool is_written = std::any_of(plan_.updates.begin(), plan_.updates.end(), [&](const auto& update) {
        return update.first == buffer.index && update.second == b;
      });
      storage_[b] = is_written ? guarded_block(bytes, 1) : guarded_copy(given, bytes);
      if (is_written) std::memcpy(storage_[b].get(), given, static_cast<size_t>(bytes));
      data_[b] = storage_[b].get();
    }
    if (buffer.storage == runtime::Storage::kArena) {
      EXPECT_NE(arena_[buffer.index], nullptr)
          << "buffer " << b << " lies in a block that nobody took, or that was given back";
      return arena_[buffer.index].get() + size(buffer.offset);
    }
    EXPECT_NE(data_[b], nullptr) << "buffer " << b << " is used before it exists or after it was freed";
    return data_[b];
  }
  // Here, a plan writes over everything that it may write over.
  void allocate(runtime::BufferId b, runtime::BufferId over) override {
    const View v = view(b, nullptr);
    if (over != runtime::kNoBuffer) {  // inputs are protected against writes
      const int64_t bytes = span_bytes(v.dtype, v.sizes, v.strides);
      const std::shared_ptr<char[]> block = guarded_block(bytes, 1);
      std::memcpy(block.get(), data(over), static_cast<size_t>(bytes));
      for (runtime::BufferId of : {over, b}) storage_[of] = block, data_[of] = block.get();
      return;
    }
    storage_[b] = guarded_block(span_bytes(v.dtype, v.sizes, v.strides), 1);
    data_[b] = storage_[b].get();
  }
  void view(runtime::BufferId base, runtime::BufferId result) {
    const int64_t shift = size(plan_.buffers[result].offset) - size(plan_.buffers[base].offset);
    storage_[result] = storage_[base];
    data_[result] = static_cast<char*>(data(base)) + shift * row_of(plan_.buffers[base].dtype).bytes;
  }
  void call(const runtime::ExternStep& step, size_t) override {
    std::vector<View> in;
    for (const runtime::PlanArg& a : step.args)
      if (const auto* b = std::get_if<runtime::BufferId>(&a.payload))
        in.push_back(view(*b, static_cast<char*>(data(*b))));
    if (const size_t dot = step.op.find(".out"); dot != std::string::npos) {
      const View out = in.back();
      in.pop_back();
      return emulate(step.op.substr(0, dot), in, out);
    }
    allocate(step.results[0], runtime::kNoBuffer);
    emulate(step.op, in, view(step.results[0], data_[step.results[0]]));
  }
  void release(runtime::BufferId b) override {
    storage_[b].reset();
    data_[b] = nullptr;
  }
  void take(uint32_t block, int64_t bytes) override {
    EXPECT_EQ(arena_[block], nullptr) << "block " << block << " is taken twice";
    arena_[block] = guarded_block(bytes, 64);  // runtime/arena.h promises this alignment
  }
  void give(uint32_t block) override { arena_[block].reset(); }
  // Chunks in reverse order on one thread: results must not depend on which thread runs which part when.
  void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*body)(void*, int64_t, int64_t),
                    void* state) override {
    const int64_t chunk = std::max(grain, (end - begin + threads_ - 1) / threads_);
    std::vector<std::pair<int64_t, int64_t>> parts;
    for (int64_t at = begin; at < end; at += std::max<int64_t>(chunk, 1))
      parts.emplace_back(at, std::min(end, at + std::max<int64_t>(chunk, 1)));
    for (size_t k = parts.size(); k-- > 0;) body(state, parts[k].first, parts[k].second);
  }

  View view(runtime::BufferId b, char* data) const {
    View v{data, plan_.buffers[b].dtype, {}, {}};
    for (const auto& s : plan_.buffers[b].sizes) v.sizes.push_back(size(s));
    for (const auto& s : plan_.buffers[b].strides) v.strides.push_back(size(s));
    return v;
  }

 private:
  const runtime::CallPlan& plan_;
  const std::vector<Data>& inputs_;
  int threads_;
  std::vector<std::shared_ptr<char[]>> storage_;
  std::vector<char*> data_;
  std::array<std::shared_ptr<char[]>, runtime::kArenaBlocks> arena_;
};

}  // namespace

std::vector<Data> random_inputs(const Graph& graph, const std::vector<int64_t>& symbols, uint32_t seed,
                                int64_t int_limit) {
  std::mt19937 random(seed);
  std::vector<Data> inputs;
  for (ValueId v : graph.inputs) {
    const TensorMeta& m = graph.meta(v);
    const int64_t bytes = span_bytes(m.dtype, eval(m.sizes, symbols), eval(m.strides, symbols));
    Data data{std::vector<char>(static_cast<size_t>(bytes) + 64)};
    for (int64_t at = 0; at < bytes; at += row_of(m.dtype).bytes) {
      graph::ScalarValue value;
      if (is_float(m.dtype)) {
        value.f = std::normal_distribution<double>(0, 1)(random);
      } else {
        value.i = static_cast<int64_t>(random() % static_cast<uint64_t>(m.dtype == DType::kBool ? 2 : int_limit));
      }
      graph::store_element(m.dtype, data.bytes.data() + at, value);
    }
    inputs.push_back(std::move(data));
  }
  return inputs;
}

Result<Outputs> run_interpreted(const Graph& graph, const std::vector<Data>& inputs,
                                const std::vector<int64_t>& symbols) {
  LoweredGraph lowered = lower(graph, reference_target());
  if (auto verified = verify(lowered.program, symbols); !verified) return verified.error();
  std::vector<Data> storage(lowered.program.buffers.size());
  InterpreterMemory memory{{}, symbols};
  std::vector<View> views;
  for (size_t b = 0; b < lowered.program.buffers.size(); ++b) {
    const LoopBuffer& buffer = lowered.program.buffers[b];
    View v{nullptr, buffer.dtype, eval(buffer.sizes, symbols), eval(buffer.strides, symbols)};
    storage[b].bytes.resize(static_cast<size_t>(span_bytes(v.dtype, v.sizes, v.strides)) + 64);
    v.data = storage[b].bytes.data();
    views.push_back(v);
    memory.buffers.push_back(v.data);
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    storage[lowered.forms[graph::index_of(graph.inputs[i])].buffer].bytes = inputs[i].bytes;
  for (size_t b = 0; b < storage.size(); ++b) memory.buffers[b] = views[b].data = storage[b].bytes.data();
  const auto view_of = [&](ValueId v) {
    ValueId root = v;
    while (lowered.forms[graph::index_of(root)].kind == ValueForm::kView)
      root = lowered.forms[graph::index_of(root)].base;
    View base = views[lowered.forms[graph::index_of(root)].buffer];
    const TensorMeta& m = graph.meta(v);
    base.data += (m.offset.eval(symbols) - graph.meta(root).offset.eval(symbols)) * row_of(base.dtype).bytes;
    base.sizes = eval(m.sizes, symbols);
    base.strides = eval(m.strides, symbols);
    return base;
  };
  const auto ran = run_program(lowered.program, memory, [&](const ExternCall& call) {
    const graph::Node& node = graph.nodes[call.node];
    std::vector<View> in;
    for (const graph::Arg& a : node.args)
      if (const ValueId* v = a.get<ValueId>()) in.push_back(view_of(*v));
    emulate(node.op->name, in, view_of(node.results[0]));
  });
  if (!ran) return ran.error();
  Outputs out;
  for (ValueId v : graph.outputs) add_output(out, view_of(v));
  return out;
}

void share_kernels(runtime::Executable& executable) {
  for (runtime::Step& step : executable.forward.steps)
    if (auto* kernel = std::get_if<runtime::KernelStep>(&step); kernel != nullptr && kernel->grain >= 0)
      kernel->grain = 1;
}

Result<Outputs> run_plan(const runtime::Executable& executable, runtime::KernelLoader& loader,
                         const std::vector<Data>& inputs, const std::vector<int64_t>& symbols, int threads) {
  const std::string text = runtime::print(executable);
  const auto parsed = runtime::parse_executable(text);
  EXPECT_TRUE(parsed.ok()) << parsed.error().message << "\n" << text;
  if (parsed.ok()) {
    EXPECT_TRUE(parsed.value() == executable) << text;
    EXPECT_EQ(runtime::print(parsed.value()), text);
  }
  PlantedLoader planted(loader);
  FJ_TRY(const auto bound, runtime::BoundExecutable::bind(executable, planted));
  const runtime::CallPlan& plan = bound->executable().forward;
  Host host(plan, inputs, threads);
  FJ_TRY_VOID(runtime::run_steps(bound->forward(), symbols.data(), host));
  Outputs out;
  for (const runtime::Output& o : plan.outputs) {
    EXPECT_EQ(o.kind, runtime::Output::kBuffer);
    add_output(out, host.view(o.index, static_cast<char*>(host.data(o.index))));
  }
  return out;
}

Result<Outputs> run_compiled(const Graph& graph, const std::vector<Data>& inputs, const std::vector<int64_t>& symbols,
                             InductorOptions options) {
  const auto backend = make_inductor_backend(options);
  FJ_TRY(const runtime::Executable executable, backend->compile(graph));
  return run_plan(executable, backend->loader(), inputs, symbols, 1);
}

namespace {

double unit_in_the_last_place(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return 0x1p-52;
    case DType::kFloat32: return 0x1p-23;
    case DType::kFloat16: return 0x1p-10;
    default: return 0x1p-7;  // bfloat16
  }
}

bool is_close(double got, double expected, double bound) {
  if (got == expected || (std::isnan(got) && std::isnan(expected))) return true;
  return std::isfinite(got) && std::isfinite(expected) && std::fabs(got - expected) <= bound;
}

}  // namespace

std::string difference(const Outputs& got, const Outputs& expected, double tolerance) {
  if (got.values.size() != expected.values.size()) return "another number of outputs";
  for (size_t o = 0; o < expected.values.size(); ++o) {
    const std::vector<double>&mine = got.values[o], &theirs = expected.values[o];
    if (mine.size() != theirs.size()) return "output " + std::to_string(o) + " has another number of elements";
    const bool is_exact = tolerance == 0 || !is_float(expected.dtypes[o]);
    const double own = is_exact ? 0 : tolerance + 2 * unit_in_the_last_place(expected.dtypes[o]);
    double largest = 0;
    for (double x : theirs)
      if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
    for (size_t k = 0; k < theirs.size(); ++k)
      if (!is_close(mine[k], theirs[k], own * std::fabs(theirs[k]) + (is_exact ? 0 : tolerance / 8 * largest))) {
        std::ostringstream text;
        text << std::setprecision(12) << "output " << o << " element " << k << " is " << mine[k] << ", expected "
             << theirs[k] << " (largest " << largest << ")";
        return text.str();
      }
  }
  return "";
}

std::vector<std::string> unknown_calls(const LoopProgram& program) {
  std::vector<std::string> unknown;
  for (const auto& item : program.items)
    if (const auto* call = std::get_if<ExternCall>(&item); call != nullptr && !is_emulated(call->op))
      unknown.push_back(call->op);
  return unknown;
}

void declare_ops() {
  static const bool declared = [] {
    for (const std::string& name : lowered_ops()) {
      graph::OpDef op;
      op.name = name;
      graph::declare_op(std::move(op));
    }
    return true;
  }();
  ASSERT_TRUE(declared);
}

namespace {

// Every way of compiling that this CPU supports; kAvx512 is the host's level if it has it.
std::vector<InductorOptions> variants() {
  std::vector<InductorOptions> all{
      {false, 0, Target::kMachine}, {true, 0, Target::kInterp}, {false, 0, Target::kInterp}};
  for (const VectorLevel level : {VectorLevel::kHost, VectorLevel::kAvx2, VectorLevel::k128})
    if (is_available(level)) all.push_back({true, static_cast<int>(level), Target::kMachine});
  return all;
}

std::vector<int64_t> hints_of(const Graph& graph) {
  std::vector<int64_t> hints;
  for (size_t s = 0; s < graph.shapes.symbol_count(); ++s)
    hints.push_back(graph.shapes.symbol(static_cast<graph::SymbolId>(s)).hint);
  return hints;
}

// A graph with inputs, and the interpreter's results for them.
struct Reference {
  Graph graph;
  std::vector<int64_t> symbols;
  std::vector<Data> inputs;
  Outputs expected;
};
Result<Graph> parse(const std::string& text, bool passes) {
  declare_ops();
  FJ_TRY(Graph graph, graph::parse_graph(text));
  if (passes) return graph::run_pipeline(std::move(graph), true);
  return graph;
}

Result<Reference> make_reference(const Graph& graph, const CheckOptions& options) {
  Reference r{graph, hints_of(graph), {}, {}};
  std::copy(options.symbols.begin(), options.symbols.end(), r.symbols.begin());
  r.inputs = random_inputs(r.graph, r.symbols, options.seed, options.int_limit);
  FJ_TRY(r.expected, run_interpreted(r.graph, r.inputs, r.symbols));
  return r;
}

// Compiled once, then run once for each number of threads, which must not change a single bit.
void check_variant(const Reference& r, const InductorOptions& variant, const CheckOptions& options,
                   const std::string& what) {
  const auto compiled = options.compiled.empty() ? Result<Graph>(r.graph) : parse(options.compiled, options.passes);
  ASSERT_TRUE(compiled.ok()) << compiled.error().message << "\n"
                             << options.compiled;
  const auto backend = make_inductor_backend(variant);
  // One level as a backward whose inputs are all saved values.
  const bool is_backward = variant.vector_level == static_cast<int>(VectorLevel::k128);
  auto plan = is_backward
                  ? backend->compile_backward(compiled.value(), std::vector<bool>(compiled.value().inputs.size(), true))
                  : backend->compile(compiled.value());
  ASSERT_TRUE(plan.ok()) << plan.error().message << "\n"
                         << what;
  if (variant.fuse && variant.target == Target::kMachine) share_kernels(plan.value());
  if (options.plan) options.plan(plan.value());
  std::vector<int> threads{3};
  if (variant.target == Target::kMachine) threads = {1, 2, 3};
  std::optional<Outputs> first;
  for (const int n : threads) {
    const auto got = run_plan(plan.value(), backend->loader(), r.inputs, r.symbols, n);
    ASSERT_TRUE(got.ok()) << got.error().message << "\n" << what;
    if (first) {
      EXPECT_EQ(got.value().bytes, first->bytes) << n << " threads give other bits than " << threads[0] << ", " << what;
      continue;
    }
    first = got.value();
    EXPECT_EQ(difference(*first, r.expected, options.tolerance), "") << what;
  }
  int kernels = 0;
  for (const auto& step : plan.value().forward.steps) kernels += std::holds_alternative<runtime::KernelStep>(step);
  if (variant.fuse && options.kernels >= 0) {
    EXPECT_EQ(kernels, options.kernels) << what;
  }
}

}  // namespace

void check_graph(const Graph& graph, const CheckOptions& options) {
  const std::string text = graph::print(graph);
  const auto reference = make_reference(graph, options);
  ASSERT_TRUE(reference.ok()) << reference.error().message << "\n"
                              << text;
  for (InductorOptions variant : variants()) {
    variant.choices = options.choices;
    check_variant(reference.value(), variant, options,
                  "level " + std::to_string(variant.vector_level) + (variant.fuse ? " fused" : " unfused") +
                      (variant.target == Target::kInterp ? " interpreted" : "") + "\n" + text);
  }
}

void check_graph(const std::string& text, CheckOptions options) {
  const auto graph = parse(text, options.passes);
  ASSERT_TRUE(graph.ok()) << graph.error().message << "\n"
                          << text;
  check_graph(graph.value(), options);
}

void check_graph_with(KernelTarget& target, const std::string& text, CheckOptions options) {
  const auto graph = parse(text, options.passes);
  ASSERT_TRUE(graph.ok()) << graph.error().message << "\n"
                          << text;
  const auto reference = make_reference(graph.value(), options);
  ASSERT_TRUE(reference.ok()) << reference.error().message << "\n" << text;
  const Reference& r = reference.value();
  const auto compiled = options.compiled.empty() ? Result<Graph>(r.graph) : parse(options.compiled, options.passes);
  ASSERT_TRUE(compiled.ok()) << compiled.error().message << "\n" << options.compiled;
  LoweredGraph lowered = lower(compiled.value(), target.info());
  write_inputs_in_place(compiled.value(), target.info(), lowered);
  const SizeHints hints{hints_of(r.graph)};
  const Schedule schedule = make_schedule(std::move(lowered.program), hints, target.info());
  auto plan = assemble(compiled.value(), lowered.forms, schedule, hints, target);
  ASSERT_TRUE(plan.ok()) << plan.error().message << "\n" << text;
  const auto got = run_plan(plan.value(), target, r.inputs, r.symbols, 1);
  ASSERT_TRUE(got.ok()) << got.error().message << "\n" << text;
  EXPECT_EQ(difference(got.value(), r.expected, options.tolerance), "") << text;
}

std::vector<Kernel> kernels_of(const std::string& text, const TargetInfo& target) {
  const auto graph = parse(text, true);
  EXPECT_TRUE(graph.ok());
  const SizeHints hints{hints_of(graph.value())};
  const Schedule schedule = make_schedule(lower(graph.value(), target).program, hints, target);
  const std::vector<bool> is_private = private_buffers(schedule);
  std::vector<Kernel> kernels;
  for (const auto& step : schedule.steps)
    if (const Group* group = std::get_if<Group>(&step))
      kernels.push_back(make_kernel(schedule.program, *group, is_private, hints, target));
  return kernels;
}

}  // namespace framejit::inductor::testing
