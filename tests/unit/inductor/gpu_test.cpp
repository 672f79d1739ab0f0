// The GPU form of kernels: executed on the CPU by emulated blocks and waves, and compiled for real GPUs if a compiler
// is found.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <span>

#include "inductor/gpu/hip_emitter.h"
#include "inductor/kernel/target.h"
#include "runtime/gpu_driver.h"
#include "tests/unit/inductor/host_gpu_target.h"
#include "tests/unit/inductor/plan_runner.h"
#include "tests/unit/not_tested.h"

namespace framejit::inductor::testing {
namespace {

struct HostCase {
  const char* name;
  const char* graph;
  double tolerance;
  std::vector<int64_t> symbols = {};  // empty: the hints
};
const HostCase kCases[] = {
    {"points_broadcast", R"(graph @f(%x : bf16[5, 300], %b : bf16[300]) {
      %0 = add.Tensor %x, %b, 1 : bf16[5, 300]
      %1 = gelu %0, "tanh" : bf16[5, 300]
      return %1
    })",
     1e-2},
    {"points_half", R"(graph @f(%x : f16[700]) {
      %0 = mul.Tensor %x, 3.0 : f16[700]
      %1 = sigmoid %0 : f16[700]
      return %1
    })",
     2e-3},
    {"points_one_by_one", R"(graph @f(%x : bf16[37, 48], %y : f32[37, 45]) {
      %0 = slice.Tensor %x, 1, 0, 45, 1 : bf16[37, 45; 48, 1] &%x
      %1 = clone %0, @m0 : bf16[37, 45]
      %2 = permute %y, [1, 0] : f32[45, 37; 1, 45] &%y
      %3 = add.Tensor %2, 1, 1 : f32[45, 37; 1, 45]
      %4 = clone %3, @m0 : f32[45, 37]
      return %1, %4
    })",
     0},
    {"reciprocal_roots", R"(graph @f(%x : f32[300], %y : f64[300]) {
      %0 = rsqrt %x : f32[300]
      %1 = mul.Tensor %x, 0.0 : f32[300]
      %2 = rsqrt %1 : f32[300]
      %3 = mul.Tensor %0, %0 : f32[300]
      %4 = div.Tensor %x, %1 : f32[300]
      %5 = abs %4 : f32[300]
      %6 = rsqrt %5 : f32[300]
      %7 = rsqrt %y : f64[300]
      return %0, %2, %3, %6, %7
    })",
     1e-6},
    {"norm_then_pool",
     R"(graph @f(%x : bf16[2, 16, 9, 12; 1728, 1, 192, 16], %w : f32[16], %b : f32[16], %m : f32[16]) {
      %0 = mul.Tensor %m, %m : f32[16]
      %1, %2, %3 = _native_batch_norm_legit_no_training %x, %w, %b, %m, %0, 0.1, 1e-05 : bf16[2, 16, 9, 12; 1728, 1, 192, 16], f32[0], f32[0]
      %4 = relu %1 : bf16[2, 16, 9, 12; 1728, 1, 192, 16]
      %5, %6 = max_pool2d_with_indices %4, [3, 3], [2, 2], [1, 1], [1, 1], false : bf16[2, 16, 5, 6; 480, 1, 96, 16], i64[2, 16, 5, 6; 480, 1, 96, 16]
      return %5
    })",
     2e-2},
    {"softmax", R"(graph @f(%x : f32[7, 333]) {
      %0 = mul.Tensor %x, 0.125 : f32[7, 333]
      %1 = _softmax %0, -1, false : f32[7, 333]
      return %1
    })",
     1e-6},
    {"layer_norm", R"(graph @f(%x : f32[9, 130], %y : f32[9, 130], %w : f32[130], %b : f32[130]) {
      %0 = add.Tensor %x, %y, 1 : f32[9, 130]
      %1, %2, %3 = native_layer_norm %0, [130], %w, %b, 1e-05 : f32[9, 130], f32[9, 1], f32[9, 1]
      return %0, %1
    })",
     5e-6},
    {"columns", R"(graph @f(%x : f32[600, 45]) {
      %0 = sum.dim_IntList %x, [0], false, none : f32[45]
      %1 = exp %0 : f32[45]
      return %0
    })",
     1e-5},
    {"few_rows_of_columns", R"(graph @f(%x : f32[3, 90]) {
      %0 = amax %x, [0], false : f32[90]
      return %0
    })",
     0},
    {"argmax_rows_and_columns", R"(graph @f(%x : i64[20, 200]) {
      %0 = argmax %x, 1, false : i64[20]
      %1 = argmin %x, 0, false : i64[200]
      return %0, %1
    })",
     0},
    {"whole_sum", R"(graph @f(%x : f32[33, 41]) {
      %0 = sum %x, none : f32[]
      %1 = mul.Tensor %x, %0 : f32[33, 41]
      return %1
    })",
     1e-5},
    {"integers", R"(graph @f(%x : i64[77], %y : u8[77], %z : i32[77]) {
      %0 = remainder.Scalar %x, 3 : i64[77]
      %1 = eq.Scalar %0, 0 : bool[77]
      %2 = bitwise_and.Tensor %y, %y : u8[77]
      %3 = where.self %1, %y, %2 : u8[77]
      %4 = mul.Tensor %z, 1000003 : i32[77]
      %5 = any %1 : bool[]
      return %1, %3, %4, %5
    })",
     0},
    {"symbolic_rows", R"(graph @f(%x : f32[s0, s1]) where s0 = 4, s1 = 100 {
      %0 = amax %x, [1], true : f32[s0, 1]
      %1 = sub.Tensor %x, %0, 1 : f32[s0, s1]
      return %1
    })",
     0},
    {"permuted", R"(graph @f(%x : f32[3, 4, 5, 6; 120, 6, 24, 1]) {
      %0 = permute %x, [0, 2, 1, 3] : f32[3, 5, 4, 6]
      %1 = relu %0 : f32[3, 5, 4, 6]
      return %1
    })",
     0},
    {"doubles", R"(graph @f(%x : f64[6, 50]) {
      %0 = _log_softmax %x, 1, false : f64[6, 50]
      return %0
    })",
     1e-13},
    {"a_line_with_a_rest", R"(graph @f(%x : bf16[1003], %y : f32[1003]) {
      %0 = mul.Tensor %x, %y : f32[1003]
      return %0
    })",
     1e-6},
    {"several_rows_a_block", R"(graph @f(%x : bf16[301, 24]) {
      %0 = _softmax %x, -1, false : bf16[301, 24]
      return %0
    })",
     1e-2},
    {"rows_of_odd_length", R"(graph @f(%x : f16[300, 33], %w : f16[33]) {
      %0 = _softmax %x, -1, false : f16[300, 33]
      %1 = mul.Tensor %0, %w : f16[300, 33]
      return %0, %1
    })",
     2e-3},
    {"rows_too_long_for_registers", R"(graph @f(%x : f32[2, 33000], %w : f32[33000], %b : f32[33000]) {
      %1, %2, %3 = native_layer_norm %x, [33000], %w, %b, 1e-05 : f32[2, 33000], f32[2, 1], f32[2, 1]
      return %1, %2, %3
    })",
     5e-6},
    {"rows_of_two_dimensions", R"(graph @f(%x : f32[4, 3, 5, 8]) {
      %0 = sum.dim_IntList %x, [1, 3], true, none : f32[4, 1, 5, 1]
      %1 = amax %x, [1, 3], false : f32[4, 5]
      return %0, %1
    })",
     1e-5},
    {"columns_of_means", R"(graph @f(%x : bf16[70, 96], %m : f32[96]) {
      %0 = sub.Tensor %x, %m, 1 : f32[70, 96]
      %1 = sum.dim_IntList %0, [0], false, none : f32[96]
      %2 = add.Tensor %1, %m, 1 : f32[96]
      return %0, %2
    })",
     1e-5},
    {"pairs_in_turns", R"(graph @f(%q : bf16[1, 1, 8, 64], %t : f32[1, 32, 2]) {
  %7 = _to_copy %q, @f32, none, none, none, false, none : f32[1, 1, 8, 64]
  %8 = view %7, [1, 1, 8, 32, 2] : f32[1, 1, 8, 32, 2]
  %9 = select.int %t, 2, 0 : f32[1, 32; 64, 2]
  %10 = unsqueeze %9, 1 : f32[1, 1, 32; 64, 64, 2]
  %11 = select.int %t, 2, 1 : f32[1, 32; 64, 2; 1]
  %12 = unsqueeze %11, 1 : f32[1, 1, 32; 64, 64, 2; 1]
  %13 = select.int %8, 4, 0 : f32[1, 1, 8, 32; 512, 512, 64, 2]
  %14 = select.int %8, 4, 1 : f32[1, 1, 8, 32; 512, 512, 64, 2; 1]
  %15 = mul.Tensor %13, %10 : f32[1, 1, 8, 32]
  %16 = mul.Tensor %14, %12 : f32[1, 1, 8, 32]
  %17 = sub.Tensor %15, %16, 1 : f32[1, 1, 8, 32]
  %18 = mul.Tensor %14, %10 : f32[1, 1, 8, 32]
  %19 = mul.Tensor %13, %12 : f32[1, 1, 8, 32]
  %20 = add.Tensor %18, %19, 1 : f32[1, 1, 8, 32]
  %21 = stack [%17, %20], -1 : f32[1, 1, 8, 32, 2]
  %22 = view %21, [1, 1, 8, 64] : f32[1, 1, 8, 64]
  %23 = _to_copy %22, @bf16, none, none, none, false, none : bf16[1, 1, 8, 64]
  return %23
})",
     1e-2},
    {"tiles", R"(graph @f(%x : f32[3, 70, 45], %y : f32[3, 45, 70]) {
      %0 = permute %x, [0, 2, 1] : f32[3, 45, 70]
      %1 = add.Tensor %0, %y, 1 : f32[3, 45, 70]
      return %1
    })",
     0},
    {"tiles_of_two_bytes_symbolic",
     R"(graph @f(%x : bf16[s0, s1], %y : bf16[s1, s0]) where s0 = 64, s1 = 32 {
      %0 = permute %x, [1, 0] : bf16[s1, s0]
      %1 = add.Tensor %0, %y, 1 : bf16[s1, s0]
      return %1
    })",
     1e-2,
     {37, 45}},
    {"whole_sum_of_odd_sizes", R"(graph @f(%x : f32[199, 769]) {
      %0 = sum %x, none : f32[]
      return %0
    })",
     1e-5},
    {"symbolic_length_beyond_what_was_expected",
     R"(graph @f(%x : f32[s0, s1], %w : f32[s1]) where s0 = 4, s1 = 16 {
      %0 = _softmax %x, -1, false : f32[s0, s1]
      %1 = mul.Tensor %0, %w : f32[s0, s1]
      return %1
    })",
     1e-6,
     {3, 1001}},
    {"symbolic_length_with_a_rest",
     R"(graph @f(%x : bf16[s0, s1], %w : bf16[s1]) where s0 = 300, s1 = 64 {
      %0 = add.Tensor %x, %w, 1 : bf16[s0, s1]
      %1 = _softmax %0, -1, false : bf16[s0, s1]
      return %0, %1
    })",
     1e-2,
     {301, 37}},
    {"symbolic_columns",
     R"(graph @f(%x : f32[s0, s1]) where s0 = 40, s1 = 64 {
      %0 = sum.dim_IntList %x, [0], false, none : f32[s1]
      return %0
    })",
     1e-5,
     {50, 45}},
    {"a_row_of_a_cache_is_replaced",
     R"(graph @f(%x : bf16[1, 3, 100, 8], %i : i64[1], %y : bf16[1, 3, 1, 8], %z : f32[100, 8]) {
      %0 = index_put %x, [none, none, %i], %y : bf16[1, 3, 100, 8]
      %1 = index.Tensor %z, [%i] : f32[1, 8]
      %2 = exp %1 : f32[1, 8]
      return %0, %2
    })",
     1e-2},
    {"product_of_one_row", R"(graph @f(%x : bf16[1, 1376], %w : bf16[70, 1376], %y : bf16[1, 70]) {
      %0 = t %w : bf16[1376, 70; 1, 1376]
      %1 = mm %x, %0 : bf16[1, 70]
      %2 = add.Tensor %y, %1, 1 : bf16[1, 70]
      return %2
    })",
     1e-2},
    {"products_of_three_rows_with_scale_and_bias",
     R"(graph @f(%x : f16[3, 200], %v : f16[200], %w : f16[301, 200], %u : f16[301, 200], %b : f16[301]) {
      %0 = mul.Tensor %x, %v : f16[3, 200]
      %1 = t %w : f16[200, 301; 1, 200]
      %2 = t %u : f16[200, 301; 1, 200]
      %3 = mm %0, %1 : f16[3, 301]
      %4 = addmm %b, %0, %2 : f16[3, 301]
      %5 = silu %3 : f16[3, 301]
      %6 = mul.Tensor %5, %4 : f16[3, 301]
      return %6
    })",
     2e-3},
    {"product_of_eight_rows", R"(graph @f(%x : f32[8, 256], %w : f32[70, 256]) {
      %0 = t %w : f32[256, 70; 1, 256]
      %1 = mm %x, %0 : f32[8, 70]
      return %1
    })",
     1e-5},
    {"product_of_weights_that_are_cast", R"(graph @f(%x : bf16[2, 64], %w : f32[40, 64]) {
      %0 = _to_copy %w, @bf16 : bf16[40, 64]
      %1 = t %0 : bf16[64, 40; 1, 64]
      %2 = mm %x, %1 : bf16[2, 40]
      return %2
    })",
     1e-2},
    {"symbolic_products_of_sizes",
     R"(graph @f(%x : f32[s0, s1, s2]) where s0 = 7, s1 = 4, s2 = 9 {
      %0 = _softmax %x, 0, false : f32[s0, s1, s2]
      %1 = abs %x : f32[s0, s1, s2]
      %2 = sum %1, none : f32[]
      return %0, %2
    })",
     1e-5,
     {6, 5, 96}},
};

