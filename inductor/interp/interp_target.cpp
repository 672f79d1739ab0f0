// inductor/interp/interp_target.cpp — a kernel as the programs that the interpreter runs, point after point.
//
// The kernel itself is passed as a scalar of the call, because the ABI has no other place for state. The code of this
// target is the kernel, and never leaves its process.
#include "inductor/interp/interp_target.h"

#include <atomic>

#include "inductor/interp/interpreter.h"

namespace framejit::inductor {
namespace {

struct InterpretedKernel : runtime::KernelCode {
  explicit InterpretedKernel(Kernel k) : kernel(std::move(k)) {
    target = "interp";
    text = print(kernel);
    name = kernel.name;
    id = runtime::content_id(target, text);
    program.symbol_count = kernel.symbol_count;
    for (const KernelBuffer& b : kernel.buffers)
      program.buffers.push_back({"b", BufferRole::kTemp, b.dtype, {SymExpr(1)}, {SymExpr(1)}, UINT32_MAX, false});
  }

  Kernel kernel;
  LoopProgram program;  // buffers only
};

int64_t run_points(const InterpretedKernel& k, const InterpreterMemory& memory, int64_t begin, int64_t end) {
  std::vector<int64_t> extents, point(k.kernel.outer.size());
  for (const SymExpr& e : k.kernel.outer) extents.push_back(e.eval(memory.symbols));
  for (int64_t at = begin; at < end; ++at) {
    int64_t left = at;
    for (size_t d = point.size(); d-- > 0; left /= extents[d]) point[d] = left % extents[d];
    for (const KernelNest& n : k.kernel.nests)
      if (const int64_t failed = run_nest(k.program, n.nest, memory, point)) return failed;
  }
  return 0;
}

int64_t run_interpreted(void* const* buffers, const int64_t* sizes, const FjScalar* scalars, int64_t begin,
                        int64_t end) {
  const auto& k = *reinterpret_cast<const InterpretedKernel*>(scalars[0].i);
  InterpreterMemory memory;
  memory.symbols.assign(k.kernel.symbol_count, 0);
  for (size_t s = 0; s < k.kernel.symbols.size(); ++s) memory.symbols[k.kernel.symbols[s]] = sizes[s];
  std::vector<std::vector<char>> scratch;
  for (size_t b = 0; b < k.kernel.buffers.size(); ++b) {
    const KernelBuffer& buffer = k.kernel.buffers[b];
    if (buffer.is_local) scratch.emplace_back(static_cast<size_t>(buffer.local_elements * row_of(buffer.dtype).bytes));
    memory.buffers.push_back(buffer.is_local ? scratch.back().data() : buffers[b]);
  }
  if (k.kernel.is_flat) return run_nest(k.program, k.kernel.nests[0].nest, memory);
  return run_points(k, memory, begin, end);
}

// The graph's library calls stay as they are: this backend defines what kernels compute, and nothing else should
// differ.
TargetInfo interp_info() {
  TargetInfo info = reference_target();
  info.traits.may_widen_bf16 = info.traits.addmm_copies_first = info.traits.formats_differ = false;
  return info;
}

class InterpTarget : public KernelTarget {
 public:
  const TargetInfo& info() const override { return info_; }

  Result<CompiledKernel> compile(const Kernel& kernel) override {
    ++kernels_;
    return CompiledKernel{std::make_shared<InterpretedKernel>(kernel), kernel.extent, 0};
  }
  Result<runtime::LoadedKernel> load(const std::shared_ptr<const runtime::KernelCode>& code,
                                     runtime::DeviceId) override {
    const auto* kernel = dynamic_cast<const InterpretedKernel*>(code.get());
    if (kernel == nullptr)
      return Error{Reason::no_target, "the interpreter runs only kernels of this process, not " + code->id.text()};
    FjScalar self;
    self.i = reinterpret_cast<int64_t>(kernel);
    return runtime::LoadedKernel{run_interpreted, {self}, code};
  }
  Result<std::vector<KernelText>> texts(const Kernel&, bool) override { return std::vector<KernelText>{}; }
  TargetStatistics statistics() const override { return {kernels_.load(), 0, 0}; }

 private:
  const TargetInfo info_ = interp_info();
  std::atomic<int64_t> kernels_{0};
};

}  // namespace

std::unique_ptr<KernelTarget> make_interp_target() { return std::make_unique<InterpTarget>(); }

}  // namespace framejit::inductor
