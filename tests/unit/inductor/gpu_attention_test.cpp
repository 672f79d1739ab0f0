// Attention of one query on an emulated GPU, with what makes its query and writes rows of its cache, against the same
// program written out.
#include <gtest/gtest.h>

#include "inductor/schedule/attention_nests.h"
#include "runtime/gpu_driver.h"
#include "tests/parsers/loop_parser.h"
#include "tests/unit/inductor/host_gpu_target.h"
#include "tests/unit/inductor/plan_runner.h"
#include "tests/unit/not_tested.h"

namespace framejit::inductor::testing {
namespace {

void declare_attention() {
  graph::OpDef op;
  op.name = "_scaled_dot_product_cudnn_attention";
  op.arg_names = {
      "query", "key", "value", "attn_bias", "compute_log_sumexp", "dropout_p", "is_causal", "return_debug_mask",
      "scale"};
  graph::declare_op(std::move(op));
}

TargetInfo attending_gpu(int processors) {
  TargetInfo target = gpu_target();
  target.traits.multiplies_few_rows = target.traits.blocks_meet = true;
  target.processors = processors;
  return target;
}

// Two batches of three heads; the second argument: how attention is computed from %q, %k, %v and %mask.
std::string plain(const std::string& keys, const std::string& dtype, const std::string& attention) {
  return "graph @f(%q : " + dtype + "[2, 3, 1, 32], %k : " + dtype + "[2, 3, " + keys + ", 32], %v : " + dtype +
         "[2, 3, " + keys + ", 32], %mask : " + dtype + "[2, 1, 1, " + keys + "]) {\n" + attention + "  return %out\n}";
}
std::string as_call(const std::string& dtype) {
  return "  %out = _scaled_dot_product_cudnn_attention %q, %k, %v, %mask, false, 0.0, false, false, 0.25 : " + dtype +
         "[2, 3, 1, 32]\n";
}
std::string written_out(const std::string& keys, const std::string& dtype) {
  return "  %q3 = view %q, [6, 1, 32] : " + dtype + "[6, 1, 32]\n  %q32 = _to_copy %q3, @f32 : f32[6, 1, 32]\n" +
         "  %k3 = view %k, [6, " + keys + ", 32] : " + dtype + "[6, " + keys +
         ", 32]\n  %k32 = _to_copy %k3, @f32 : f32[6, " + keys +
         ", 32]\n  %kt = permute %k32, [0, 2, 1] : f32[6, 32, " + keys + "; " + std::to_string(std::stoi(keys) * 32) +
         ", 1, 32]\n  %s = bmm %q32, %kt : f32[6, 1, " + keys + "]\n  %s4 = view %s, [2, 3, 1, " + keys +
         "] : f32[2, 3, 1, " + keys + "]\n  %scaled = mul.Tensor %s4, 0.25 : f32[2, 3, 1, " + keys +
         "]\n  %masked = add.Tensor %scaled, %mask, 1 : f32[2, 3, 1, " + keys +
         "]\n  %p = _softmax %masked, -1, false : f32[2, 3, 1, " + keys + "]\n  %p3 = view %p, [6, 1, " + keys +
         "] : f32[6, 1, " + keys + "]\n  %v3 = view %v, [6, " + keys + ", 32] : " + dtype + "[6, " + keys +
         ", 32]\n  %v32 = _to_copy %v3, @f32 : f32[6, " + keys + ", 32]\n  %o = bmm %p3, %v32 : f32[6, 1, 32]\n" +
         "  %o4 = view %o, [2, 3, 1, 32] : f32[2, 3, 1, 32]\n  %out = _to_copy %o4, @" + dtype + " : " + dtype +
         "[2, 3, 1, 32]\n";
}

#define NEEDS_COMPILER()                                  \
  if (std::system("c++ --version > /dev/null 2>&1") != 0) \
  FJ_NOT_TESTED("kernels on an emulated GPU: there is no C++ compiler (c++)")

TEST(SlowGpuAttention, OneQueryAgreesWithTheInterpreter) {
  NEEDS_COMPILER();
  declare_ops();
  declare_attention();
  int64_t together = 1;
  for (const int wave : {32, 64})
    for (const char* keys : {"2", "37", "200", "512"})
      for (const char* dtype : {"f32", "bf16"}) {
        SCOPED_TRACE(std::string(keys) + " keys, " + dtype + ", wave " + std::to_string(wave));
        HostGpuTarget target(wave, attending_gpu(wave));
        const double tolerance = dtype[0] == 'f' ? 2e-6 : 1e-2;
        check_graph_with(target, plain(keys, dtype, written_out(keys, dtype)),
                         {.tolerance = tolerance, .compiled = plain(keys, dtype, as_call(dtype))});
        together = std::max(together, target.most_together());
      }
  EXPECT_EQ(together, 8) << "blocks share the keys of a head";
}

// A rotation of pairs, rows of caches, and a mask that is looked up; four heads, 512 keys.
std::string decode(const std::string& attention) {
  return R"(graph @f(%keys : f32[1, 4, 512, 16], %values : f32[1, 4, 512, 16], %at : i64[1], %qkv : f32[1, 192], %turns : f32[512, 8, 2], %allowed : bool[512, 512]) {
  %turn = index.Tensor %turns, [%at] : f32[1, 8, 2]
  %cos = select.int %turn, 2, 0 : f32[1, 8; 16, 2]
  %sin = select.int %turn, 2, 1 : f32[1, 8; 16, 2; 1]
  %qk = slice.Tensor %qkv, 1, 0, 128, 1 : f32[1, 128; 192, 1]
  %pairs = view %qk, [8, 8, 2] : f32[8, 8, 2]
  %even = select.int %pairs, 2, 0 : f32[8, 8; 16, 2]
  %odd = select.int %pairs, 2, 1 : f32[8, 8; 16, 2; 1]
  %0 = mul.Tensor %even, %cos : f32[8, 8]
  %1 = mul.Tensor %odd, %sin : f32[8, 8]
  %2 = sub.Tensor %0, %1, 1 : f32[8, 8]
  %3 = mul.Tensor %odd, %cos : f32[8, 8]
  %4 = mul.Tensor %even, %sin : f32[8, 8]
  %5 = add.Tensor %3, %4, 1 : f32[8, 8]
  %6 = unsqueeze %2, 2 : f32[8, 8, 1]
  %7 = unsqueeze %5, 2 : f32[8, 8, 1]
  %8 = cat [%6, %7], 2 : f32[8, 8, 2]
  %turned = view %8, [8, 16] : f32[8, 16]
  %q2 = slice.Tensor %turned, 0, 0, 4, 1 : f32[4, 16]
  %k2 = slice.Tensor %turned, 0, 4, 8, 1 : f32[4, 16; 16, 1; 64]
  %v2 = slice.Tensor %qkv, 1, 128, 192, 1 : f32[1, 64; 192, 1; 128]
  %q = view %q2, [1, 4, 1, 16] : f32[1, 4, 1, 16]
  %kr = view %k2, [4, 1, 16] : f32[4, 1, 16; 16, 16, 1; 64]
  %vr = view %v2, [4, 1, 16] : f32[4, 1, 16; 16, 16, 1; 128]
  %k = index_put %keys, [none, none, %at], %kr, false : f32[1, 4, 512, 16]
  %v = index_put %values, [none, none, %at], %vr, false : f32[1, 4, 512, 16]
  %row = index.Tensor %allowed, [%at] : bool[1, 512]
  %row4 = view %row, [1, 1, 1, 512] : bool[1, 1, 1, 512]
  %zero = full [], 0.0, @f32 : f32[]
  %low = full [], -65504.0, @f32 : f32[]
  %mask = where.self %row4, %zero, %low : f32[1, 1, 1, 512]
)" + attention +
         R"(  update %keys = %k
  update %values = %v
  return %out
})";
}
constexpr const char* kDecodeCall =
    "  %out = _scaled_dot_product_cudnn_attention %q, %k, %v, %mask, false, 0.0, false, false, 0.25 : f32[1, 4, 1, "
    "16]\n";