// Rows that several blocks share.
const HostCase kBlockCases[] = {
    {"rows_of_blocks", R"(graph @f(%x : f32[3, 3001], %w : f32[3001], %b : f32[3001]) {
      %1, %2, %3 = native_layer_norm %x, [3001], %w, %b, 1e-05 : f32[3, 3001], f32[3, 1], f32[3, 1]
      %4 = _softmax %1, -1, false : f32[3, 3001]
      %5 = argmax %4, 1, false : i64[3]
      return %4, %5
    })",
     5e-6},
    {"symbolic_rows_of_blocks",
     R"(graph @f(%x : f32[s0, s1]) where s0 = 2, s1 = 5000 {
      %0 = _softmax %x, -1, false : f32[s0, s1]
      return %0
    })",
     1e-6,
     {3, 5111}},
    {"half_precision_rows_of_blocks", R"(graph @f(%x : bf16[1, 5000]) {
      %0 = _softmax %x, -1, false : bf16[1, 5000]
      return %0
    })",
     1e-2},
};

// A GPU that treats every kernel, however small, as a large one.
TargetInfo tiny_gpu() {
  TargetInfo target = gpu_target();
  target.costs.column_blocks = target.costs.few_rows = target.costs.short_columns = 1;
  target.costs.many_points = 64;
  target.processors = 2;
  target.costs.few_product_rows = 8;
  target.costs.product_residents = target.costs.product_threads = target.costs.product_turns = 64;
  target.costs.row_words = 24;
  target.costs.scratch_bytes = 2048;
  return target;
}

