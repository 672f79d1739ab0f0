// Elementary functions of the CPU emitter, swept over float32 in double reference: within 2 ulp, right at the edges.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "inductor/cpu/jit.h"

namespace framejit::inductor {
namespace {

// A flat kernel y[i] = op(x[i]).
Kernel unary_kernel(ScalarOp op) {
  NestBuilder b(0, "n", {SymExpr(1 << 16)});
  const InstId x = b.load(0, DType::kFloat32, {b.dim(0)});
  const InstId y = b.scalar(op, {x});
  b.store(1, {b.dim(0)}, y);
  Kernel kernel;
  kernel.buffers = {{0, DType::kFloat32, false, false, 0}, {1, DType::kFloat32, true, false, 0}};
  kernel.is_flat = true;
  kernel.extent = 1 << 16;
  kernel.nests.push_back({b.finish(), {0}, 0});
  return kernel;
}

float from_bits(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

double reference(ScalarOp op, float x) {
  const graph::ScalarValue v[1] = {{.f = x}};
  return graph::evaluate(op, DType::kFloat64, v).f;
}

// Distance in units of the result's last place; denormal results count in the smallest denormal.
double ulps(float got, double expected) {
  const float rounded = static_cast<float>(expected);
  if (std::isnan(got) || std::isnan(rounded)) return std::isnan(got) == std::isnan(rounded) ? 0 : 1e9;
  if (got == rounded) return 0;
  if (std::isinf(got) || std::isinf(rounded)) return std::fabs(rounded) > 3.4e38 && std::fabs(got) > 3.4e38 ? 1 : 1e9;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(rounded == 0 ? 1e-45f : rounded), -126) - 23);
  return std::fabs(got - expected) / unit;
}

void sweep(VectorLevel level, ScalarOp op, double limit) {
  auto jit = CpuJit::create(level);
  ASSERT_TRUE(jit.ok());
  auto compiled = jit.value()->compile(unary_kernel(op));
  ASSERT_TRUE(compiled.ok()) << compiled.error().message;
  constexpr uint32_t kBlock = 1 << 16;
  std::vector<float> x(kBlock), y(kBlock);
  void* buffers[2] = {x.data(), y.data()};
  double worst = 0;
  float worst_at = 0;
  // Every 509th float (a prime stride: all exponents, varied mantissas), then the edges.
  for (uint64_t start = 0; start < (uint64_t{1} << 32); start += uint64_t{kBlock} * 509) {
    for (uint32_t k = 0; k < kBlock; ++k) x[k] = from_bits(static_cast<uint32_t>(start + uint64_t{k} * 509));
    ASSERT_EQ(compiled.value().function(buffers, nullptr, nullptr, 0, kBlock), 0);
    for (uint32_t k = 0; k < kBlock; ++k) {
      const double error = ulps(y[k], reference(op, x[k]));
      if (error <= worst) continue;
      worst = error;
      worst_at = x[k];
    }
  }
  EXPECT_LE(worst, limit) << graph::row_of(op).name << " at " << worst_at << ", level " << static_cast<int>(level);
  std::vector<float> edges{0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1.0f, -1.0f, 1e-45f, -1e-45f, 3.4e38f, -3.4e38f, 88.72284f, -103.97f};
  std::copy(edges.begin(), edges.end(), x.begin());
  compiled.value().function(buffers, nullptr, nullptr, 0, static_cast<int64_t>(edges.size()));
  for (size_t k = 0; k < edges.size(); ++k)
    EXPECT_LE(ulps(y[k], reference(op, edges[k])), limit) << graph::row_of(op).name << " of " << edges[k] << " is " << y[k];
}

TEST(Math, WithinTwoUlp) {
  for (const VectorLevel level : {VectorLevel::kHost, VectorLevel::kAvx2, VectorLevel::k128}) {
    if (!is_available(level)) continue;
    for (const ScalarOp op : {ScalarOp::k_exp, ScalarOp::k_log, ScalarOp::k_tanh, ScalarOp::k_erf, ScalarOp::k_exp2, ScalarOp::k_expm1, ScalarOp::k_log1p,
                              ScalarOp::k_log2, ScalarOp::k_log10, ScalarOp::k_sigmoid, ScalarOp::k_sqrt})
      sweep(level, op, op == ScalarOp::k_sigmoid ? 2.5 : 2.0);
  }
}

TEST(Math, IdenticalKernelsAreCompiledOnce) {
  auto jit = CpuJit::create();
  ASSERT_TRUE(jit.ok());
  auto first = jit.value()->compile(unary_kernel(ScalarOp::k_exp)), second = jit.value()->compile(unary_kernel(ScalarOp::k_exp));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first.value().function, second.value().function);
  EXPECT_EQ(jit.value()->statistics().kernels, 1);
  EXPECT_EQ(jit.value()->statistics().reused, 1);
}

}  // namespace
}  // namespace framejit::inductor