constexpr const char* kDecodeWrittenOut = R"(  %q3 = view %q, [4, 1, 16] : f32[4, 1, 16]
  %k3 = view %k, [4, 512, 16] : f32[4, 512, 16]
  %kt = permute %k3, [0, 2, 1] : f32[4, 16, 512; 8192, 1, 16]
  %s = bmm %q3, %kt : f32[4, 1, 512]
  %s4 = view %s, [1, 4, 1, 512] : f32[1, 4, 1, 512]
  %scaled = mul.Tensor %s4, 0.25 : f32[1, 4, 1, 512]
  %masked = add.Tensor %scaled, %mask, 1 : f32[1, 4, 1, 512]
  %p = _softmax %masked, -1, false : f32[1, 4, 1, 512]
  %p3 = view %p, [4, 1, 512] : f32[4, 1, 512]
  %v3 = view %v, [4, 512, 16] : f32[4, 512, 16]
  %o = bmm %p3, %v3 : f32[4, 1, 16]
  %out = view %o, [1, 4, 1, 16] : f32[1, 4, 1, 16]
)";

TEST(SlowGpuAttention, RotationAndRowsOfTheCacheArePartOfTheKernel) {
  NEEDS_COMPILER();
  declare_ops();
  declare_attention();
  for (const int wave : {32, 64}) {
    HostGpuTarget target(wave, attending_gpu(16));
    check_graph_with(target, decode(kDecodeWrittenOut),
                     {.tolerance = 1e-5, .int_limit = 500, .compiled = decode(kDecodeCall)});
    EXPECT_EQ(target.most_together(), 4);
    EXPECT_EQ(target.count(), 1) << "kernels";
  }
}

