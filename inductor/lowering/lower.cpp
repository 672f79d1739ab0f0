// inductor/lowering/lower.cpp — the driver of lowering and the questions that lowerings ask about arguments.
#include "inductor/lowering/lower.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "graph/backend.h"
#include "graph/node_values.h"
#include "inductor/loop/empty_nest.h"
#include "inductor/lowering/few_rows.h"
#include "inductor/lowering/number_checks.h"
#include "inductor/lowering/one_query.h"

namespace framejit::inductor {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::TensorMeta;
using graph::ValueId;

namespace {

std::map<std::string, LowerFn, std::less<>>& table() {
  static std::map<std::string, LowerFn, std::less<>> rows;
  return rows;
}

const std::map<std::string, LowerFn, std::less<>>& filled_table() {
  static std::once_flag once;
  std::call_once(once, [] {
    register_pointwise_lowerings();
    register_reduction_lowerings();
    register_index_lowerings();
    register_loss_lowerings();
    register_copy_lowerings();
    register_factory_lowerings();
    register_resample_lowerings();
    register_pool_lowerings();
    register_scan_lowerings();
    register_scatter_lowerings();
  });
  return table();
}

}  // namespace

void add_lowering(std::string_view op, LowerFn function) { table().emplace(std::string(op), function); }

LowerFn find_lowering(std::string_view op) {
  const auto& rows = filled_table();
  const auto at = rows.find(op);
  return at == rows.end() ? nullptr : at->second;
}

namespace {
constexpr std::string_view kNumberIsTensor = "framejit::";
}

std::string_view row_name(const Node& node) {
  std::string_view name = node.op->name;
  if (name.starts_with(kNumberIsTensor)) name.remove_prefix(kNumberIsTensor.size());
  return name;
}

std::vector<std::string> lowered_ops() {
  std::vector<std::string> names;
  for (const auto& [name, function] : filled_table()) names.push_back(name);
  return names;
}

int64_t wrap_dim(int64_t dim, size_t ndim) {
  const auto n = static_cast<int64_t>(std::max<size_t>(ndim, 1));
  FJ_ASSERT(dim >= -n && dim < n, "the lowering was given a dimension that does not exist");
  return dim < 0 ? dim + n : dim;
}

bool LowerContext::given(size_t i) const {
  const Arg* a = arg(i);
  if (a == nullptr || a->is_none()) return false;
  const ValueId* v = a->get<ValueId>();
  return v == nullptr || *v != graph::kNoValue;
}

std::optional<ValueId> LowerContext::tensor(size_t i) const {
  const ValueId* v = given(i) ? arg(i)->get<ValueId>() : nullptr;
  return v == nullptr ? std::nullopt : std::optional(*v);
}

std::optional<SymExpr> LowerContext::size(size_t i) const {
  const SymExpr* e = given(i) ? arg(i)->get<SymExpr>() : nullptr;
  return e == nullptr ? std::nullopt : std::optional(*e);
}

std::optional<int64_t> LowerContext::integer(size_t i) const {
  const auto e = size(i);
  return e ? e->as_constant() : std::nullopt;
}

std::optional<int64_t> LowerContext::dimension(size_t i, size_t ndim) const {
  const auto dim = integer(i);
  const auto n = static_cast<int64_t>(std::max<size_t>(ndim, 1));
  return dim && *dim >= -n && *dim < n ? std::optional(wrap_dim(*dim, ndim)) : std::nullopt;
}

std::optional<double> LowerContext::number(size_t i) const {
  if (!given(i)) return std::nullopt;
  if (const double* d = arg(i)->get<double>()) return *d;
  if (const bool* b = arg(i)->get<bool>()) return *b ? 1.0 : 0.0;
  if (const auto n = integer(i)) return static_cast<double>(*n);
  return std::nullopt;
}

bool LowerContext::flag(size_t i, bool otherwise) const {
  const bool* b = given(i) ? arg(i)->get<bool>() : nullptr;
  return b == nullptr ? otherwise : *b;
}

std::optional<SymSizes> LowerContext::sizes(size_t i) const {
  if (!given(i)) return std::nullopt;
  if (const auto* list = arg(i)->get<std::vector<SymExpr>>()) return *list;
  if (const auto* one = arg(i)->get<SymExpr>()) return SymSizes{*one};
  return std::nullopt;
}

std::optional<std::vector<int64_t>> LowerContext::integers(size_t i) const {
  const auto list = sizes(i);
  if (!list) return std::nullopt;
  std::vector<int64_t> out;
  for (const SymExpr& e : *list) {
    if (!e.is_constant()) return std::nullopt;
    out.push_back(e.constant());
  }
  return out;
}

std::optional<std::string> LowerContext::text(size_t i) const {
  const std::string* s = given(i) ? arg(i)->get<std::string>() : nullptr;
  return s == nullptr ? std::nullopt : std::optional(*s);
}

NestBuilder LowerContext::nest(SymSizes ranges, SymSizes reduced) {
  NestBuilder builder(program_.symbol_count, "", std::move(ranges), std::move(reduced));
  builder.add_origins({static_cast<uint32_t>(node_ - graph_.nodes.data())});
  return builder;
}

Walk LowerContext::walk(SymSizes sizes, int64_t dim) {
  if (sizes.empty()) return {nest({}, {SymExpr(1)}), {}};
  const auto at = static_cast<long>(wrap_dim(dim, sizes.size()));
  const SymExpr length = sizes[static_cast<size_t>(at)];
  sizes.erase(sizes.begin() + at);
  const size_t count = sizes.size();
  Walk walk{nest(std::move(sizes), {length}), {}};
  walk.index = walk.builder.range_dims();
  walk.index.insert(walk.index.begin() + at, walk.builder.dim(count));
  return walk;
}

LoopBufferId LowerContext::add_buffer(BufferRole role, ValueId v, const std::string& name) {
  const TensorMeta& m = meta(v);
  program_.buffers.push_back({name, role, m.dtype, m.sizes, m.strides, graph::index_of(v), false});
  const auto id = static_cast<LoopBufferId>(program_.buffers.size() - 1);
  forms_[graph::index_of(v)] = {ValueForm::kBuffer, id, {}, 0, 0};
  return id;
}

LoopBufferId LowerContext::result_buffer(size_t k) {
  const ValueId v = node_->results[k];
  const ValueForm& form = forms_[graph::index_of(v)];
  if (form.kind == ValueForm::kBuffer) return form.buffer;
  return add_buffer(BufferRole::kTemp, v, "v" + std::to_string(graph::index_of(v)));
}

LoopBufferId LowerContext::temp(DType dtype, SymSizes sizes) {
  SymSizes strides = graph::contiguous_strides(sizes);
  program_.buffers.push_back({"t" + std::to_string(next_temp_++), BufferRole::kTemp, dtype, std::move(sizes),
                              std::move(strides), UINT32_MAX, false});
  return static_cast<LoopBufferId>(program_.buffers.size() - 1);
}

void LowerContext::add_nest(NestBuilder builder, LoopBufferId buffer, std::vector<SymExpr> index, InstId value) {
  const InstId stored = builder.cast(value, program_.buffers[buffer].dtype);
  builder.store(buffer, std::move(index), stored);
  add_nest(std::move(builder));
}

void LowerContext::add_nest(NestBuilder builder) {
  Nest nest = without_empty_loops(builder.build(), program_.symbol_count);
  nest.name = "n" + std::to_string(next_nest_++);  // named here, because a builder that is copied finishes twice
  program_.items.push_back(std::move(nest));
}

void LowerContext::store_result(NestBuilder builder, InstId value, size_t k) {
  std::vector<SymExpr> index = builder.range_dims();
  add_nest(std::move(builder), result_buffer(k), std::move(index), value);
}

InstId LowerContext::load_temp(NestBuilder& builder, LoopBufferId b, std::vector<SymExpr> index) {
  return builder.load(b, program_.buffers[b].dtype, std::move(index));
}

InstId load_value(const Graph& graph, const std::vector<ValueForm>& forms, const LoopProgram& program,
                  NestBuilder& builder, ValueId v, std::vector<SymExpr> index, InstId mask, InstId other) {
  const DimBounds bounds = builder.bounds();
  while (forms[graph::index_of(v)].kind == ValueForm::kView) {
    const ValueForm& form = forms[graph::index_of(v)];
    auto mapped = map_view(graph, graph.nodes[form.node], form.result, index, bounds);
    FJ_ASSERT(mapped.has_value(), "a view that is not an index map was lowered as one");
    index = std::move(*mapped);
    v = form.base;
  }
  const LoopBuffer& buffer = program.buffers[forms[graph::index_of(v)].buffer];
  for (size_t k = 0; k < index.size(); ++k)
    index[k] = buffer.sizes[k] == SymExpr(1) ? SymExpr(0) : simplify(index[k], bounds);
  return builder.load(forms[graph::index_of(v)].buffer, buffer.dtype, std::move(index), mask, other);
}

InstId LowerContext::load(NestBuilder& builder, ValueId v, std::vector<SymExpr> index) {
  return load_masked(builder, v, std::move(index), kNoInst, kNoInst);
}

InstId LowerContext::load_masked(NestBuilder& builder, ValueId v, std::vector<SymExpr> index, InstId mask,
                                 InstId other) {
  return load_value(graph_, forms_, program_, builder, v, std::move(index), mask, other);
}

InstId LowerContext::load_broadcast(NestBuilder& builder, ValueId v, const std::vector<SymExpr>& index) {
  const SymSizes& sizes = meta(v).sizes;
  std::vector<SymExpr> own(index.end() - static_cast<long>(sizes.size()), index.end());
  for (size_t k = 0; k < sizes.size(); ++k)
    if (is_size_one(graph_, sizes[k])) own[k] = 0;
  return load(builder, v, std::move(own));
}

LoopBufferId root_buffer(const std::vector<ValueForm>& forms, ValueId v) {
  while (forms[graph::index_of(v)].kind == ValueForm::kView) v = forms[graph::index_of(v)].base;
  return forms[graph::index_of(v)].buffer;
}

LoopBufferId LowerContext::root_buffer(ValueId v) { return inductor::root_buffer(forms_, v); }

void LowerContext::add_inputs() {
  for (size_t i = 0; i < graph_.inputs.size(); ++i)
    add_buffer(BufferRole::kInput, graph_.inputs[i], "in" + std::to_string(i));
  for (size_t i = 0; i < graph_.constants.size(); ++i)
    add_buffer(BufferRole::kConstant, graph_.constants[i], "c" + std::to_string(i));
}

// Only dense tensors on the kernels' device, of dtypes with a scalar form, are lowered.
bool LowerContext::is_supported(const Node& node) const {
  const auto fits = [&](ValueId v) {
    if (v == graph::kNoValue) return true;
    const TensorMeta& m = meta(v);
    const DTypeKind kind = row_of(m.dtype).kind;
    return m.device == device_ && kind != DTypeKind::complex_kind && kind != DTypeKind::other_kind && m.ndim() <= 8;
  };
  bool all_fit = true;
  graph::for_each_value(node, [&](ValueId v) { all_fit = all_fit && fits(v); });
  if (!all_fit) return false;
  // If the result is an integer, only eager, when it runs, can check whether the number fits.
  if (node.op->name.starts_with(kNumberIsTensor) && !is_float(meta(node.results[0]).dtype)) return false;
  return std::all_of(node.results.begin(), node.results.end(), fits);
}

void LowerContext::lower_extern(uint32_t index) {
  const Node& node = graph_.nodes[index];
  ExternCall call{index, node.op->name, {}, {}};
  const auto read = [&](ValueId v) {
    if (v != graph::kNoValue) call.reads.push_back(root_buffer(v));
  };
  graph::for_each_value(node, read);
  for (size_t k = 0; k < node.results.size(); ++k)
    if (node.results[k] != graph::kNoValue) call.writes.push_back(result_buffer(k));
  program_.items.push_back(std::move(call));
}

namespace {

// Whether a target that runs points in any order can run the nest: ordered stores must have a single reduced point.
bool is_in_any_order(const Nest& nest) {
  const auto walks = [](const LoopInst& inst) { return is_ordered(inst) && inst.mode != StoreMode::kLast; };
  const auto is_one = [](const SymExpr& extent) { return extent == SymExpr(1); };
  return !is_ordered(nest) || (std::none_of(nest.body.begin(), nest.body.end(), walks) &&
                               std::all_of(nest.reduced.begin(), nest.reduced.end(), is_one));
}

bool has_form(const Nest& nest, const TargetTraits& traits) {
  const auto is_check = [](const LoopInst& inst) { return inst.op == LoopOp::kCheck; };
  if (!traits.points_run_in_order && !is_in_any_order(nest)) return false;
  return traits.kernels_may_fail || traits.checks_assert || std::none_of(nest.body.begin(), nest.body.end(), is_check);
}

}  // namespace

// Ops that check numbers are left to the library if a kernel cannot stop the call. So are ops that check indices if a
// kernel cannot even assert, and ops that must run in order if kernels do not.
bool LowerContext::try_row(LowerFn row) {
  const size_t items = program_.items.size(), buffers = program_.buffers.size();
  const bool has_numbers = add_number_checks(*this);
  const bool stops = has_numbers && program_.items.size() > items;
  if (!has_numbers || !row(*this)) {
    program_.items.resize(items);
    return false;
  }
  const TargetTraits& traits = target_.traits;
  const auto fits = [&](const auto& item) {
    const Nest* nest = std::get_if<Nest>(&item);
    return nest == nullptr || has_form(*nest, traits);
  };
  const auto first = program_.items.begin() + static_cast<long>(items);
  if ((!stops || traits.kernels_may_fail) && std::all_of(first, program_.items.end(), fits)) return true;
  program_.items.resize(items);
  program_.buffers.resize(buffers);
  for (ValueId v : node_->results)
    if (v != graph::kNoValue) forms_[graph::index_of(v)] = {};
  return false;
}

// Uninitialized memory that is only copied: the copy has its own buffer.
bool LowerContext::is_copied_over(const Node& node) const {
  if (!node.op->is(graph::KnownOp::empty_strided) && !node.op->is(graph::KnownOp::empty_memory_format)) return false;
  const ValueId made = node.results[0];
  const auto is = [&](ValueId v) { return v == made; };
  if (std::any_of(graph_.outputs.begin(), graph_.outputs.end(), is)) return false;
  if (std::any_of(graph_.updates.begin(), graph_.updates.end(), [&](const auto& update) { return is(update.second); }))
    return false;
  for (const Node& user : graph_.nodes)
    for (size_t i = 0; i < user.args.size(); ++i)
      if (graph::has_value(user.args[i], made) && (!user.op->is(graph::KnownOp::copy) || i != 0 || !is_supported(user)))
        return false;
  return true;
}

namespace {

// Results without elements need only memory. If the op raises for such sizes, the recorder has already raised.
bool lower_nothing(LowerContext& ctx) {
  for (size_t k = 0; k < ctx.node().results.size(); ++k) {
    NestBuilder b = ctx.result_nest(k);
    const InstId value = b.constant(0, ctx.result_meta(k).dtype);
    ctx.store_result(std::move(b), value, k);
  }
  return true;
}

bool makes_nothing(const Graph& graph, const Node& node) {
  constexpr uint32_t kMore = graph::kRunsOnce | graph::kView | graph::kChecksData | graph::kDivides;
  const auto is_empty = [&](ValueId v) { return v != graph::kNoValue && graph.meta(v).numel() == SymExpr(0); };
  return (node.op->flags & kMore) == 0 && node.op->shape_rule != nullptr && !node.results.empty() &&
         std::ranges::all_of(node.results, is_empty);
}

}  // namespace

LowerFn LowerContext::row_of_node() const {
  if (!is_supported(*node_)) return nullptr;
  if (makes_nothing(graph_, *node_)) return lower_nothing;
  if (is_few_row_product(graph_, *node_, target_)) return lower_few_row_product;
  if (is_one_query_attention(graph_, *node_, target_)) return lower_one_query_attention;
  return find_lowering(row_name(*node_));
}

void LowerContext::lower_node(uint32_t index) {
  node_ = &graph_.nodes[index];
  if (is_copied_over(*node_)) return;
  if (is_mapped_view(node_->op->name)) {
    const ValueId base = *node_->args[0].get<ValueId>();
    std::vector<SymExpr> probe;
    bool mapped = true;
    for (uint32_t k = 0; k < node_->results.size() && mapped; ++k) {
      probe.assign(meta(node_->results[k]).ndim(), SymExpr(0));
      mapped = map_view(graph_, *node_, k, probe, {NestSymbols(program_.symbol_count), {}}).has_value();
    }
    if (mapped) {
      for (uint32_t k = 0; k < node_->results.size(); ++k)
        forms_[graph::index_of(node_->results[k])] = {ValueForm::kView, 0, base, index, k};
      return;
    }
  }
  if (const LowerFn row = row_of_node(); row != nullptr && try_row(row)) return;
  lower_extern(index);
}

LoweredGraph LowerContext::run() {
  program_.name = graph_.name;
  program_.symbol_count = static_cast<uint32_t>(graph_.shapes.symbol_count());
  forms_.resize(graph_.values.size());
  add_inputs();
  for (uint32_t i = 0; i < graph_.nodes.size(); ++i) lower_node(i);
  const auto keep = [&](ValueId v) {
    if (v != graph::kNoValue) program_.buffers[root_buffer(v)].is_output = true;
  };
  for (ValueId v : graph_.outputs) keep(v);
  for (const auto& [input, v] : graph_.updates) keep(v);
  return {std::move(program_), std::move(forms_)};
}

graph::Device kernel_device(const Graph& graph) {
  for (const graph::ValueInfo& value : graph.values)
    if (!graph::runtime_device(value.meta.device).is_cpu()) return value.meta.device;
  return {};
}

bool is_size_one(const Graph& graph, const SymExpr& size) {
  return size.is_constant() ? size.constant() == 1 : graph.shapes.known(size, graph::Relation::kEq, 1) == true;
}

LoweredGraph lower(const Graph& graph, const TargetInfo& target) { return LowerContext(graph, target).run(); }

}  // namespace framejit::inductor
