// graph/ops/rule_kit.cpp — see rule_kit.h. Each function names the ATen function whose results it reproduces.
#include "graph/ops/rule_kit.h"

#include <algorithm>
#include <numeric>

namespace framejit::graph {

bool is_one(ShapeEnv& env, const SymExpr& e) {
  return e.is_constant() ? e.constant() == 1 : env.decide(e, Relation::kEq, 1, "size is 1");
}

bool same_size(ShapeEnv& env, const SymExpr& a, const SymExpr& b) {
  return a == b || env.decide(a, Relation::kEq, b, "sizes are equal");
}

bool any_negative(ShapeEnv& env, const SymSizes& sizes) {
  return std::any_of(sizes.begin(), sizes.end(),
                     [&](const SymExpr& e) { return env.decide(e, Relation::kLt, 0, "size is not negative"); });
}

std::optional<size_t> wrap_dim(int64_t dim, size_t ndim) {
  const auto n = static_cast<int64_t>(std::max<size_t>(ndim, 1));
  if (dim < -n || dim >= n) return std::nullopt;
  return static_cast<size_t>(dim < 0 ? dim + n : dim);
}

TensorMeta dense(DType dtype, Device device, SymSizes sizes) {
  TensorMeta meta;
  meta.dtype = dtype;
  meta.device = device;
  meta.strides = contiguous_strides(sizes);
  meta.sizes = std::move(sizes);
  return meta;
}

TensorMeta dense_like(const TensorMeta& like, SymSizes sizes) {
  return dense(like.dtype, like.device, std::move(sizes));
}

// Dimensions of channels_last and channels_last_3d, fastest first.
static std::vector<size_t> channels_last_order(size_t ndim) {
  return ndim == 4 ? std::vector<size_t>{1, 3, 2, 0} : std::vector<size_t>{1, 4, 3, 2, 0};
}

SymSizes channels_last_strides(const SymSizes& sizes) {
  if (sizes.size() != 4 && sizes.size() != 5) return contiguous_strides(sizes);
  SymSizes strides(sizes.size());
  SymExpr running = 1;
  for (const size_t d : channels_last_order(sizes.size())) {
    strides[d] = running;
    running = running * sizes[d];
  }
  return strides;
}

bool is_channels_last(const TensorMeta& meta) {
  if (meta.ndim() != 4) return false;
  SymExpr expected = 1;
  for (const size_t d : {1, 3, 2, 0}) {
    if (meta.sizes[d] == SymExpr(1)) continue;
    if (meta.strides[d] != expected) return false;
    expected = expected * meta.sizes[d];
  }
  return true;
}

bool suggests_channels_last(const TensorMeta& meta, ShapeEnv& env) {
  if ((meta.ndim() != 4 && meta.ndim() != 5) || meta.strides[1] == SymExpr(0)) return false;
  SymExpr least = 0;
  for (const size_t d : channels_last_order(meta.ndim())) {
    if (meta.sizes[d] == SymExpr(0)) return false;
    if (env.decide(meta.strides[d], Relation::kLt, least, "channels_last order")) return false;
    if (d == 0 && least == meta.strides[1]) return false;  // N111 counts as contiguous
    least = meta.strides[d];
    if (!is_one(env, meta.sizes[d])) least = least * meta.sizes[d];
  }
  return true;
}

TensorMeta in_suggested_format(const TensorMeta& like, SymSizes sizes, ShapeEnv& env) {
  TensorMeta meta = dense_like(like, std::move(sizes));
  if (suggests_channels_last(like, env)) meta.strides = channels_last_strides(meta.sizes);
  return meta;
}

TensorMeta with_edges(const TensorMeta& like, SymSizes sizes, ShapeEnv& env) {
  return like.device.is_cpu() ? in_suggested_format(like, std::move(sizes), env) : dense_like(like, std::move(sizes));
}

bool is_dense(const TensorMeta& meta, const ShapeEnv& env) {
  std::vector<size_t> order;
  for (size_t i = 0; i < meta.ndim(); ++i) {
    if (meta.sizes[i] == SymExpr(0)) return true;
    if (meta.sizes[i] != SymExpr(1)) order.push_back(i);
  }
  // Sorted by the hints; the running product then proves or refutes the order for all sizes.
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return env.hint(meta.strides[a]) < env.hint(meta.strides[b]); });
  SymExpr expected = 1;
  for (const size_t d : order) {
    if (meta.strides[d] != expected) return false;
    expected = expected * meta.sizes[d];
  }
  return true;
}

