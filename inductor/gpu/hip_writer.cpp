#include "inductor/gpu/hip_writer.h"

namespace framejit::inductor {

SymExpr count(const Nest& nest, const std::vector<size_t>& dims) {
  SymExpr n = 1;
  for (size_t d : dims) n = n * nest.extent(d);
  return n;
}

std::vector<size_t> reduced_dims(const Nest& nest) {
  std::vector<size_t> dims;
  for (size_t d = nest.ranges.size(); d < nest.dim_count(); ++d) dims.push_back(d);
  return dims;
}

std::vector<size_t> kept_dims(const KernelNest& n) {
  std::vector<size_t> dims;
  for (size_t d : n.order)
    if (d < n.nest.ranges.size()) dims.push_back(d);
  return dims;
}

std::vector<size_t> outer_dims(const Kernel& kernel) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < kernel.outer.size(); ++d) dims.push_back(d);
  return dims;
}

int64_t power_of_two_from(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

int64_t hinted(const Kernel& kernel, const SymExpr& e, int64_t unknown) {
  if (e.is_constant()) return e.constant();
  return kernel.size_hints.empty() ? unknown : e.eval(kernel.size_hints);
}

void HipWriter::line(const std::string& statement) { text_ += std::string(2 * depth_, ' ') + statement + "\n"; }

void HipWriter::open(const std::string& statement) {
  line(statement + (statement.empty() ? "{" : " {"));
  ++depth_;
}

void HipWriter::close() {
  --depth_;
  line("}");
}

void HipWriter::open_unrolled(const std::string& name, int64_t turns) {
  line("#pragma unroll");
  open("for (int " + name + " = 0; " + name + " < " + std::to_string(turns) + "; ++" + name + ")");
}

void HipWriter::take_apart(const NestText& t, const Nest& nest, const std::vector<size_t>& dims, std::string linear) {
  for (size_t k = dims.size(); k-- > 0;) {
    const std::string extent = t.factor(nest.extent(dims[k]));
    line("const index " + t.dim(dims[k]) + " = " + (k == 0 ? linear : linear + " % " + extent) + ";");
    linear = "(" + linear + " / " + extent + ")";
  }
}

void HipWriter::part(const NestText& t, const Nest& nest, Part part, const std::string& guard) {
  const NestSymbols symbols(kernel_.symbol_count);
  const auto inner = inner_insts(nest, symbols), after = after_reduction(nest, symbols);
  for (InstId i = 0; i < nest.body.size(); ++i) {
    const Part own = after[i] ? Part::kAfter : inner[i] ? Part::kInside : Part::kBefore;
    if (own == part && nest.body[i].op != LoopOp::kReduce) line(t.inst(i, part == Part::kInside ? "" : guard));
  }
}

void HipWriter::reduced_loop(const NestText& t, const Nest& nest, const std::string& from, const std::string& step) {
  for_each_reduction(nest, [&](InstId i) { line(t.declare_accumulator(i)); });
  line("#pragma unroll 4");
  open("for (index q = " + from + "; q < " + t.expr(count(nest, reduced_dims(nest))) + "; q += " + step + ")");
  take_apart(t, nest, reduced_dims(nest), "q");
  part(t, nest, Part::kInside, "");
  for_each_reduction(nest, [&](InstId i) { line(t.accumulate(i, "q")); });
  close();
}

void HipWriter::result(const NestText& t, const Nest& nest, InstId i, const std::string& whole) {
  line("const " + value_type_text(nest.body[i].dtype) + " v" + std::to_string(i) + " = " + whole +
       (t.is_position(i) ? ".at;" : ";"));
}

}  // namespace framejit::inductor
