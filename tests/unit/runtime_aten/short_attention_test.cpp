// The kernel for attention over few keys compiles for NVIDIA's architectures, where NVRTC is found.
#include "runtime/aten/short_attention.h"

#include <gtest/gtest.h>

#include "runtime/gpu_driver.h"
#include "tests/unit/not_tested.h"

namespace framejit::runtime {
namespace {

// No package provides NVRTC: it comes with CUDA builds of torch.
TEST(ShortAttention, CompilesForNvidia) {
  const auto compiler = GpuCompiler::find(GpuVendor::kNvidia);
  if (!compiler.ok()) FJ_NOT_TESTED_HERE("the kernel for attention over few keys: NVRTC was not found");
  for (const char* architecture : {"sm_80", "sm_90"})
    for (const bool is_bf16 : {false, true}) {
      for (const auto& [keys, mask] : {std::pair{1, ShortMask::kAdded},
                                       {197, ShortMask::kNone},
                                       {208, ShortMask::kAdded},
                                       {256, ShortMask::kCausal}}) {
        const auto code = compiler.value()->compile(short_attention_source(keys, is_bf16, mask), architecture);
        EXPECT_TRUE(code.ok()) << architecture << " " << keys << ": " << code.error().message;
      }
    }
}

TEST(ShortAttention, TheSourceSaysWhatItIsFor) {
  const std::string source = short_attention_source(197, true, ShortMask::kAdded);
  EXPECT_TRUE(source.starts_with("#define KEYS 197\n#define IS_BF16 1\n#define MASK 1\n"));
}

}  // namespace
}  // namespace framejit::runtime