SymSizes permuted_strides(ShapeEnv& env, const SymSizes& shape, const std::vector<SymSizes>& operand_strides) {
  const size_t n = shape.size();
  std::vector<size_t> order(n);  // fastest first
  for (size_t i = 0; i < n; ++i) order[i] = n - 1 - i;
  auto compare = [&](size_t a, size_t b) {
    for (const SymSizes& strides : operand_strides) {
      if (strides[a] == SymExpr(0) || strides[b] == SymExpr(0)) continue;
      if (strides[a] != strides[b])
        return env.decide(strides[a], Relation::kLt, strides[b], "order of strides") ? -1 : 1;
      if (shape[a] != shape[b] && env.decide(shape[b], Relation::kLt, shape[a], "order of equal strides")) return 1;
    }
    return 0;
  };
  for (size_t i = 1; i < n; ++i) {
    size_t moving = i;
    for (size_t j = i; j-- > 0;) {
      const int c = compare(order[j], order[moving]);
      if (c < 0) break;
      if (c == 0) continue;
      std::swap(order[j], order[moving]);
      moving = j;
    }
  }
  SymSizes strides(n);
  bool row_major = true;
  SymExpr running = 1;
  for (size_t i = 0; i < n; ++i) {
    row_major = row_major && order[i] == n - 1 - i;
    strides[order[i]] = running;
    running = running * shape[order[i]];
  }
  return row_major ? contiguous_strides(shape) : strides;
}

SymSizes dense_strides(const SymSizes& sizes, const SymSizes& strides, ShapeEnv& env) {
  return permuted_strides(env, sizes, {strides});
}

TensorMeta preserved(const TensorMeta& like, ShapeEnv& env) {
  TensorMeta meta = dense_like(like, like.sizes);
  if (like.is_contiguous()) {
    if (is_dense(like, env)) meta.strides = like.strides;
    return meta;
  }
  meta.strides = is_dense(like, env) ? like.strides : dense_strides(like.sizes, like.strides, env);
  return meta;
}

bool restride(SymSizes& strides, const SymSizes& sizes, int memory_format) {
  const size_t rank = memory_format == kChannelsLastFormat ? 4 : memory_format == kChannelsLast3dFormat ? 5 : 0;
  if (rank == 0) return true;
  if (sizes.size() != rank) return false;
  strides = channels_last_strides(sizes);
  return true;
}

std::optional<TensorMeta> in_format(const TensorMeta& like, int memory_format, ShapeEnv& env) {
  if (memory_format == -1 || memory_format == kPreserveFormat) return preserved(like, env);
  TensorMeta meta = dense_like(like, like.sizes);
  if (!restride(meta.strides, meta.sizes, memory_format)) return std::nullopt;
  return meta;
}

std::optional<SymSizes> broadcast(ShapeEnv& env, const std::vector<const TensorMeta*>& operands) {
  size_t ndim = 0;
  for (const TensorMeta* t : operands) ndim = std::max(ndim, t->ndim());
  SymSizes shape(ndim, SymExpr(1));
  for (const TensorMeta* t : operands) {
    for (size_t i = 0; i < t->ndim(); ++i) {
      SymExpr& to = shape[ndim - t->ndim() + i];
      const SymExpr& size = t->sizes[i];
      if (to == size || is_one(env, size)) continue;
      if (is_one(env, to)) to = size;
      else if (!same_size(env, to, size)) return std::nullopt;
      else if (size.is_constant()) to = size;
    }
  }
  return shape;
}

bool expands_to(ShapeEnv& env, const TensorMeta& from, const SymSizes& to) {
  if (from.ndim() > to.size()) return false;
  for (size_t i = 1; i <= from.ndim(); ++i) {
    const SymExpr &a = from.sizes[from.ndim() - i], &b = to[to.size() - i];
    if (!(a == b) && !is_one(env, a) && !same_size(env, a, b)) return false;
  }
  return true;
}

SymSizes iterator_strides(ShapeEnv& env, const SymSizes& shape, const std::vector<const TensorMeta*>& operands,
                          bool has_number) {
  bool same_shape = !has_number || shape.empty();
  for (const TensorMeta* t : operands) same_shape = same_shape && t->sizes == shape;
  auto all = [&](auto test) { return std::all_of(operands.begin(), operands.end(), test); };
  if (same_shape) {
    if (all([](const TensorMeta* t) { return t->is_contiguous(); })) return contiguous_strides(shape);
    if (all([](const TensorMeta* t) { return is_channels_last(*t); })) return channels_last_strides(shape);
    if (all([&](const TensorMeta* t) { return t->strides == operands[0]->strides && is_dense(*t, env); }))
      return operands[0]->strides;
  }
  std::vector<SymSizes> strides;
  for (const TensorMeta* t : operands) {
    SymSizes& s = strides.emplace_back(shape.size(), SymExpr(0));
    const size_t skip = shape.size() - t->ndim();
    for (size_t i = 0; i < t->ndim(); ++i) {
      const SymExpr &from = t->sizes[i], &to = shape[skip + i];
      const bool is_broadcast = from != to && env.known(from, Relation::kEq, 1) == true && to != SymExpr(1);
      if (!is_broadcast) s[skip + i] = t->strides[i];
    }
  }
  return permuted_strides(env, shape, strides);
}