// One whose blocks meet, with few threads each.
TargetInfo meeting_gpu() {
  TargetInfo target = gpu_target();
  target.traits.blocks_meet = true;
  target.costs.most_row_threads = 128;
  return target;
}

// Returns how many blocks met, at most.
int64_t expect_agreement(TargetInfo info, int wave, std::span<const HostCase> cases) {
  HostGpuTarget target(wave, std::move(info));
  for (const HostCase& c : cases) {
    SCOPED_TRACE(std::string(c.name) + ", wave " + std::to_string(wave));
    check_graph_with(target, c.graph, {.tolerance = c.tolerance, .int_limit = 100, .symbols = c.symbols});
  }
  return target.most_together();
}

TEST(SlowGpu, EmulatedKernelsAgreeWithTheInterpreter) {
  if (std::system("c++ --version > /dev/null 2>&1") != 0)
    FJ_NOT_TESTED("kernels on an emulated GPU: there is no C++ compiler (c++)");
  EXPECT_EQ(expect_agreement(gpu_target(), 32, kCases), 1);
  EXPECT_EQ(expect_agreement(tiny_gpu(), 64, kCases), 1);
}

TEST(SlowGpu, EmulatedBlocksThatShareRowsAgreeWithTheInterpreter) {
  if (std::system("c++ --version > /dev/null 2>&1") != 0)
    FJ_NOT_TESTED("kernels on an emulated GPU: there is no C++ compiler (c++)");
  EXPECT_EQ(expect_agreement(meeting_gpu(), 32, kBlockCases), 8);
}

