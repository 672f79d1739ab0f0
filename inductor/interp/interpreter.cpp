// inductor/interp/interpreter.cpp — one point at a time, one instruction at a time.
#include "inductor/interp/interpreter.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace framejit::inductor {

using graph::ScalarValue;

namespace {

struct Accumulator {
  ScalarValue value{};
  int64_t position = 0;
  bool is_started = false;
};

class NestRun {
 public:
  NestRun(const LoopProgram& program, const Nest& nest, const InterpreterMemory& memory)
      : program_(program), nest_(nest), memory_(memory), symbols_(program.symbol_count), values_(nest.body.size()),
        accumulators_(nest.body.size()), env_(memory.symbols) {
    env_.resize(program.symbol_count);
    env_.resize(program.symbol_count + kMaxDims + nest.body.size(), 0);
    inner_ = inner_insts(nest, symbols_);
    after_ = after_reduction(nest, symbols_);
    for (const LoopBuffer& b : program.buffers) {
      strides_.emplace_back();
      for (const SymExpr& s : b.strides) strides_.back().push_back(s.eval(memory.symbols));
    }
  }

  int64_t run(std::span<const int64_t> fixed) {
    std::copy(fixed.begin(), fixed.end(), env_.begin() + symbols_.sizes);
    return loop(fixed.size(), nest_.ranges.size(), [&] { return point(); });
  }

 private:
  template <class Body>
  int64_t loop(size_t dim, size_t end, Body body) {
    if (dim == end) return body();
    const int64_t extent = nest_.extent(dim).eval(memory_.symbols);
    for (int64_t i = 0; i < extent; ++i) {
      env_[symbols_.sizes + dim] = i;
      if (const int64_t failed = loop(dim + 1, end, body)) return failed;
    }
    return 0;
  }

  // One point: first the instructions before the reduction, then its loop, then what needs its result.
  int64_t point() {
    if (!nest_.is_reduction()) return execute([](size_t) { return true; });
    std::fill(accumulators_.begin(), accumulators_.end(), Accumulator{});
    position_ = 0;
    if (const int64_t failed = execute([&](size_t i) { return !inner_[i] && !after_[i]; })) return failed;
    const int64_t failed = loop(nest_.ranges.size(), nest_.dim_count(), [&]() -> int64_t {
      if (const int64_t inside = execute([&](size_t i) { return inner_[i]; })) return inside;
      for (size_t i = 0; i < nest_.body.size(); ++i)
        if (nest_.body[i].op == LoopOp::kReduce) accumulate(i);
      ++position_;
      return 0;
    });
    if (failed != 0) return failed;
    for (size_t i = 0; i < nest_.body.size(); ++i)
      if (nest_.body[i].op == LoopOp::kReduce) values_[i] = result(i);
    return execute([&](size_t i) { return after_[i] && nest_.body[i].op != LoopOp::kReduce; });
  }

  template <class Wanted>
  int64_t execute(Wanted wanted) {
    for (size_t i = 0; i < nest_.body.size(); ++i) {
      if (!wanted(i)) continue;
      if (const int64_t failed = execute_inst(i)) return failed;
      if (nest_.body[i].dtype == DType::kInt64) env_[symbols_.sizes + kMaxDims + i] = values_[i].i;
    }
    return 0;
  }

  int64_t execute_inst(size_t i) {
    const LoopInst& inst = nest_.body[i];
    switch (inst.op) {
      case LoopOp::kConstant: values_[i] = inst.constant; return 0;
      case LoopOp::kIndex: values_[i].i = inst.index[0].eval(env_); return 0;
      case LoopOp::kLoad:
        values_[i] = inst.is_masked() && values_[inst.operands[0]].i == 0
                         ? values_[inst.operands[1]]
                         : graph::load_element(program_.buffers[inst.buffer].dtype, address(inst));
        return 0;
      case LoopOp::kStore: store(inst); return 0;
      case LoopOp::kCheck: {
        const int64_t extent = inst.index[0].eval(env_);
        int64_t at = values_[inst.operands[0]].i;
        if (inst.wrap && at < 0) at += extent;
        if (at < 0 || at >= extent) return 1 + static_cast<int64_t>(i);
        values_[i].i = at;
        return 0;
      }
      case LoopOp::kScalar: {
        ScalarValue operands[3] = {};
        for (int k = 0; k < inst.operand_count(); ++k) operands[k] = values_[inst.operands[k]];
        const bool is_select = graph::row_of(inst.scalar).result == graph::ScalarResult::kSelect;
        const DType dtype = nest_.body[inst.operands[is_select ? 1 : 0]].dtype;
        values_[i] = graph::evaluate(inst.scalar, dtype, {operands, static_cast<size_t>(inst.operand_count())});
        return 0;
      }
      case LoopOp::kCast:
        values_[i] = graph::convert(values_[inst.operands[0]], nest_.body[inst.operands[0]].dtype, inst.dtype);
        return 0;
      case LoopOp::kScan: scan(i); return 0;
      case LoopOp::kReduce: return 0;
    }
    return 0;
  }

