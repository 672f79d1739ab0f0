#include "tests/unit/inductor/random_loops.h"

#include <algorithm>
#include <cmath>

namespace framejit::inductor::testing {
namespace {

constexpr double kLargestSymbol = 40, kTooLarge = 1 << 16;
constexpr DType kBufferTypes[] = {DType::kFloat32, DType::kFloat32, DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                                  DType::kFloat16, DType::kInt64,   DType::kInt64,   DType::kInt32,   DType::kInt16,
                                  DType::kInt8,    DType::kUInt8,   DType::kBool};

double largest(DType d) {
  if (d == DType::kBool) return 1;
  return is_integral(d)         ? std::ldexp(1.0, row_of(d).bytes * 8 - (d == DType::kUInt8 ? 0 : 1))
         : d == DType::kFloat16 ? 65000
                                : 1e30;
}
int mantissa(DType d) {
  switch (d) {
    case DType::kFloat64: return 53;
    case DType::kFloat16: return 11;
    case DType::kBFloat16: return 8;
    default: return 24;
  }
}
double bound_of(const SymExpr& e) {
  return static_cast<double>(e.eval(std::vector<int64_t>(1, static_cast<int64_t>(kLargestSymbol))));
}

// The fact after rounding to float dtype `d`: exact if the value fits, otherwise off by one more unit in the last
// place.
Fact rounded(Fact f, DType d) {
  if (f.exact && f.top * std::ldexp(1.0, f.bits) <= std::ldexp(1.0, mantissa(d))) return f;
  f.exact = false;
  f.error += f.top * std::ldexp(1.0, 2 - mantissa(d)) + 1e-30;
  return f;
}

struct Value {
  InstId id = 0;
  enum Level { kPlain, kInner, kAfter } level = kPlain;
  Fact fact;
};

class Maker {
 public:
  explicit Maker(uint32_t seed) : random_(seed) {}

  RandomProgram make() {
    out_.program.symbol_count = 1;
    const int inputs = 2 + pick(3), nests = 1 + pick(5);
    for (int k = 0; k < inputs; ++k) add_input(k);
    for (int k = 0; k < nests; ++k) pick(6) == 0 ? add_regions() : pick(5) == 0 ? add_places()
                                                                                : add_nest();
    for (size_t b = static_cast<size_t>(inputs); b < out_.program.buffers.size(); ++b)
      out_.program.buffers[b].is_output = b + 1 == out_.program.buffers.size() || pick(3) == 0;
    return std::move(out_);
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  template <class T>
  const T& one_of(const std::vector<T>& from) { return from[static_cast<size_t>(pick(static_cast<int>(from.size())))]; }

  SymExpr size() {
    static constexpr int kSizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33};
    if (pick(4) == 0) return SymExpr::symbol(0) * SymExpr(1 + pick(5) / 4);
    return SymExpr(kSizes[pick(13)]);
  }
  SymSizes shape() {
    if (!shapes_.empty() && pick(3) != 0) return one_of(shapes_);
    SymSizes sizes;
    for (int left = pick(4); left >= 0 && bound_of(product(sizes)) < 3000; --left) sizes.push_back(size());
    shapes_.push_back(sizes);
    return sizes;
  }
  static SymExpr product(const SymSizes& sizes) {
    SymExpr p = 1;
    for (const SymExpr& s : sizes) p = p * s;
    return p;
  }

  LoopBufferId add_buffer(BufferRole role, DType dtype, SymSizes sizes, Fact fact) {
    std::vector<size_t> order(sizes.size());  // innermost first
    for (size_t k = 0; k < order.size(); ++k) order[k] = order.size() - 1 - k;
    if (pick(3) == 0) std::shuffle(order.begin(), order.end(), random_);
    SymSizes strides(sizes.size(), SymExpr(1));
    SymExpr running = 1;
    for (size_t d : order) {
      strides[d] = running;
      running = running * sizes[d];
    }
    const auto id = static_cast<LoopBufferId>(out_.program.buffers.size());
    const std::string name = (role == BufferRole::kInput ? "in" : "v") + std::to_string(id);
    out_.program.buffers.push_back({name, role, dtype, std::move(sizes), std::move(strides), UINT32_MAX, false});
    out_.facts.push_back(fact);
    readable_ = out_.program.buffers.size();
    return id;
  }
  void add_input(int k) {
    const DType dtype = k == 0 ? DType::kFloat32 : kBufferTypes[pick(13)];
    add_buffer(BufferRole::kInput, dtype, shape(),
               is_float(dtype) ? Fact{2, 2} : Fact{dtype == DType::kBool ? 1.0 : 4.0});
  }