// Whether a nest may run before an attention of three heads, whose keys are k[head, key, element].
bool may_come_before(const std::string& nest) {
  const auto parsed = parse_loops(
      "loops @f symbols 0 {\n  input q: f32[3, 8]\n  input k: f32[3, 5, 8]\n  input x: f32[3, 5, 8]\n"
      "  temp s: f32[3, 5]\n  output y: f32[3, 8]\n  output z: f32[3, 8]\n" +
      nest +
      "  nest n1 (i0: 3, i1: 5 | r0: 8) {\n    %0 = load q[i0, r0] : f32\n    %1 = load k[i0, i1, r0] : f32\n"
      "    %2 = mul %0, %1 : f32\n    %3 = reduce_sum %2 : f32\n    store s[i0, i1], %3\n  }\n"
      "  nest n2 (i0: 3, i1: 8 | r0: 5) {\n    %0 = load s[i0, r0] : f32\n    %1 = load k[i0, r0, i1] : f32\n"
      "    %2 = mul %0, %1 : f32\n    %3 = reduce_sum %2 : f32\n    store y[i0, i1], %3\n  }\n}\n");
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  std::vector<Nest> nests;
  for (const auto& item : parsed.value().items) nests.push_back(std::get<Nest>(item));
  return heads_first({nests[0]}, {nests[1]}, nests[2], 1, 0).has_value();
}

TEST(AttentionNests, WhatMayComeBefore) {
  const auto copy = [](const std::string& ranges, const std::string& from, const std::string& to) {
    return "  nest n0 (" + ranges + ") {\n    %0 = load " + from + " : f32\n    store " + to + ", %0\n  }\n";
  };
  EXPECT_TRUE(may_come_before(copy("i0: 3, i1: 8", "x[i0, 0, i1]", "k[i0, 2, i1]"))) << "a row of the cache";
  EXPECT_TRUE(may_come_before(copy("i0: 8, i1: 3", "x[i1, 0, i0]", "k[i1, 2, i0]"))) << "in another order";
  EXPECT_TRUE(may_come_before(copy("i0: 3, i1: 8", "x[2 - i0, 0, i1]", "q[i0, i1]"))) << "of another head's input";
  EXPECT_TRUE(may_come_before(copy("i0: 3, i1: 8", "x[i0, 0, i1]", "k[2 - i0, 2, i1]"))) << "each head writes all rows";
  EXPECT_FALSE(may_come_before(copy("i0: 3, i1: 8", "k[i0, 1, i1]", "k[i0, 2, i1]"))) << "it reads what it writes";
  EXPECT_FALSE(may_come_before(copy("i0: 3, i1: 8", "y[i0, i1]", "q[i0, i1]"))) << "it reads the result's memory";
}

// No package provides NVRTC: it comes with CUDA builds of torch.
TEST(GpuAttention, CompilesForNvidia) {
  const auto compiler = runtime::GpuCompiler::find(runtime::GpuVendor::kNvidia);
  if (!compiler) FJ_NOT_TESTED_HERE("GPU kernels for NVIDIA: NVRTC was not found");
  declare_ops();
  declare_attention();
  TargetInfo target = attending_gpu(132);
  target.traits.launches_overlap = true;
  for (const std::string& graph : {decode(kDecodeCall), plain("300", "bf16", as_call("bf16"))})
    for (const Kernel& kernel : kernels_of(graph, target)) {
      const auto program = emit_hip(kernel, target);
      ASSERT_TRUE(program.ok());
      const auto code = compiler.value()->compile(std::string(hip_prelude()) + program.value().text, "sm_90");
      EXPECT_TRUE(code.ok()) << code.error().message.substr(0, 4000);
    }
}

}  // namespace
}  // namespace framejit::inductor::testing
