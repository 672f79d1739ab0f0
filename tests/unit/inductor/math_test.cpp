// Elementary functions of the CPU emitter in float32, compared with libm in float64: within 2 ulp; signs of zero, NaN
// and infinities exact.
//
// MATH_STRIDE=1 takes every float (minutes per function); each function prints its worst error per level, in ulp.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "inductor/cpu/jit.h"

namespace framejit::inductor {
namespace {

constexpr uint32_t kBlock = 1 << 16;
constexpr double kLimit = 2.0;

// Prime: all exponents, varied mantissas.
uint32_t stride() {
  const char* asked = std::getenv("MATH_STRIDE");
  return asked == nullptr ? 509 : static_cast<uint32_t>(std::atoi(asked));
}

// A flat kernel y[i] = op(x[i]...).
Kernel kernel_of(ScalarOp op) {
  const uint32_t arity = static_cast<uint32_t>(graph::row_of(op).arity);
  NestBuilder b(0, "n", {SymExpr(kBlock)});
  std::vector<InstId> operands;
  for (uint32_t k = 0; k < arity; ++k) operands.push_back(b.load(k, DType::kFloat32, {b.dim(0)}));
  const InstId y = arity == 1 ? b.scalar(op, {operands[0]}) : b.scalar(op, {operands[0], operands[1]});
  b.store(arity, {b.dim(0)}, y);
  Kernel kernel;
  for (uint32_t k = 0; k <= arity; ++k) kernel.buffers.push_back({k, DType::kFloat32, k == arity, false, 0});
  kernel.is_flat = true;
  kernel.extent = kBlock;
  kernel.nests.push_back({b.build(), {0}, 0});
  return kernel;
}

float from_bits(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

struct Reference {
  ScalarOp op;
  double (*unary)(double) = nullptr;
  double (*binary)(double, double) = nullptr;
};

// clang-format off
#define UNARY(name) {ScalarOp::k_##name, [](double x) -> double { return std::name(x); }}
#define BINARY(name) {ScalarOp::k_##name, nullptr, [](double x, double y) -> double { return std::name(x, y); }}
constexpr Reference kUnary[] = {
    UNARY(exp), UNARY(log), UNARY(log1p), UNARY(expm1), UNARY(tanh), UNARY(erf), {ScalarOp::k_sigmoid,
    [](double x) { return 1 / (1 + std::exp(-x)); }},
    UNARY(sin), UNARY(cos), UNARY(tan), UNARY(exp2), UNARY(log2), UNARY(log10), UNARY(sqrt), UNARY(erfc), UNARY(sinh),
    UNARY(cosh), UNARY(asinh),
    UNARY(acosh), UNARY(atanh), UNARY(asin), UNARY(acos), UNARY(atan)};
constexpr Reference kBinary[] = {BINARY(pow), BINARY(atan2), BINARY(hypot), BINARY(fmod)};
// clang-format on
#undef UNARY
#undef BINARY

void PrintTo(const Reference& reference, std::ostream* out) { *out << graph::row_of(reference.op).name; }
std::string name_of_reference(const ::testing::TestParamInfo<Reference>& info) {
  return graph::row_of(info.param.op).name;
}

// Distance in units of the result's last place; denormal results count in the smallest denormal.
double ulps(float got, double expected) {
  constexpr double kWrong = 1e9;
  const float rounded = static_cast<float>(expected);
  if (std::isnan(got) || std::isnan(rounded)) return std::isnan(got) == std::isnan(rounded) ? 0 : kWrong;
  if (got == rounded) return std::signbit(got) == std::signbit(rounded) ? 0 : kWrong;
  if (std::isinf(got) || std::isinf(rounded)) return kWrong;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(rounded == 0 ? 1e-45f : rounded), -126) - 23);
  return std::fabs(got - expected) / unit;
}

// One function compiled for each level that this CPU has.
class Functions {
 public:
  explicit Functions(const Reference& reference) : reference_(reference) {
    static constexpr std::pair<VectorLevel, const char*> kLevels[] = {
        {VectorLevel::kAvx512, "avx512"}, {VectorLevel::kAvx2, "avx2"}, {VectorLevel::k128, "generic"}};
    for (const auto& [level, name] : kLevels) {
      if (!is_available(level)) continue;
      auto jit = CpuJit::create(level).take();
      forms_.push_back({name, jit->load(jit->compile(kernel_of(reference.op)).take().code, {}).take()});
    }
  }

  // Runs all levels on these operands and keeps the worst errors.
  void check(const std::vector<float>& x, const std::vector<float>& y) {
    expected_.resize(x.size());
    result_.resize(kBlock);
    std::vector<float> left = x, right = y;  // the kernel takes its whole range
    left.resize(kBlock);
    right.resize(kBlock);
    for (size_t k = 0; k < x.size(); ++k)
      expected_[k] = y.empty() ? reference_.unary(x[k]) : reference_.binary(x[k], y[k]);
    for (Form& form : forms_) {
      void* buffers[3] = {left.data(), y.empty() ? result_.data() : right.data(), result_.data()};
      ASSERT_EQ(form.compiled.function(buffers, nullptr, nullptr, 0, kBlock), 0);
      for (size_t k = 0; k < x.size(); ++k) {
        if (result_[k] == static_cast<float>(expected_[k]) && result_[k] != 0) continue;
        const double error = ulps(result_[k], expected_[k]);
        if (error <= form.worst) continue;
        form.worst = error;
        form.at[0] = x[k];
        form.at[1] = y.empty() ? 0 : y[k];
        form.got = result_[k];
      }
    }
  }