// Every scalar op in every dtype that it supports, as one kernel of floats and one of integers.
Kernel all_scalar_ops(DType dtype) {
  Kernel kernel;
  kernel.buffers = {{0, dtype, false, false, 0}, {1, dtype, true, false, 0}, {2, DType::kBool, true, false, 0}};
  NestBuilder b(0, "n", {SymExpr(64)});
  const InstId x = b.load(0, dtype, {b.dim(0)});
  const bool floating = is_float(dtype);
  for (int k = 0; k <= static_cast<int>(ScalarOp::k_select); ++k) {
    const auto op = static_cast<ScalarOp>(k);
    const bool is_bits = op >= ScalarOp::k_bit_and && op <= ScalarOp::k_shr;
    const bool is_function = op == ScalarOp::k_div || (op >= ScalarOp::k_sqrt && op <= ScalarOp::k_copysign) ||
                             op == ScalarOp::k_round_bf16 || op == ScalarOp::k_round_f16;
    if (floating ? is_bits : is_function) continue;
    if ((op == ScalarOp::k_round_bf16 || op == ScalarOp::k_round_f16) && dtype != DType::kFloat32) continue;
    const auto& row = graph::row_of(op);
    InstId value = x;
    if (row.result == graph::ScalarResult::kSelect) value = b.scalar(op, {b.scalar(ScalarOp::k_lt, {x, x}), x, x});
    else value = row.arity == 1 ? b.scalar(op, {x}) : b.scalar(op, {x, x});
    b.store(row.result == graph::ScalarResult::kBoolean ? 2 : 1, {b.dim(0)}, value);
  }
  kernel.nests.push_back({b.build(), {0}, 0});
  kernel.is_flat = true;
  return kernel;
}

