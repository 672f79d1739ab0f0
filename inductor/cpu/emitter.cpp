// inductor/cpu/emitter.cpp — the function of a kernel: arguments, scratch, the loop over outer points. Nests:
// nest_emitter.h.
#include "inductor/cpu/emitter.h"

#include "inductor/cpu/nest_emitter.h"
#include "inductor/cpu/product_emitter.h"

namespace framejit::inductor {

using llvm::BasicBlock;
using llvm::Value;

namespace {

void add_attributes(llvm::Function* f, const EmitOptions& options) {
  const std::string width = std::to_string(options.target.registers.width_bits);
  f->addFnAttr("min-legal-vector-width", width);
  f->addFnAttr("prefer-vector-width", width);
  f->addFnAttr(llvm::Attribute::NoUnwind);
  if (options.keep_frame_pointer) f->addFnAttr("frame-pointer", "all");
}

// Buffer pointers from the argument array, scratch from the stack, sizes by symbol.
void emit_arguments(FunctionState& s, const Kernel& kernel) {
  llvm::Type* pointer = s.b.getPtrTy();
  const int64_t copies = kernel.lanes_outer ? s.plan.outer_lanes : 1;
  for (size_t k = 0; k < kernel.buffers.size(); ++k) {
    const KernelBuffer& buffer = kernel.buffers[k];
    if (buffer.is_local) {
      auto* type = llvm::ArrayType::get(s.ops.memory_type(buffer.dtype, 0),
                                        static_cast<uint64_t>(buffer.local_elements * copies));
      auto* scratch = s.b.CreateAlloca(type);
      scratch->setAlignment(llvm::Align(64));
      s.buffers.push_back(scratch);
    } else {
      s.buffers.push_back(s.b.CreateLoad(pointer, s.b.CreateConstGEP1_64(pointer, s.function->getArg(0), k)));
    }
  }
  s.symbols.assign(kernel.symbol_count, nullptr);
  for (size_t k = 0; k < kernel.symbols.size(); ++k)
    s.symbols[kernel.symbols[k]] =
        s.b.CreateLoad(s.b.getInt64Ty(), s.b.CreateConstGEP1_64(s.b.getInt64Ty(), s.function->getArg(1), k));
}

void emit_nests(FunctionState& s, const Kernel& kernel, const EmitOptions& options) {
  for (size_t n = 0; n < kernel.nests.size(); ++n) {
    NestState state(s, kernel, n, options.target);
    NestEmitter(state).run();
  }
}

// Outer points from outer.back() to `to`, side by side: first whole registers, then the rest with a mask.
void emit_lanes(FunctionState& s, const Kernel& kernel, const EmitOptions& options, Value* to) {
  const unsigned wide = s.plan.outer_lanes, narrow = options.target.registers.lanes;
  Value* from = s.outer.back();
  Value* middle = from;
  if (wide > narrow) {
    Value* whole = s.b.CreateAnd(s.b.CreateSub(to, from), s.b.getInt64(~static_cast<uint64_t>(wide - 1)));
    middle = s.b.CreateAdd(from, whole);
    s.lanes = wide;
    emit_loop(s, from, middle, {}, [&](Value* index) -> Value* {
      s.outer.back() = index;
      emit_nests(s, kernel, options);
      return s.b.getInt64(wide);
    });
  }
  s.lanes = narrow;
  emit_loop(s, middle, to, {}, [&](Value* index) -> Value* {
    s.outer.back() = index;
    s.mask = s.ops.first_lanes(s.b.CreateSub(to, index), s.lanes);
    emit_nests(s, kernel, options);
    return s.b.getInt64(s.lanes);
  });
  s.mask = nullptr;
}

// The loop over outer points; the linear index is split into dimensions, the last one fastest. Kernels in tiles, of
// outer lanes and of products take several points that differ only in the last dimension.
void emit_outer(FunctionState& s, const Kernel& kernel, const EmitOptions& options) {
  std::vector<Value*> extents;
  for (const SymExpr& e : kernel.outer) extents.push_back(eval_size(s, e));
  emit_loop(s, s.begin, s.end, {}, [&](Value* point) -> Value* {
    Value* left = point;
    s.outer.assign(kernel.outer.size(), nullptr);
    for (size_t d = kernel.outer.size(); d-- > 0;) {
      s.outer[d] = d == 0 ? left : s.b.CreateURem(left, extents[d]);
      if (d > 0) left = s.b.CreateUDiv(left, extents[d]);
    }
    if (!kernel.in_tiles && !kernel.lanes_outer && !kernel.is_product) {
      emit_nests(s, kernel, options);
      return s.b.getInt64(1);
    }
    Value* first = s.outer.back();
    Value* step = s.least(s.b.CreateSub(extents.back(), first), s.b.CreateSub(s.end, point));
    if (kernel.in_tiles) step = s.least(step, s.b.getInt64(static_cast<uint64_t>(s.plan.tiles.points)));
    if (kernel.is_product) step = s.least(step, s.b.getInt64(static_cast<uint64_t>(s.plan.product.columns_at_once)));
    s.tile_end = s.b.CreateAdd(first, step);
    if (kernel.is_product) {
      emit_product(s, kernel, options);
      return step;
    }
    kernel.in_tiles ? emit_nests(s, kernel, options) : emit_lanes(s, kernel, options, s.tile_end);
    return step;
  });
}

}  // namespace

void emit_kernel(llvm::Module& module, const Kernel& kernel, const std::string& name, const EmitOptions& options) {
  llvm::LLVMContext& context = module.getContext();
  llvm::Type* i64 = llvm::Type::getInt64Ty(context);
  llvm::Type* pointer = llvm::PointerType::get(context, 0);
  auto* type = llvm::FunctionType::get(i64, {pointer, pointer, pointer, i64, i64}, false);
  auto* function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module);
  add_attributes(function, options);
  FunctionState s(module, function, kernel, options);
  s.b.SetInsertPoint(BasicBlock::Create(context, "entry", function));
  s.begin = function->getArg(3);
  s.end = function->getArg(4);
  s.failed = BasicBlock::Create(context, "failed", function);
  emit_arguments(s, kernel);
  kernel.is_flat ? emit_nests(s, kernel, options) : emit_outer(s, kernel, options);
  s.b.CreateRet(s.b.getInt64(0));
  s.b.SetInsertPoint(s.failed);
  s.b.CreateRet(s.b.getInt64(1));
}

}  // namespace framejit::inductor
