// Kernels of matrix products, compared with the interpreter, at every vector level and on several threads: every edge
// of tiles and blocks.
#include <gtest/gtest.h>

#include "inductor/schedule/products.h"
#include "tests/parsers/graph_parser.h"
#include "tests/unit/inductor/plan_runner.h"

namespace framejit::inductor::testing {
namespace {

std::string linear(int rows, int terms, int columns) {
  const std::string m = std::to_string(rows), k = std::to_string(terms), n = std::to_string(columns);
  return "graph @f(%x : f32[" + m + ", " + k + "], %w : f32[" + n + ", " + k +
         "]) {\n  %0 = permute %w, [1, 0] : f32[" + k + ", " + n + "; 1, " + k + "]\n  %1 = mm %x, %0 : f32[" + m +
         ", " + n + "]\n  return %1\n}";
}

CheckOptions with_kernels(double tolerance, int kernels = -1) {
  CheckOptions options{.tolerance = tolerance, .kernels = kernels};
  options.choices.products = Products::kernels;
  return options;
}

TEST(Products, EveryEdge) {
  for (const auto& [rows, terms, columns] : {std::tuple{2, 2, 2},
                                             {4, 8, 3},
                                             {6, 16, 4},
                                             {5, 9, 4},
                                             {7, 70, 50},
                                             {13, 33, 97},
                                             {3, 4, 150},
                                             {64, 31, 101},
                                             {4, 40, 144},
                                             {5, 1031, 100},
                                             {8, 2100, 51}})
    check_graph(linear(rows, terms, columns), with_kernels(1e-5, 1));
}

TEST(Products, SumsInBlocks) {
  for (const int terms : {1024, 1025, 1031, 2047, 2100, 3072}) check_graph(linear(5, terms, 7), with_kernels(2e-5, 1));
}

TEST(Products, RowsByASymbol) {
  for (const int64_t rows : {2, 3, 4, 9, 50}) {
    CheckOptions options = with_kernels(1e-5, 1);
    options.symbols = {rows};
    check_graph(R"(graph @f(%x : f32[s0, 40], %w : f32[30, 40]) where s0 = 8 {
      %0 = permute %w, [1, 0] : f32[40, 30; 1, 40]
      %1 = mm %x, %0 : f32[s0, 30]
      return %1
    })", options);
  }
}

TEST(Products, OperandsInTheArenaAndResultsThatMove) {
  check_graph(R"(graph @f(%x : f32[12, 24], %w : f32[24, 24], %v : f32[24, 24]) {
    %0 = permute %w, [1, 0] : f32[24, 24; 1, 24]
    %1 = permute %v, [1, 0] : f32[24, 24; 1, 24]
    %2 = exp %x : f32[12, 24]
    %3 = mm %2, %0 : f32[12, 24]
    %4 = mm %3, %1 : f32[12, 24]
    %5 = mm %4, %0 : f32[12, 24]
    %6 = permute %5, [1, 0] : f32[24, 12; 1, 24]
    %7 = relu %6 : f32[24, 12; 1, 24]
    return %7
  })", with_kernels(2e-4));
}

bool is_taken(int rows, int terms, int columns, const TargetInfo& target,
              ProductRule rule = ProductRule::kWhereTheyPay) {
  declare_ops();
  const graph::Graph graph = graph::parse_graph(linear(rows, terms, columns)).value();
  LoweredGraph lowered = lower(graph, target);
  Schedule schedule = make_schedule(std::move(lowered.program), {}, target);
  take_products(graph, lowered.forms, {}, target, rule, schedule);
  EXPECT_EQ(schedule.steps.size(), 1u);
  return std::holds_alternative<Group>(schedule.steps[0]);
}

TargetInfo with_products(int64_t rows, int64_t terms) {
  TargetInfo target = reference_target(VectorLevel::kAvx2);
  target.costs.product_rows = rows;
  target.costs.product_terms = terms;
  return target;
}

TEST(Products, AreTakenWhereTheyPay) {
  const TargetInfo paid = with_products(384, 1280);
  EXPECT_TRUE(is_taken(128, 768, 3072, paid));
  EXPECT_FALSE(is_taken(128, 64, 3072, paid)) << "short sums";
  EXPECT_FALSE(is_taken(8192, 768, 3072, paid)) << "many rows";
  EXPECT_FALSE(is_taken(128, 3072, 768, paid)) << "long sums";
  EXPECT_TRUE(is_taken(16, 3072, 768, paid)) << "few rows";
  EXPECT_FALSE(is_taken(128, 768, 3072, with_products(32, 0))) << "a library that is faster";
  EXPECT_FALSE(is_taken(128, 768, 10, paid)) << "few columns";
  EXPECT_FALSE(is_taken(1, 768, 768, paid, ProductRule::kWherever)) << "a vector";
  EXPECT_TRUE(is_taken(2, 2, 2, paid, ProductRule::kWherever));
}

}  // namespace
}  // namespace framejit::inductor::testing
