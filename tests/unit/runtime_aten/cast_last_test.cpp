// The kernel that casts weights into channels_last compiles where a compiler is found.
#include "runtime/aten/cast_last.h"

#include <gtest/gtest.h>

#include "runtime/gpu_driver.h"
#include "tests/unit/not_tested.h"

namespace framejit::runtime {
namespace {

void expect_compiles(GpuVendor vendor, std::initializer_list<const char*> architectures) {
  const auto compiler = GpuCompiler::find(vendor);
  if (!compiler.ok()) FJ_NOT_TESTED_HERE("the kernel that casts weights: no compiler was found");
  for (const char* architecture : architectures)
    for (const bool is_bf16 : {false, true}) {
      const auto code = compiler.value()->compile(cast_last_source(is_bf16), architecture);
      EXPECT_TRUE(code.ok()) << architecture << ": " << code.error().message;
    }
}

TEST(CastLast, CompilesForAmd) { expect_compiles(GpuVendor::kAmd, {"gfx90a", "gfx1030"}); }
TEST(CastLast, CompilesForNvidia) { expect_compiles(GpuVendor::kNvidia, {"sm_75", "sm_90"}); }

}  // namespace
}  // namespace framejit::runtime
