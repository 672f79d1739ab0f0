// What scheduling costs per node of the graph: it grows linearly, for chains and for graphs whose nodes all read the
// same data.
#include <gtest/gtest.h>

#include <ctime>

#include "inductor/lowering/lower.h"
#include "inductor/schedule/schedule.h"
#include "tests/parsers/graph_parser.h"
#include "tests/unit/inductor/plan_runner.h"

namespace framejit::inductor::testing {
namespace {

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Blocks of five nodes: pointwise ops on the previous values, a sum of each row, its use; every fifth block a product.
std::string chain(int nodes) {
  std::string text = "graph @f(%x : f32[32, 64], %w : f32[64, 64], %b : f32[64]) {\n", last = "%x";
  int n = 0;
  const auto add = [&](const std::string& call, const std::string& type) {
    const std::string name = "%" + std::to_string(n++);
    text += "  " + name + " = " + call + " : f32" + type + "\n";
    return name;
  };
  while (n + 5 <= nodes) {
    const std::string base = n % 25 == 0 ? add("mm " + last + ", %w", "[32, 64]") : add("tanh " + last, "[32, 64]");
    const std::string moved = add("add.Tensor " + base + ", %b, 1", "[32, 64]");
    const std::string scaled = add("mul.Tensor " + moved + ", " + last, "[32, 64]");
    const std::string sum = add("sum.dim_IntList " + scaled + ", [1], true, none", "[32, 1]");
    last = add("sub.Tensor " + scaled + ", " + sum + ", 1", "[32, 64]");
  }
  return text + "  return " + last + "\n}\n";
}

// Pairs of nodes that read the single input: a scaled copy and its row sums, which are outputs.
std::string fan(int nodes) {
  std::string text = "graph @f(%x : f32[32, 64]) {\n", outputs;
  for (int n = 0; n + 2 <= nodes; n += 2) {
    const std::string scaled = "%" + std::to_string(n), sum = "%" + std::to_string(n + 1);
    text += "  " + scaled + " = mul.Tensor %x, " + std::to_string(n) + ".5 : f32[32, 64]\n  " + sum +
            " = sum.dim_IntList " + scaled + ", [1], true, none : f32[32, 1]\n";
    outputs += (n ? ", " : "") + sum;
  }
  return text + "  return " + outputs + "\n}\n";
}

struct Measured {
  LoopProgram program;
  int nodes;
  double best = 1e9;  // microseconds of processor time per node

  Measured(const std::string& text, int count) : nodes(count) {
    const auto graph = graph::parse_graph(text);
    EXPECT_TRUE(graph.ok()) << graph.error().message;
    program = lower(graph.value(), reference_target()).program;
  }
  void measure() {
    static const TargetInfo target = reference_target();
    const double start = cpu_seconds();
    const Schedule schedule = make_schedule(program, {}, target);
    const std::vector<bool> is_private = private_buffers(schedule);
    best = std::min(best, (cpu_seconds() - start) * 1e6 / nodes);
    EXPECT_FALSE(schedule.steps.empty());
  }
};

// If the cost were quadratic, twice the nodes would cost twice as much per node. On a busy machine the best of a few
// rounds can be far from the truth, so more rounds run as long as the answer is no.
void check_growth(const char* name, std::string (*make)(int)) {
  declare_ops();
  Measured sizes[] = {{make(500), 500}, {make(1000), 1000}, {make(2000), 2000}};
  const auto is_linear = [&] { return sizes[2].best <= 1.5 * sizes[1].best; };
  for (int round = 0; round < 3 || (round < 40 && !is_linear()); ++round)
    for (Measured& size : sizes) size.measure();
  std::printf("schedule of %s: %.1f us per node of 500, %.1f of 1000, %.1f of 2000\n", name, sizes[0].best,
              sizes[1].best, sizes[2].best);
  EXPECT_TRUE(is_linear());
}

TEST(ScheduleCost, GrowsWithTheNodesOfAChain) { check_growth("a chain", chain); }
TEST(ScheduleCost, GrowsWithTheNodesOfAFan) { check_growth("a fan", fan); }

}  // namespace
}  // namespace framejit::inductor::testing