// All programs in one text, each in a namespace, with its own entry: starting a compiler costs more than a kernel.
std::string everything(const std::vector<TargetInfo>& targets) {
  std::string text(hip_prelude());
  int number = 0;
  const auto add = [&](const Kernel& kernel, const TargetInfo& target) {
    const auto program = emit_hip(kernel, target);
    EXPECT_TRUE(program.ok());
    const std::string name = "k" + std::to_string(number++);
    text +=
        "#undef KERNEL\n#define KERNEL(threads, ...) extern \"C\" __global__ void __VA_ARGS__ "
        "__launch_bounds__(threads) " +
        name + "\nnamespace n" + name + " {\n" + program.value().text + "}\n";
  };
  for (const DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kInt64, DType::kInt32, DType::kInt16, DType::kInt8, DType::kUInt8})
    add(all_scalar_ops(dtype), gpu_target());
  for (const TargetInfo& target : targets)
    for (const HostCase& c : target.traits.blocks_meet ? std::span<const HostCase>(kBlockCases) : kCases)
      for (const Kernel& kernel : kernels_of(c.graph, target)) add(kernel, target);
  return text;
}

constexpr const char* kNoHiprtc = "GPU kernels for AMD: hiprtc was not found (apt-get install libamdhip64-dev)";

void expect_compiles(const runtime::GpuCompiler& compiler, std::initializer_list<const char*> architectures,
                     const std::vector<TargetInfo>& targets) {
  const std::string source = everything(targets);
  for (const char* architecture : architectures) {
    const auto code = compiler.compile(source, architecture);
    EXPECT_TRUE(code.ok()) << architecture << ": " << code.error().message.substr(0, 4000);
    if (code.ok()) {
      EXPECT_NE(code.value().find("\x7f" "ELF"), std::string::npos);
    }
  }
}

