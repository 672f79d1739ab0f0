// bfloat16 bit for bit: stores of every number that it has, of NaN with any bits, and of values between two numbers;
// reductions of bfloat16 and of wider numbers.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

#include "inductor/cpu/jit.h"
#include "tests/unit/inductor/plan_runner.h"

namespace framejit::inductor {
namespace {

constexpr int64_t kRows = 16, kColumns = 4099, kCount = kRows * kColumns;  // all bit patterns, and tails
constexpr VectorLevel kLevels[] = {VectorLevel::kAvx512, VectorLevel::kAvx2, VectorLevel::k128};

using Body = std::function<InstId(NestBuilder& b, InstId x, InstId y)>;
using Number = std::function<float(float x, float y)>;

float widened(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t nearest(float f) {
  const auto bits = std::bit_cast<uint32_t>(f);
  return static_cast<uint16_t>(std::isnan(f) ? 0x7FC0 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

bool same(uint16_t a, uint16_t b) { return a == b || (std::isnan(widened(a)) && std::isnan(widened(b))); }

enum class Scratch { kNone,
                     kAsItLies,
                     kBackwards };

// z = body(x, y) by rows. With scratch, x + y goes through a separate nest, and `body` gets it as both operands.
Kernel kernel_of(const Body& body, DType in, Scratch scratch = Scratch::kNone) {
  Kernel kernel;
  for (uint32_t k = 0; k < 2; ++k) kernel.buffers.push_back({k, in, false, false, 0});
  kernel.buffers.push_back({2, DType::kBFloat16, true, false, 0});
  if (scratch != Scratch::kNone) kernel.buffers.push_back({3, DType::kFloat32, true, true, kColumns});
  kernel.outer = {SymExpr(kRows)};
  kernel.extent = kRows;
  NestBuilder first(0, "first", {SymExpr(kRows), SymExpr(kColumns)});
  const SymExpr at = first.dim(0) * SymExpr(kColumns) + first.dim(1);
  const InstId x = first.load(0, in, {at}), y = first.load(1, in, {at});
  if (scratch == Scratch::kNone) {
    first.store(2, {at}, body(first, x, y));
    kernel.nests.push_back({first.build(), {1}, 1});
    return kernel;
  }
  first.store(3, {first.dim(1)}, first.scalar(ScalarOp::k_add, {x, y}));
  NestBuilder second(0, "second", {SymExpr(kRows), SymExpr(kColumns)});
  const SymExpr from = scratch == Scratch::kBackwards ? SymExpr(kColumns - 1) - second.dim(1) : second.dim(1);
  const InstId sum = second.load(3, DType::kFloat32, {from});
  second.store(2, {at}, body(second, sum, sum));
  kernel.nests.push_back({first.build(), {1}, 1});
  kernel.nests.push_back({second.build(), {1}, 1});
  return kernel;
}

template <class Element>
using ToFloat = std::function<float(Element)>;

template <class Element>
void check(const char* what, const Kernel& kernel, const std::vector<Element>& x, const std::vector<Element>& y,
           const Number& number, const ToFloat<Element>& value, bool backwards = false) {
  for (const VectorLevel level : kLevels) {
    if (!is_available(level)) continue;
    auto jit = CpuJit::create(level).take();
    const auto compiled = jit->load(jit->compile(kernel).take().code, {}).take();
    std::vector<uint16_t> z(kCount);
    void* buffers[3] = {const_cast<Element*>(x.data()), const_cast<Element*>(y.data()), z.data()};
    ASSERT_EQ(compiled.function(buffers, nullptr, nullptr, 0, kRows), 0);
    for (size_t k = 0; k < kCount; ++k) {
      const size_t column = k % kColumns, from = backwards ? k - column + kColumns - 1 - column : k;
      const uint16_t expected = nearest(number(value(x[from]), value(y[from])));
      ASSERT_TRUE(same(z[k], expected)) << what << " of " << std::hex << x[k] << " and " << y[k] << " is " << z[k]
                                        << " and not " << expected << ", level " << static_cast<int>(level);
    }
  }
}

// x takes all patterns in order; y visits them in another order, and takes special values half of the time.
void check_bf16(const char* what, const Body& body, const Number& number, Scratch scratch = Scratch::kNone) {
  std::vector<uint16_t> x(kCount), y(kCount);
  constexpr uint16_t kSpecial[] = {0,      0x8000, 1,      0x8001, 0x7F80, 0xFF80, 0x7F81, 0xFF81,
                                   0x7FC0, 0xFFC0, 0x7FFF, 0xFFFF, 0x7F7F, 0xFF7F, 0x3F80, 0x0080};
  for (size_t k = 0; k < kCount; ++k) {
    x[k] = static_cast<uint16_t>(k);
    y[k] = k % 2 == 0 ? static_cast<uint16_t>(k * 25173 + 13849) : kSpecial[k / 2 % std::size(kSpecial)];
  }
  const Kernel kernel = kernel_of(body, DType::kBFloat16, scratch);
  check<uint16_t>(what, kernel, x, y, number, widened, scratch == Scratch::kBackwards);
}

Body binary(ScalarOp op) {
  return [op](NestBuilder& b, InstId x, InstId y) { return b.scalar(op, {x, y}); };
}
Body unary(ScalarOp op) {
  return [op](NestBuilder& b, InstId x, InstId) { return b.scalar(op, {x}); };
}
float larger(float x, float y) { return std::isnan(x) || std::isnan(y) ? NAN : std::max(x, y); }
float smaller(float x, float y) { return std::isnan(x) || std::isnan(y) ? NAN : std::min(x, y); }

TEST(Bf16, ResultsOfEveryNumberAreRoundedToTheNearest) {
  check_bf16("itself", [](NestBuilder&, InstId x, InstId) { return x; }, [](float x, float) { return x; });
  check_bf16("add", binary(ScalarOp::k_add), [](float x, float y) { return x + y; });
  check_bf16("sub", binary(ScalarOp::k_sub), [](float x, float y) { return x - y; });
  check_bf16("mul", binary(ScalarOp::k_mul), [](float x, float y) { return x * y; });
  check_bf16("div", binary(ScalarOp::k_div), [](float x, float y) { return x / y; });
  check_bf16("neg", unary(ScalarOp::k_neg), [](float x, float) { return -x; });
  check_bf16("abs", unary(ScalarOp::k_abs), [](float x, float) { return std::fabs(x); });
  check_bf16("sqrt", unary(ScalarOp::k_sqrt), [](float x, float) { return std::sqrt(x); });
  check_bf16("maximum", binary(ScalarOp::k_maximum), larger);
  check_bf16("minimum", binary(ScalarOp::k_minimum), smaller);
}

TEST(Bf16, NanOfFunctionsStaysNan) {
  const Number nan = [](float x, float) { return std::isnan(x) ? x : 1.0f; };
  const ScalarOp functions[] = {ScalarOp::k_exp,   ScalarOp::k_exp2, ScalarOp::k_expm1, ScalarOp::k_log,
                                ScalarOp::k_log1p, ScalarOp::k_tanh, ScalarOp::k_erf,   ScalarOp::k_sigmoid,
                                ScalarOp::k_sin,   ScalarOp::k_tan,  ScalarOp::k_floor, ScalarOp::k_round};
  for (const ScalarOp op : functions)  // 1 if it takes a number
    check_bf16(
        graph::row_of(op).name,
        [&](NestBuilder& b, InstId x, InstId) {
          const InstId of_x = b.scalar(op, {x});
          return b.scalar(ScalarOp::k_select, {b.scalar(ScalarOp::k_eq, {x, x}), b.constant(1, DType::kFloat32), of_x});
        },
        nan);
}

TEST(Bf16, RoundingsInsideOfABody) {
  const auto round = [](float f) { return widened(nearest(f)); };
  const Body rounded_product = [](NestBuilder& b, InstId x, InstId y) {
    const InstId product = b.round_to(b.scalar(ScalarOp::k_mul, {x, y}), DType::kBFloat16);
    return b.scalar(ScalarOp::k_add, {product, y});
  };
  const Body rounded_load = [](NestBuilder& b, InstId x, InstId y) {
    return b.scalar(ScalarOp::k_mul, {b.scalar(ScalarOp::k_round_bf16, {x}), y});
  };
  const Body with_numbers = [](NestBuilder& b, InstId x, InstId) {
    const InstId relu = b.scalar(ScalarOp::k_maximum, {x, b.constant(0, DType::kFloat32)});
    return b.scalar(ScalarOp::k_add, {relu, b.constant(0.1f, DType::kFloat32)});
  };
  check_bf16("(x * y rounded) + y", rounded_product, [&](float x, float y) { return round(x * y) + y; });
  check_bf16("x rounded, times y", rounded_load, [](float x, float y) { return x * y; });
  check_bf16("relu(x) + 0.1", with_numbers, [](float x, float) { return larger(x, 0) + 0.1f; });
}

TEST(Bf16, ThroughScratch) {
  const Body itself = [](NestBuilder&, InstId x, InstId) { return x; };
  const Body heavier = [](NestBuilder& b, InstId x, InstId) {  // less unrolled
    const InstId far = b.scalar(ScalarOp::k_tanh, {b.scalar(ScalarOp::k_tanh, {b.scalar(ScalarOp::k_tanh, {x})})});
    return b.scalar(ScalarOp::k_select, {b.scalar(ScalarOp::k_eq, {x, x}), x, far});
  };
  const Number sum = [](float x, float y) { return x + y; };
  check_bf16("x + y", itself, sum, Scratch::kAsItLies);
  check_bf16("x + y or not", heavier, sum, Scratch::kAsItLies);
  check_bf16("x + y backwards", itself, sum, Scratch::kBackwards);
}

// NaN whose bits are those that bfloat16 lacks, and values around halves of the last bit.
TEST(Bf16, OfFloat32OfAnyBits) {
  constexpr uint32_t kLow[] = {0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
  const Body itself = [](NestBuilder&, InstId x, InstId) { return x; };
  for (const uint32_t low : kLow) {
    std::vector<uint32_t> x(kCount), y(kCount, 0x80000000);
    for (size_t k = 0; k < kCount; ++k) x[k] = static_cast<uint32_t>(k % 65536) << 16 | low;
    const auto value = [](uint32_t bits) { return std::bit_cast<float>(bits); };
    check<uint32_t>("itself", kernel_of(itself, DType::kFloat32), x, y, [](float a, float) { return a; }, value);
    check<uint32_t>(
        "abs", kernel_of(unary(ScalarOp::k_abs), DType::kFloat32), x, y, [](float a, float) { return std::fabs(a); },
        value);
    check<uint32_t>(
        "through scratch", kernel_of(itself, DType::kFloat32, Scratch::kAsItLies), x, y,
        [](float a, float b) { return a + b; }, value);
  }
}

// --- reductions, along the lanes and across them ---

// With few different values, so that there are ties; every fourth row or column has NaN, which wins.
double reduced(ReduceOp op, const std::vector<float>& values) {
  double best = values[0], sum = 0;
  size_t at = 0;
  const bool max = op == ReduceOp::kMax || op == ReduceOp::kArgmax;
  for (size_t k = 0; k < values.size(); ++k) {
    sum += values[k];
    if (std::isnan(best) || !(std::isnan(values[k]) || (max ? values[k] > best : values[k] < best))) continue;
    best = values[k];
    at = k;
  }
  return op == ReduceOp::kSum ? sum : is_position(op) ? static_cast<double>(at)
                                                      : best;
}

void check_reduction(ReduceOp op, DType in, int64_t points, int64_t length, bool along_lanes) {
  std::string what = std::to_string(static_cast<int>(op)) + (along_lanes ? " of rows " : " of columns ") +
                     std::to_string(points) + " x " + std::to_string(length);
  what += " of dtype " + std::to_string(static_cast<int>(in));
  Kernel kernel;
  const DType out = is_position(op) ? DType::kInt64 : value_dtype(in);
  kernel.buffers = {{0, in, false, false, 0}, {1, out, true, false, 0}};
  NestBuilder b(0, "n", {SymExpr(1), SymExpr(points)}, {SymExpr(length)});
  const SymExpr index = along_lanes ? b.dim(1) * SymExpr(length) + b.dim(2) : b.dim(2) * SymExpr(points) + b.dim(1);
  b.store(1, {b.dim(1)}, b.reduce(op, b.load(0, in, {index})));
  kernel.outer = {SymExpr(1)};
  kernel.nests.push_back({b.build(), {1, 2}, along_lanes ? size_t{2} : size_t{1}});
  const auto bytes = static_cast<size_t>(row_of(in).bytes);
  std::vector<char> x(static_cast<size_t>(points * length) * bytes);
  std::vector<std::vector<float>> values(static_cast<size_t>(points));
  for (size_t p = 0; p < values.size(); ++p)
    for (size_t k = 0; k < static_cast<size_t>(length); ++k) {
      const size_t mixed = (p * 7919 + k * 104729) % 1009;
      float value = static_cast<float>(mixed % 7) - 3;
      if (!is_float(in)) value += p % 4 == 3 ? static_cast<float>(k) : 0;  // ascending: each one is the best so far
      const bool has_specials = is_float(in) && op != ReduceOp::kSum;
      if (has_specials && p % 4 == 3 && mixed % 50 == 0) value = mixed % 100 == 0 ? -NAN : NAN;
      if (has_specials && p % 4 == 2 && mixed % 50 == 0) value = mixed % 100 == 0 ? -INFINITY : INFINITY;
      values[p].push_back(value);
      graph::ScalarValue number;
      is_float(in) ? number.f = value : number.i = static_cast<int64_t>(value);
      graph::store_element(
          in,
          x.data() + bytes * (along_lanes ? p * static_cast<size_t>(length) + k : k * static_cast<size_t>(points) + p),
          number);
    }
  for (const VectorLevel level : kLevels) {
    if (!is_available(level)) continue;
    auto jit = CpuJit::create(level).take();
    const auto compiled = jit->load(jit->compile(kernel).take().code, {}).take();
    std::vector<char> y(values.size() * 8);
    void* buffers[2] = {x.data(), y.data()};
    ASSERT_EQ(compiled.function(buffers, nullptr, nullptr, 0, 1), 0);
    for (size_t p = 0; p < values.size(); ++p) {
      const auto element = graph::load_element(out, y.data() + p * static_cast<size_t>(row_of(out).bytes));
      const double got = is_float(out) ? element.f : static_cast<double>(element.i), expected = reduced(op, values[p]);
      ASSERT_TRUE(got == expected || (std::isnan(got) && std::isnan(expected)))
          << what << ": " << got << " and not " << expected << " at " << p << ", level " << static_cast<int>(level);
    }
  }
}

TEST(SlowReductions, OfAnyLengthAndPlace) {
  for (const DType in : {DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64})
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kArgmax, ReduceOp::kArgmin})
      for (const bool along_lanes : {true, false})
        for (const auto& [points, length] : {std::pair{16, 1000}, {260, 33}, {7, 64}, {64, 5}, {3, 2049}})
          check_reduction(op, in, points, length, along_lanes);
}

TEST(Bf16, RowsThatPassThroughScratch) {
  for (const char* columns : {"32", "70", "999", "4096"}) {
    const std::string rows = std::string("bf16[5, ") + columns + "]", row = std::string("bf16[") + columns + "]";
    testing::check_graph("graph @f(%x : " + rows + ") {\n  %0 = _softmax %x, 1, false : " + rows + "\n  return %0\n}",
                         {.tolerance = 1e-2});
    testing::check_graph("graph @f(%x : " + rows + ", %y : " + rows + ", %w : " + row +
                             ") {\n  %0 = add.Tensor %x, %y, 1 : " + rows + "\n  %1, %2, %3 = native_layer_norm %0, [" +
                             columns + "], %w, none, 1e-05 : " + rows + ", bf16[5, 1], bf16[5, 1]\n  return %1\n}",
                         {.tolerance = 2e-2});
  }
}

}  // namespace
}  // namespace framejit::inductor