  void finish(double limit) const {
    std::string line = graph::row_of(reference_.op).name;
    line.resize(8, ' ');
    for (const Form& form : forms_) {
      char text[96];
      std::snprintf(text, sizeof text, "  %s %.3f (at %.9g)", form.name, form.worst, form.at[0]);
      line += text;
      EXPECT_LE(form.worst, limit) << graph::row_of(reference_.op).name << " of " << form.at[0] << ", " << form.at[1]
                                   << " is " << form.got << ", level " << form.name;
    }
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }

 private:
  struct Form {
    const char* name;
    runtime::LoadedKernel compiled;
    double worst = 0;
    float at[2] = {0, 0}, got = 0;
  };
  const Reference reference_;
  std::vector<Form> forms_;
  std::vector<double> expected_;
  std::vector<float> result_;
};

const std::vector<float> kEdges = {0.0f,        1e-45f,      1.17549435e-38f,
                                   1e-20f,      0.25f,       0.5f,
                                   1.0f,        1.00000012f, 1.5f,
                                   2.0f,        3.0f,        4.0f,
                                   7.0f,        88.72284f,   103.97f,
                                   16777215.0f, 16777216.0f, 268435456.0f,
                                   3e9f,        1e30f,       3.4e38f,
                                   INFINITY,    NAN};

class OneOperand : public ::testing::TestWithParam<Reference> {};

TEST_P(OneOperand, IsWithinTwoUlp) {
  Functions f(GetParam());
  std::vector<float> x;
  for (float e : kEdges)
    for (float sign : {1.0f, -1.0f}) x.push_back(e * sign);
  f.check(x, {});
  x.resize(kBlock);
  for (uint64_t start = 0; start < (uint64_t{1} << 32) && !HasFatalFailure(); start += uint64_t{kBlock} * stride()) {
    for (uint32_t k = 0; k < kBlock; ++k) x[k] = from_bits(static_cast<uint32_t>(start + uint64_t{k} * stride()));
    f.check(x, {});
  }
  f.finish(kLimit);
}

INSTANTIATE_TEST_SUITE_P(Math, OneOperand, ::testing::ValuesIn(kUnary), name_of_reference);

class TwoOperands : public ::testing::TestWithParam<Reference> {};

// The edge cases in pairs; any two floats; moderate ones, where powers and quotients have digits; whole exponents of
// either sign.
TEST_P(TwoOperands, IsWithinTwoUlp) {
  Functions f(GetParam());
  std::vector<float> x, y;
  for (float a : kEdges)
    for (float b : kEdges)
      for (float sign_a : {1.0f, -1.0f})
        for (float sign_b : {1.0f, -1.0f}) {
          x.push_back(a * sign_a);
          y.push_back(b * sign_b);
        }
  f.check(x, y);
  x.resize(kBlock);
  y.resize(kBlock);
  std::mt19937_64 random(1);
  std::uniform_real_distribution<float> base(-8.0f, 8.0f), exponent(-40.0f, 40.0f);
  const uint32_t rounds = std::max(1u, 4 * 509 / stride());
  for (uint32_t round = 0; round < rounds && !HasFatalFailure(); ++round) {
    for (uint32_t k = 0; k < kBlock; ++k) {
      const uint64_t bits = random();
      const bool is_any = k % 4 == 0, is_positive = k % 4 == 1, is_whole = k % 4 == 2;
      x[k] = is_any ? from_bits(static_cast<uint32_t>(bits)) : is_positive ? std::fabs(base(random)) : base(random);
      y[k] = is_any     ? from_bits(static_cast<uint32_t>(bits >> 32))
             : is_whole ? std::round(exponent(random))
                        : exponent(random);
    }
    f.check(x, y);
  }
  f.finish(GetParam().op == ScalarOp::k_fmod ? 0 : kLimit);  // division-like functions have no rounding of their own
}

INSTANTIATE_TEST_SUITE_P(Math, TwoOperands, ::testing::ValuesIn(kBinary), name_of_reference);

TEST(Math, IdenticalKernelsAreCompiledOnce) {
  auto jit = CpuJit::create();
  ASSERT_TRUE(jit.ok());
  auto first = jit.value()->compile(kernel_of(ScalarOp::k_exp)),
       second = jit.value()->compile(kernel_of(ScalarOp::k_exp));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first.value().code, second.value().code);
  EXPECT_EQ(jit.value()->statistics().kernels, 1);
  EXPECT_EQ(jit.value()->statistics().reused, 1);
}

}  // namespace
}  // namespace framejit::inductor