namespace {

// at::native::combine_categories; nullopt stands for "none yet".
DType combine(std::optional<DType> higher, std::optional<DType> lower) {
  if (!higher) return lower.value_or(DType::kFloat32);
  if (!lower) return *higher;
  const bool higher_complex = is_complex(*higher), lower_complex = is_complex(*lower);
  if (higher_complex) return *higher;
  if (is_float(*higher)) return lower_complex ? promote(*higher, DType::kComplex64) : *higher;
  if (*higher == DType::kBool || is_float(*lower) || lower_complex) return promote(*higher, *lower);
  return *higher;
}

}  // namespace

DType result_type(const std::vector<const TensorMeta*>& tensors, const std::vector<DType>& numbers,
                  DType default_dtype) {
  std::optional<DType> dimensioned, scalar, number;
  auto join = [](std::optional<DType>& into, DType d) { into = into ? promote(*into, d) : d; };
  for (const TensorMeta* t : tensors) join(t->ndim() > 0 ? dimensioned : scalar, t->dtype);
  for (DType d : numbers) join(number, is_float(d) ? default_dtype : d);
  if (!scalar && !number) return combine(dimensioned, std::nullopt);
  if (!scalar || !number) return combine(dimensioned, scalar ? scalar : number);
  return combine(dimensioned, combine(scalar, number));
}

Device common_device(const std::vector<const TensorMeta*>& tensors) {
  for (const TensorMeta* t : tensors)
    if (t->ndim() > 0) return t->device;
  for (const TensorMeta* t : tensors)
    if (!t->device.is_cpu()) return t->device;
  return {};
}

// On a CPU, TensorIterator copies operands of another dtype into the common one before it looks at strides, and so does
// where() on each device. The copies keep the order of dimensions, but are dense. The first `conditions` operands stay
// as they are.
static std::vector<TensorMeta> in_common_dtype(const std::vector<const TensorMeta*>& tensors, DType common,
                                               size_t conditions, ShapeEnv& env) {
  const bool copies = conditions > 0 || common_device(tensors).is_cpu();
  std::vector<TensorMeta> made;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorMeta& t = *tensors[i];
    made.push_back(copies && i >= conditions && t.dtype != common ? preserved(t, env) : t);
  }
  return made;
}

bool elementwise(const RuleArgs& args, ShapeEnv& env, std::initializer_list<size_t> operands, DTypeOf dtype_of,
                 TensorMeta& result, size_t conditions) {
  std::vector<const TensorMeta*> tensors;
  std::vector<DType> numbers;
  for (const size_t i : operands) {
    if (const TensorMeta* t = args.tensor(i)) tensors.push_back(t);
    else if (const auto number = args.number(i)) numbers.push_back(*number);
  }
  if (tensors.empty()) return false;
  for (const TensorMeta* t : tensors)
    if (t->dtype == DType::kOther) return false;
  auto shape = broadcast(env, tensors);
  if (!shape) return false;
  const std::vector<const TensorMeta*> promoted(tensors.begin() + static_cast<std::ptrdiff_t>(conditions),
                                                tensors.end());
  const DType type = result_type(promoted, numbers, args.default_dtype);
  result.dtype = dtype_of(type, args.default_dtype);
  result.device = common_device(tensors);
  const std::vector<TensorMeta> copies =
      in_common_dtype(tensors, is_float(result.dtype) && !is_complex(type) ? result.dtype : type, conditions, env);
  std::vector<const TensorMeta*> read;
  for (const TensorMeta& t : copies) read.push_back(&t);
  result.strides = iterator_strides(env, *shape, read, !numbers.empty());
  result.sizes = std::move(*shape);
  result.offset = 0;
  return true;
}

bool reduced_dims(const RuleArgs& args, size_t i, size_t ndim, std::vector<bool>& reduced) {
  reduced.assign(ndim, false);
  std::vector<int64_t> dims;
  if (args.given(i) && !args.integers(i, dims)) return false;
  if (dims.empty()) reduced.assign(ndim, true);
  for (const int64_t dim : dims) {
    const auto d = wrap_dim(dim, ndim);
    if (!d) return false;
    if (*d >= ndim) continue;
    if (reduced[*d]) return false;  // named twice: torch raises its error
    reduced[*d] = true;
  }
  return true;
}