TEST(SlowGpu, KernelsCompileForAmd) {
  const auto compiler = runtime::GpuCompiler::find(runtime::GpuVendor::kAmd);
  if (!compiler) FJ_NOT_TESTED(kNoHiprtc);
  expect_compiles(*compiler.value(), {"gfx90a", "gfx1030"}, {gpu_target(), tiny_gpu()});
}

// No package provides NVRTC: it comes with CUDA builds of torch.
TEST(Gpu, KernelsCompileForNvidia) {
  const auto compiler = runtime::GpuCompiler::find(runtime::GpuVendor::kNvidia);
  if (!compiler) FJ_NOT_TESTED_HERE("GPU kernels for NVIDIA: NVRTC was not found");
  expect_compiles(*compiler.value(), {"sm_90"}, {gpu_target(), tiny_gpu(), meeting_gpu()});
}

TEST(Gpu, AKernelThatDoesNotCompileIsAnErrorWithTheLog) {
  const auto compiler = runtime::GpuCompiler::find(runtime::GpuVendor::kAmd);
  if (!compiler) FJ_NOT_TESTED(kNoHiprtc);
  const auto code = compiler.value()->compile("this is no program", "gfx90a");
  ASSERT_FALSE(code.ok());
  EXPECT_NE(code.error().message.find("error"), std::string::npos) << code.error().message;
}

// Without an AMD GPU no driver starts, so nothing else would find a misspelt name.
TEST(Gpu, TheLibrariesOfAmdHaveEveryEntryPoint) {
  std::vector<void*> libraries;
  for (const char* name : {"libhiprtc.so", "libamdhip64.so"})
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) libraries.push_back(library);
  if (libraries.empty()) FJ_NOT_TESTED(kNoHiprtc);
  for (const char* name : {
#define RTC_ENTRY(field, signature, cuda_name, hip_name) hip_name,
#define DRIVER_ENTRY(field, signature, cuda_name, hip_name) hip_name,
#include "runtime/gpu_driver.def"
#undef RTC_ENTRY
#undef DRIVER_ENTRY
       })
    EXPECT_TRUE(std::any_of(libraries.begin(), libraries.end(), [&](void* library) {
      return dlsym(library, name) != nullptr;
    })) << name;
}

TEST(Gpu, SeveralPointsInOrderHaveNoGpuForm) {
  const char* const text = R"(graph @f(%x : f32[8, 4], %i : i64[n], %y : f32[n, 4]) {
    %0 = index_put %x, [%i], %y : f32[8, 4]
    return %0
  })";
  for (const int64_t points : {1, 2}) {
    std::string graph = text;
    for (size_t at = graph.find("[n"); at != std::string::npos; at = graph.find("[n"))
      graph.replace(at + 1, 1, std::to_string(points));
    size_t made = 0, failed = 0;
    for (const Kernel& kernel : kernels_of(graph))  // of the CPU
      ++(emit_hip(kernel, gpu_target()).ok() ? made : failed);
    EXPECT_EQ(failed, points == 1 ? 0 : 1) << graph;
    EXPECT_GT(made + failed, 0U);
  }
}

}  // namespace
}  // namespace framejit::inductor::testing