  NestBuilder start(SymSizes ranges, SymSizes reduced) {
    values_.clear();
    return NestBuilder(1, "n" + std::to_string(next_nest_++), std::move(ranges), std::move(reduced));
  }

  // --- values ---

  void keep(InstId id, Value::Level level, Fact fact) { values_.push_back({id, level, fact}); }

  // An index into a dimension of `extent` elements, made from some dimension of the nest. False: nothing fits.
  SymExpr index_into(NestBuilder& b, const SymExpr& extent, size_t preferred, Value::Level& level) {
    if (extent == SymExpr(1)) return 0;
    const Nest& nest = b.peek();
    std::vector<size_t> fitting;
    for (size_t d = 0; d < nest.dim_count(); ++d)
      if (nest.extent(d) == extent) fitting.push_back(d);
    if (pick(8) == 0) {
      if (const Value* v = indirect()) {
        level = std::max(level, v->level);
        return b.checked_index(v->id, extent, pick(2) == 0);
      }
    }
    if (nest.dim_count() == 0)
      return SymExpr(pick(static_cast<int>(std::max<int64_t>(extent.as_constant().value_or(1), 1))));
    size_t d = fitting.empty() ? static_cast<size_t>(pick(static_cast<int>(nest.dim_count()))) : one_of(fitting);
    if (preferred < nest.dim_count() && nest.extent(preferred) == extent && pick(4) != 0) d = preferred;
    if (d >= nest.ranges.size()) level = Value::kInner;
    const SymExpr dim = b.dim(d), have = nest.extent(d);
    if (have == extent) {
      const int how = pick(8);
      return how == 0 ? extent - SymExpr(1) - dim : how == 1 ? SymExpr::mod(dim + SymExpr(pick(5)), extent) : dim;
    }
    if (have.is_constant() && extent.is_constant()) {
      const int64_t h = have.constant(), e = extent.constant();
      if (h < e)
        return 2 * (h - 1) < e && pick(2) == 0 ? dim * SymExpr(2) : dim + SymExpr(pick(static_cast<int>(e - h + 1)));
      if (pick(2) == 0) return SymExpr::floor_div(dim, SymExpr((h + e - 1) / e));
    }
    return SymExpr::mod(dim, extent);
  }
  const Value* indirect() {
    std::vector<const Value*> found;
    for (const Value& v : values_)
      if (v.level != Value::kAfter && is_integral(dtype_of_[v.id]) && v.fact.exact) found.push_back(&v);
    return found.empty() ? nullptr : one_of(found);
  }