SymSizes reduced_sizes(const TensorMeta& self, const std::vector<bool>& reduced, bool keepdim) {
  SymSizes sizes;
  for (size_t i = 0; i < self.ndim(); ++i) {
    if (!reduced[i]) sizes.push_back(self.sizes[i]);
    else if (keepdim) sizes.emplace_back(1);
  }
  return sizes;
}

void add_rows(std::vector<OpRow>& rows, ShapeRule rule, std::initializer_list<const char*> names, uint32_t flags) {
  for (const char* name : names) rows.push_back({name, rule, flags, ""});
}

void add_rows_in_place(std::vector<OpRow>& rows, ShapeRule rule, std::initializer_list<const char*> names,
                       uint32_t flags) {
  for (const std::string name : names) {
    rows.push_back({name, rule, flags, ""});
    const std::string base(base_name(name));
    rows.push_back({base + "_" + name.substr(base.size()), same_as_self, flags | kMutates, name});
  }
}

bool spatial(const RuleArgs& args, size_t i, size_t count, SymSizes otherwise, SymSizes& out) {
  if (!args.given(i) || !args.sizes(i, out) || out.empty()) out = std::move(otherwise);
  if (out.size() == 1) out.resize(count, out[0]);
  return out.size() == count;
}

bool is_wanted(const RuleArgs& args, size_t mask, size_t which) {
  const auto* wanted = mask < args.count() ? args.args[mask].get<std::vector<bool>>() : nullptr;
  return wanted == nullptr || which >= wanted->size() || (*wanted)[which];
}

void add_wanted(const RuleArgs& args, size_t mask, TensorMeta meta, std::vector<TensorMeta>& results) {
  results.push_back(is_wanted(args, mask, results.size()) ? std::move(meta) : no_tensor());
}

bool preserved_self(const RuleArgs& args, ShapeEnv& env, std::vector<TensorMeta>& results) {
  const TensorMeta* self = args.tensor(0);
  if (self == nullptr) return false;
  results.push_back(preserved(*self, env));
  return true;
}

bool same_as_self(const RuleArgs& args, ShapeEnv&, std::vector<TensorMeta>& results) {
  const TensorMeta* self = args.tensor(0);
  if (self == nullptr) return false;
  results = {*self};
  return true;
}

std::optional<SymSizes> view_strides(ShapeEnv& env, const TensorMeta& meta, const SymSizes& sizes) {
  if (meta.ndim() == 0) return SymSizes(sizes.size(), SymExpr(1));
  const SymExpr numel = meta.numel();
  if (env.hint(numel) == 0 && env.decide(numel, Relation::kEq, 0, "view of no elements")) {
    return sizes == meta.sizes ? meta.strides : contiguous_strides(sizes);
  }
  SymSizes strides(sizes.size());
  size_t left = sizes.size();  // dimensions of the view that still have no stride
  SymExpr chunk = meta.strides.back(), old_numel = 1, new_numel = 1;
  for (size_t d = meta.ndim(); d-- > 0;) {
    old_numel = old_numel * meta.sizes[d];
    const bool chunk_ends = d == 0 || (!is_one(env, meta.sizes[d - 1]) && meta.strides[d - 1] != old_numel * chunk);
    if (!chunk_ends) continue;
    while (left > 0 &&
           (is_one(env, sizes[left - 1]) ||
            (new_numel != old_numel && env.decide(new_numel, Relation::kLt, old_numel, "view of a chunk")))) {
      --left;
      strides[left] = new_numel * chunk;
      new_numel = new_numel * sizes[left];
    }
    if (new_numel != old_numel && !env.decide(new_numel, Relation::kEq, old_numel, "view keeps its chunks"))
      return std::nullopt;
    if (d == 0) break;
    chunk = meta.strides[d - 1];
    old_numel = 1;
    new_numel = 1;
  }
  if (left != 0) return std::nullopt;
  return strides;
}

bool infer_size(ShapeEnv& env, SymSizes& sizes, const SymExpr& numel) {
  SymExpr known = 1;
  size_t hole = sizes.size();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == SymExpr(-1)) {
      if (hole != sizes.size()) return false;
      hole = i;
    } else {
      if (sizes[i].is_constant() && sizes[i].constant() < 0) return false;
      known = known * sizes[i];
    }
  }
  if (hole == sizes.size())
    return known == numel || env.decide(known, Relation::kEq, numel, "view keeps the number of elements");
  if (known == SymExpr(0)) return false;
  sizes[hole] = SymExpr::floor_div(numel, known);
  return sizes[hole] * known == numel ||
         env.decide(sizes[hole] * known, Relation::kEq, numel, "view divides the number of elements");
}

}  // namespace framejit::graph