  void store(const LoopInst& inst) {
    const DType dtype = program_.buffers[inst.buffer].dtype;
    void* at = address(inst);
    ScalarValue value = values_[inst.operands[0]];
    if (inst.mode == StoreMode::kJoin) {
      const ScalarValue operands[2] = {graph::load_element(dtype, at), value};
      value = graph::evaluate(joining(inst.reduce), value_dtype(dtype), operands);
    }
    graph::store_element(dtype, at, value);
  }

  void* address(const LoopInst& inst) const {
    int64_t offset = 0;
    for (size_t k = 0; k < inst.index.size(); ++k) offset += inst.index[k].eval(env_) * strides_[inst.buffer][k];
    return static_cast<char*>(memory_.buffers[inst.buffer]) +
           offset * row_of(program_.buffers[inst.buffer].dtype).bytes;
  }

  // Sums of floats are kept in double and rounded once: more exact than any order of float additions.
  void accumulate(size_t i) {
    const LoopInst& inst = nest_.body[i];
    const ScalarValue x = values_[inst.operands[0]];
    const DType dtype = nest_.body[inst.operands[0]].dtype;
    Accumulator& a = accumulators_[i];
    const bool floating = is_float(dtype);
    const bool first = !std::exchange(a.is_started, true);
    const auto binary = [&](ScalarOp op) {
      const ScalarValue operands[2] = {a.value, x};
      a.value = first ? x : graph::evaluate(op, floating ? DType::kFloat64 : dtype, operands);
    };
    if (!is_position(inst.reduce)) return binary(joining(inst.reduce));
    const bool max = inst.reduce == ReduceOp::kArgmax;
    const bool better = floating
                            ? !std::isnan(a.value.f) && (std::isnan(x.f) || (max ? x.f > a.value.f : x.f < a.value.f))
                            : (max ? x.i > a.value.i : x.i < a.value.i);
    if (first || better) {
      a.value = x;
      a.position = position_;
    }
  }

  // One step of a running result: in order, in the dtype of the value.
  void scan(size_t i) {
    const LoopInst& inst = nest_.body[i];
    const ScalarValue x = values_[inst.operands[0]];
    const DType dtype = nest_.body[inst.operands[0]].dtype;
    Accumulator& a = accumulators_[i];
    if (is_position(inst.reduce)) {
      const bool max = inst.reduce == ReduceOp::kArgmax;
      const bool takes = is_float(dtype) ? std::isnan(x.f) || (max ? x.f >= a.value.f : x.f <= a.value.f)
                                         : (max ? x.i >= a.value.i : x.i <= a.value.i);
      if (!std::exchange(a.is_started, true) || takes) {
        a.value = x;
        a.position = position_;
      }
      values_[i].i = a.position;
      return;
    }
    if (!std::exchange(a.is_started, true)) {
      a.value = x;
      if (inst.reduce == ReduceOp::kSum && is_float(dtype)) a.value.f += 0.0;  // as if added to zero: never -0.0
    } else {
      const ScalarValue operands[2] = {a.value, x};
      a.value = graph::evaluate(joining(inst.reduce), dtype, operands);
    }
    values_[i] = a.value;
  }

  ScalarValue result(size_t i) const {
    const LoopInst& inst = nest_.body[i];
    const Accumulator& a = accumulators_[i];
    const bool floating = is_float(inst.dtype);
    ScalarValue out = a.value;
    if (is_position(inst.reduce)) {
      out.i = a.position;
    } else if (!a.is_started) {
      const bool one = inst.reduce == ReduceOp::kProd || inst.reduce == ReduceOp::kAll;
      if (floating) {
        out.f = one ? 1 : 0;
      } else {
        out.i = one ? 1 : 0;
      }
    } else if (inst.dtype == DType::kFloat32) {
      out.f = static_cast<float>(out.f);
    }
    return out;
  }

  const LoopProgram& program_;
  const Nest& nest_;
  const InterpreterMemory& memory_;
  NestSymbols symbols_;
  std::vector<ScalarValue> values_;
  std::vector<Accumulator> accumulators_;
  std::vector<int64_t> env_;  // values of sizes, dimensions, integers
  std::vector<std::vector<int64_t>> strides_;
  std::vector<bool> inner_, after_;
  int64_t position_ = 0;
};

}  // namespace

int64_t run_nest(const LoopProgram& program, const Nest& nest, const InterpreterMemory& memory,
                 std::span<const int64_t> point) {
  return NestRun(program, nest, memory).run(point);
}

Result<void> run_program(const LoopProgram& program, const InterpreterMemory& memory,
                         const std::function<void(const ExternCall&)>& call) {
  for (const auto& item : program.items) {
    if (const Nest* nest = std::get_if<Nest>(&item)) {
      if (const int64_t failed = run_nest(program, *nest, memory))
        return Error{Reason::bad_index, "nest " + nest->name + ", %" + std::to_string(failed - 1)};
    } else {
      call(std::get<ExternCall>(item));
    }
  }
  return {};
}

}  // namespace framejit::inductor