  void load(NestBuilder& b) {
    const auto buffer = static_cast<LoopBufferId>(pick(static_cast<int>(readable_)));
    const LoopBuffer& from = out_.program.buffers[buffer];
    Value::Level level = Value::kPlain;
    std::vector<SymExpr> index;
    const size_t dims = b.peek().dim_count(), skip = dims >= from.sizes.size() ? dims - from.sizes.size() : 0;
    for (size_t k = 0; k < from.sizes.size(); ++k) index.push_back(index_into(b, from.sizes[k], skip + k, level));
    if (pick(5) == 0) return masked_load(b, buffer, std::move(index), level);
    remember(b, b.load(buffer, from.dtype, std::move(index)), level, out_.facts[buffer]);
  }
  // A load that reads only where a dimension lies inside a part, or where some condition is true.
  void masked_load(NestBuilder& b, LoopBufferId buffer, std::vector<SymExpr> index, Value::Level level) {
    const LoopBuffer& from = out_.program.buffers[buffer];
    const Nest& nest = b.peek();
    LoopInst load;
    load.op = LoopOp::kLoad;
    load.dtype = value_dtype(from.dtype);
    load.buffer = buffer;
    if (!index.empty() && nest.dim_count() > 0 && pick(3) != 0) {
      const auto k = static_cast<size_t>(pick(static_cast<int>(index.size()))),
                 d = static_cast<size_t>(pick(static_cast<int>(nest.dim_count())));
      if (d >= nest.ranges.size()) level = Value::kInner;
      const SymExpr begin(pick(20)), place = b.dim(d);
      index[k] = place - begin;
      const InstId above = b.scalar(ScalarOp::k_ge, {b.index(place), b.index(begin)});
      load.operands[0] = b.scalar(ScalarOp::k_bit_and,
                                  {above, b.scalar(ScalarOp::k_lt, {b.index(place), b.index(begin + from.sizes[k])})});
    } else {
      std::vector<const Value*> truths;
      for (const Value& v : values_)
        if (b.dtype(v.id) == DType::kBool && join(level, v.level) != kNone) truths.push_back(&v);
      if (truths.empty()) return;
      const Value* truth = one_of(truths);
      level = join(level, truth->level);
      load.operands[0] = truth->id;
    }
    const Value* any_other = any(level);
    std::optional<Value> other = any_other == nullptr ? std::nullopt : converted(b, *any_other, load.dtype);
    if (!other)
      other =
          Value{is_float(load.dtype) ? b.constant(0.5, load.dtype) : b.integer(1, load.dtype), Value::kPlain, {1, 1}};
    load.operands[1] = other->id;
    load.index = std::move(index);
    const Fact fact = merged(out_.facts[buffer], other->fact);
    remember(b, b.emit(std::move(load)), join(level, other->level), fact);
  }
  void remember(NestBuilder& b, InstId id, Value::Level level, Fact fact) {
    if (is_integral(b.dtype(id))) fact.top = std::min(fact.top, largest(b.dtype(id)));
    if (!(fact.top <= kTooLarge) && is_float(b.dtype(id))) return;
    dtype_of_.resize(std::max<size_t>(dtype_of_.size(), id + 1));
    dtype_of_[id] = b.dtype(id);
    keep(id, level, fact);
  }
  void constant(NestBuilder& b) {
    const DType dtype = value_dtype(kBufferTypes[pick(12)]);
    const int number = pick(dtype == DType::kUInt8 ? 5 : 9) - (dtype == DType::kUInt8 ? 0 : 4);
    is_float(dtype) ? remember(b, b.constant(number / 4.0, dtype), Value::kPlain, {1, 2})
                    : remember(b, b.integer(number, dtype), Value::kPlain, {4});
  }

  static constexpr Value::Level kNone = static_cast<Value::Level>(3);
  static Value::Level join(Value::Level a, Value::Level b) {
    if (a == Value::kPlain || a == b) return b;
    return b == Value::kPlain ? a : kNone;
  }
  const Value* any(Value::Level with) {
    std::vector<const Value*> found;
    for (const Value& v : values_)
      if (join(v.level, with) != kNone) found.push_back(&v);
    return found.empty() ? nullptr : one_of(found);
  }

  std::optional<Value> converted(NestBuilder& b, const Value& v, DType target) {
    const DType from = b.dtype(v.id);
    if (from == target) return v;
    Value out = v;
    if (is_float(target)) {
      out.fact = rounded(v.fact, target);
    } else {
      if (!v.fact.exact || (is_float(from) && (v.fact.top >= largest(target) || target == DType::kUInt8)))
        return std::nullopt;
      out.fact.bits = 0;
      if (target == DType::kBool) out.fact.top = 1;
    }
    out.id = b.cast(v.id, target);
    return out;
  }

  void operation(NestBuilder& b) {
    const Value* left = any(Value::kPlain);
    if (pick(2) == 0 && !values_.empty()) left = &values_.back();
    if (left == nullptr) return;
    const Value a = *left, *other = any(a.level);
    const DType dtype = b.dtype(a.id);
    const std::optional<Value> c = other == nullptr ? std::nullopt : converted(b, *other, dtype);
    if (!c) return;
    const int kind = pick(10);
    if (kind < 2) return compare(b, a, *c);
    if (kind < 3) {
      if (const auto cast = converted(b, a, value_dtype(kBufferTypes[pick(13)])))
        remember(b, cast->id, a.level, cast->fact);
      return;
    }
    if (dtype == DType::kBool) return logic(b, a, *c);
    if (is_integral(dtype)) return kind < 6 ? integer_op(b, a, *c) : arithmetic(b, a, *c);
    kind < 6 ? smooth(b, a, *c) : kind < 7 ? discrete(b, a) : arithmetic(b, a, *c);
  }

  void compare(NestBuilder& b, const Value& a, const Value& c) {
    static constexpr ScalarOp kOps[] = {ScalarOp::k_eq, ScalarOp::k_ne, ScalarOp::k_lt,
                                        ScalarOp::k_le, ScalarOp::k_gt, ScalarOp::k_ge};
    if (!a.fact.exact || !c.fact.exact) return;
    const Value::Level level = join(a.level, c.level);
    const InstId truth = b.scalar(kOps[pick(6)], {a.id, c.id});
    remember(b, truth, level, {1});
    const Value* yes = any(level);
    if (yes == nullptr || pick(2) == 0) return;
    const Value *no = any(join(level, yes->level)), keep_yes = *yes;
    if (no == nullptr) return;
    const Value::Level all = join(join(level, keep_yes.level), no->level);
    if (const auto same = converted(b, *no, b.dtype(keep_yes.id)))
      remember(b, b.scalar(ScalarOp::k_select, {truth, keep_yes.id, same->id}), all, merged(keep_yes.fact, same->fact));
  }
  static Fact merged(const Fact& a, const Fact& c) {
    return {std::max(a.top, c.top), std::max(a.bits, c.bits), a.exact && c.exact, std::max(a.error, c.error)};
  }

  void logic(NestBuilder& b, const Value& a, const Value& c) {
    static constexpr ScalarOp kOps[] = {ScalarOp::k_bit_and, ScalarOp::k_bit_or, ScalarOp::k_bit_xor};
    remember(b, b.scalar(kOps[pick(3)], {a.id, c.id}), join(a.level, c.level), {1});
  }

  void integer_op(NestBuilder& b, const Value& a, const Value& c) {
    static constexpr ScalarOp kBits[] = {ScalarOp::k_bit_and, ScalarOp::k_bit_or, ScalarOp::k_bit_xor, ScalarOp::k_shl,
                                         ScalarOp::k_shr};
    static constexpr ScalarOp kDivisions[] = {ScalarOp::k_floor_div, ScalarOp::k_trunc_div, ScalarOp::k_rem,
                                              ScalarOp::k_fmod};
    const DType dtype = b.dtype(a.id);
    const Fact whole{largest(dtype)};
    if (pick(2) == 0) return remember(b, b.scalar(kBits[pick(5)], {a.id, c.id}), join(a.level, c.level), whole);
    if (pick(4) == 0) return remember(b, b.scalar(ScalarOp::k_bit_not, {a.id}), a.level, whole);
    int divisor = 1 + pick(9);
    if (dtype != DType::kUInt8 && pick(2) == 0) divisor = -divisor;
    remember(b, b.scalar(kDivisions[pick(4)], {a.id, b.integer(divisor, dtype)}), a.level, whole);
  }

  void arithmetic(NestBuilder& b, const Value& a, const Value& c) {
    static constexpr ScalarOp kOps[] = {ScalarOp::k_add,     ScalarOp::k_sub, ScalarOp::k_mul, ScalarOp::k_minimum,
                                        ScalarOp::k_maximum, ScalarOp::k_neg, ScalarOp::k_abs, ScalarOp::k_sign};
    const ScalarOp op = kOps[pick(8)];
    const DType dtype = b.dtype(a.id);
    Fact f = merged(a.fact, c.fact);
    if (op == ScalarOp::k_add || op == ScalarOp::k_sub)
      f = {a.fact.top + c.fact.top, f.bits, f.exact, a.fact.error + c.fact.error};
    if (op == ScalarOp::k_mul)
      f = {a.fact.top * c.fact.top, a.fact.bits + c.fact.bits, f.exact,
           a.fact.top * c.fact.error + c.fact.top * a.fact.error};
    if (graph::row_of(op).arity == 1) {
      if (op == ScalarOp::k_sign && !a.fact.exact) return;
      f = op == ScalarOp::k_sign ? Fact{1} : a.fact;
      return remember(b, b.scalar(op, {a.id}), a.level, is_float(dtype) ? f : Fact{largest(dtype)});
    }
    remember(b, b.scalar(op, {a.id, c.id}), join(a.level, c.level),
             is_float(dtype) ? rounded(f, dtype) : Fact{largest(dtype)});
  }

  // Functions whose slope is at most 1 for these operands.
  void smooth(NestBuilder& b, const Value& a, const Value& c) {
    static constexpr ScalarOp kOps[] = {ScalarOp::k_tanh,  ScalarOp::k_sigmoid, ScalarOp::k_sin,
                                        ScalarOp::k_cos,   ScalarOp::k_erf,     ScalarOp::k_atan,
                                        ScalarOp::k_log1p, ScalarOp::k_exp,     ScalarOp::k_div};
    const ScalarOp op = kOps[pick(9)];
    Fact f{2, 0, false, 1.2 * a.fact.error + 2e-6};
    InstId id = a.id;
    if (op == ScalarOp::k_div) {  // a / (1 + |c|)
      id = b.scalar(ScalarOp::k_div,
                    {id, b.scalar(ScalarOp::k_add, {b.constant(1, b.dtype(id)), b.scalar(ScalarOp::k_abs, {c.id})})});
      f = {a.fact.top, 0, false, a.fact.error + a.fact.top * (c.fact.error + 2e-6)};
      return remember(b, id, join(a.level, c.level), f);
    }
    if (op == ScalarOp::k_log1p || op == ScalarOp::k_exp) id = b.scalar(ScalarOp::k_abs, {id});
    if (op == ScalarOp::k_exp) id = b.scalar(ScalarOp::k_neg, {id});
    if (op == ScalarOp::k_log1p) f.top = 2 + std::log1p(a.fact.top);
    remember(b, b.scalar(op, {id}), a.level, f);
  }

  void discrete(NestBuilder& b, const Value& a) {
    static constexpr ScalarOp kOps[] = {ScalarOp::k_floor, ScalarOp::k_ceil, ScalarOp::k_trunc, ScalarOp::k_round};
    static constexpr ScalarOp kDivisions[] = {ScalarOp::k_floor_div, ScalarOp::k_trunc_div, ScalarOp::k_rem,
                                              ScalarOp::k_fmod};
    if (!a.fact.exact) return;
    if (pick(2) == 0) return remember(b, b.scalar(kOps[pick(4)], {a.id}), a.level, {a.fact.top + 1, 0});
    const double divisor = (pick(2) == 0 ? 1 : -1) * (1 + pick(6)) * 0.5;
    const int which = pick(4);
    const Fact f = which < 2 ? Fact{a.fact.top * 2 + 1, 0} : Fact{3, std::max(a.fact.bits, 1)};
    remember(b, b.scalar(kDivisions[which], {a.id, b.constant(divisor, b.dtype(a.id))}), a.level, f);
  }

  void reduce(NestBuilder& b) {
    if (values_.empty()) return;  // loaded values may be too large to compute with
    const Value a = values_[static_cast<size_t>(pick(static_cast<int>(values_.size())))];
    if (a.level == Value::kAfter) return;
    const DType dtype = b.dtype(a.id);
    const double count = bound_of(product(b.peek().reduced));
    const bool scans = pick(3) == 0;
    const Value::Level level = scans ? Value::kInner : Value::kAfter;
    const auto made = [&](ReduceOp op) { return scans ? b.scan(op, a.id) : b.reduce(op, a.id); };
    if (dtype == DType::kBool) return remember(b, made(pick(2) == 0 ? ReduceOp::kAny : ReduceOp::kAll), level, {1});
    const auto op = static_cast<ReduceOp>(pick(4) == 3 ? static_cast<int>(ReduceOp::kArgmax) + pick(2) : pick(4));
    Fact f = a.fact;
    if (op == ReduceOp::kArgmax || op == ReduceOp::kArgmin) {
      if (!a.fact.exact) return;
      f = {count};
    } else if (op == ReduceOp::kSum && is_float(dtype)) {
      f = rounded({count * a.fact.top, a.fact.bits, a.fact.exact, count * a.fact.error}, dtype);
      if (!f.exact) f.error += count * count * a.fact.top * std::ldexp(1.0, -mantissa(dtype));
    } else if (op == ReduceOp::kProd && is_float(dtype)) {
      if (a.fact.top > 1) return;
      f = {1, 0, false, count * (a.fact.error + 2e-7)};
    } else if (op == ReduceOp::kSum || op == ReduceOp::kProd) {
      f = {largest(dtype)};
    }
    remember(b, made(op), level, f);
  }

  // --- nests ---

  void fill(NestBuilder& b) {
    const int loads = 1 + pick(3), operations = 1 + pick(7);
    for (int k = 0; k < loads; ++k) load(b);
    if (pick(2) == 0) constant(b);
    if (pick(4) == 0 && !b.peek().ranges.empty())
      remember(b, b.index(b.dim(0) * SymExpr(1 + pick(3))), Value::kPlain, {200});
    for (int k = 0; k < operations; ++k) operation(b);
    if (!b.peek().is_reduction()) return;
    for (int k = 1 + pick(2); k > 0; --k) reduce(b);
    for (int k = pick(4); k > 0; --k) operation(b);
  }

  // What may be stored: no value of a single point of the reduced dimensions.
  std::vector<Value> results() const {
    std::vector<Value> found;
    for (const Value& v : values_)
      if (v.level != Value::kInner) found.push_back(v);
    return found;
  }
  DType stored_as(DType value) {
    if (value != DType::kFloat32 || pick(4) != 0) return value;
    return pick(2) == 0 ? DType::kBFloat16 : DType::kFloat16;
  }
  // Half precision may be left out between fused nests: a value that does not fit exactly is known only to its last
  // place.
  static Fact stored_fact(const Fact& f, DType dtype) { return is_float(dtype) ? rounded(f, dtype) : f; }

  void add_nest() {
    SymSizes ranges = shape(), reduced;
    if (pick(5) < 2) {
      const size_t from = static_cast<size_t>(pick(static_cast<int>(ranges.size()) + 1));
      if (pick(2) == 0 && from < ranges.size()) {  // reduce trailing dimensions of a known shape
        reduced.assign(ranges.begin() + static_cast<long>(from), ranges.end());
        ranges.resize(from);
      } else {
        reduced.push_back(size());
      }
    }
    NestBuilder b = start(ranges, reduced);
    fill(b);
    std::vector<Value> found = results();
    if (found.empty()) return;
    const int stores = 1 + pick(2);
    for (int k = 0; k < stores; ++k) {
      const Value& v = k == 0 ? found.back() : one_of(found);
      const DType dtype = stored_as(b.dtype(v.id));
      const LoopBufferId buffer = add_buffer(BufferRole::kTemp, dtype, ranges, stored_fact(v.fact, dtype));
      b.store(buffer, b.range_dims(), v.id);
    }
    if (b.peek().is_reduction() && pick(2) == 0) store_inside(b);
    shapes_.push_back(ranges);
    out_.program.items.push_back(b.build());
  }

  // A value of every reduced point, including running results.
  void store_inside(NestBuilder& b) {
    std::vector<Value> found;
    for (const Value& v : values_)
      if (v.level != Value::kAfter) found.push_back(v);
    if (found.empty()) return;
    const Value& v = pick(3) == 0 ? one_of(found) : found.back();
    SymSizes sizes;
    std::vector<SymExpr> index;
    const bool reversed = pick(2) == 0;
    for (size_t k = 0; k < b.peek().dim_count(); ++k) {
      const size_t d = reversed ? b.peek().dim_count() - 1 - k : k;
      sizes.push_back(b.peek().extent(d));
      index.push_back(b.dim(d));
    }
    if (bound_of(product(sizes)) > 1e5) return;
    const DType dtype = stored_as(b.dtype(v.id));
    b.store(add_buffer(BufferRole::kTemp, dtype, sizes, stored_fact(v.fact, dtype)), std::move(index), v.id);
    shapes_.push_back(std::move(sizes));
  }

  // Nests that write parts of one buffer: one after the other along a dimension, or a part over existing contents.
  void add_regions() {
    SymSizes rest = shape();
    if (rest.empty()) rest.push_back(size());
    const auto along = static_cast<size_t>(pick(static_cast<int>(rest.size())));
    const SymExpr first = rest[along], second = pick(2) == 0 ? first : SymExpr(1 + pick(4));
    SymSizes sizes = rest;
    sizes[along] = first + second;
    const LoopBufferId buffer = add_buffer(BufferRole::kTemp, DType::kFloat32, sizes, {});
    readable_ = buffer;  // not before it is written
    Fact fact;
    const bool over = pick(2) == 0;
    for (int part = 0; part < 2; ++part) {
      SymSizes ranges = rest;
      ranges[along] = part == 0 ? over ? sizes[along] : first : second;
      NestBuilder b = start(ranges, {});
      constant(b);
      fill(b);
      std::optional<Value> v;
      for (size_t k = values_.size(); k-- > 0 && !v;) v = converted(b, values_[k], DType::kFloat32);
      std::vector<SymExpr> index = b.range_dims();
      if (part == 1) index[along] = index[along] + first;
      b.store(buffer, std::move(index), v->id);
      fact = merged(fact, v->fact);
      out_.program.items.push_back(b.build());
    }
    readable_ = out_.program.buffers.size();
    out_.facts[buffer] = fact;
    shapes_.push_back(sizes);
  }

  // A buffer that is filled, then written in order at indices from data.
  void add_places() {
    const SymSizes ranges = shape();
    const SymExpr extent = size(), walked = size();
    const auto place = static_cast<size_t>(pick(static_cast<int>(ranges.size()) + 1));
    SymSizes sizes = ranges;
    sizes.insert(sizes.begin() + static_cast<long>(place), extent);
    if (bound_of(product(sizes)) > 2e4 || bound_of(product(ranges) * walked) > 2e4) return;
    static constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat32, DType::kBFloat16,
                                       DType::kFloat64, DType::kInt64,   DType::kInt32};
    const DType dtype = kTypes[pick(6)];
    const LoopBufferId buffer = add_buffer(BufferRole::kTemp, dtype, sizes, {});
    readable_ = buffer;  // not before it is written
    NestBuilder b = start(sizes, {});
    Value v = filled(b, dtype);
    b.store(buffer, b.range_dims(), v.id);
    const Fact before = stored_fact(v.fact, dtype);
    out_.program.items.push_back(b.build());
    b = start(ranges, {walked});
    v = filled(b, dtype);
    std::vector<SymExpr> index = b.range_dims();
    index.insert(index.begin() + static_cast<long>(place), place_in(b, extent));
    const double count = bound_of(walked);
    static constexpr ReduceOp kJoins[] = {ReduceOp::kSum, ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin};
    const ReduceOp op = kJoins[pick(4)];
    const bool is_sum = op == ReduceOp::kSum,
               joins = pick(3) != 0 && !(is_sum && is_float(dtype) && count * v.fact.top + before.top > kTooLarge);
    b.store(buffer, std::move(index), v.id, joins ? StoreMode::kJoin : StoreMode::kLast, op);
    out_.program.items.push_back(b.build());
    Fact fact = merged(before, stored_fact(v.fact, dtype));
    if (joins && is_sum) {
      fact.top = before.top + count * v.fact.top;
      fact.error = before.error + count * (v.fact.error + fact.top * std::ldexp(1.0, 2 - mantissa(dtype)));
      fact.exact = fact.exact && fact.top * std::ldexp(1.0, fact.bits) <= std::ldexp(1.0, mantissa(dtype));
    }
    if (is_integral(dtype)) fact = {largest(dtype)};
    out_.facts[buffer] = fact;
    readable_ = out_.program.buffers.size();
    shapes_.push_back(sizes);
  }

  // Some instructions without carried values, and a value of `dtype` at the end.
  Value filled(NestBuilder& b, DType dtype) {
    is_float(dtype) ? remember(b, b.constant(pick(9) / 4.0 - 1, dtype), Value::kPlain, {1, 2})
                    : remember(b, b.integer(pick(9) - 4, dtype), Value::kPlain, {4});
    for (int k = 1 + pick(3); k > 0; --k) load(b);
    for (int k = pick(5); k > 0; --k) operation(b);
    for (size_t k = values_.size(); k-- > 0;)
      if (const auto v = converted(b, values_[k], value_dtype(dtype))) return *v;
    return values_[0];
  }

  SymExpr place_in(NestBuilder& b, const SymExpr& extent) {
    const Value* from = indirect();
    const InstId number = from != nullptr && pick(6) != 0
                              ? b.cast(from->id, DType::kInt64)
                              : b.index(b.dim(b.peek().dim_count() - 1) * SymExpr(1 + pick(3)));
    return b.checked_index(b.scalar(ScalarOp::k_rem, {number, b.index(extent)}), extent, false);
  }

  std::mt19937 random_;
  RandomProgram out_;
  std::vector<SymSizes> shapes_;
  std::vector<Value> values_;     // of the current nest
  std::vector<DType> dtype_of_;
  uint32_t next_nest_ = 0;
  size_t readable_ = 0;           // buffers below it may be loaded
};

}  // namespace

RandomProgram random_program(uint32_t seed) { return Maker(seed).make(); }

}  // namespace framejit::inductor::testing
