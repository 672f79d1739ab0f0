// Choices by time, with plans that do nothing and a timer that reads its answers from a table.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <thread>

#include "inductor/autotune.h"
#include "inductor/compile.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/log.h"
#include "tests/parsers/graph_parser.h"
#include "tests/unit/inductor/plan_runner.h"

namespace framejit::inductor {
namespace {

// Two choices in place of the table's, for any graph. A plan's name says what it was made with: "u1 t0".
const std::vector<ChoiceRow>& rows() {
  static const auto yes = [](const graph::Graph&) { return true; };
  static const std::vector<ChoiceRow> two = {
      {"unroll", yes, {"cost_model", "half", "twice"}, [](Choices& c, size_t k) { c.unroll = static_cast<Unroll>(k); }},
      {"threads", yes, {"cost_model", "fewer", "more"}, [](Choices& c, size_t k) {
         c.threads = static_cast<Threads>(k);
       }}};
  return two;
}
std::string name_of(const Choices& c) {
  return "u" + std::to_string(static_cast<int>(c.unroll)) + " t" + std::to_string(static_cast<int>(c.threads));
}

class TableTimer : public graph::PlanTimer {
 public:
  explicit TableTimer(std::map<std::string, double> milliseconds) : milliseconds_(std::move(milliseconds)) {}
  Result<double> seconds(const std::shared_ptr<const runtime::Executable>& plan, double most) override {
    ++runs[plan->name];
    if (on_run) on_run(plan->name, runs[plan->name]);
    const auto at = milliseconds_.find(plan->name);
    const double took =
        (at == milliseconds_.end() ? 10 : at->second) / 1000 * (factor ? factor(plan->name, runs[plan->name]) : 1);
    if (took < 0) return Error{Reason::not_timed, "index out of range"};
    return took > most ? std::numeric_limits<double>::infinity() : took;
  }

  std::map<std::string, int> runs;
  std::function<void(const std::string&, int)> on_run;
  std::function<double(const std::string&, int)> factor;

 private:
  std::map<std::string, double> milliseconds_;
};

struct Outcome {
  std::string plan, error, chosen;
  std::vector<std::string> made, lines;
  std::map<std::string, int> runs;
};

constexpr const char* kGraph = "graph @f(%x : f32[4]) {\n  %0 = relu %x : f32[4]\n  return %0\n}";

Outcome tune(TableTimer timer, double budget = 60, const std::string& text = kGraph,
             const std::function<Result<runtime::Executable>(const Choices&)>& plan_of = {}) {
  Outcome out;
  const auto graph = graph::parse_graph(text);
  EXPECT_TRUE(graph.ok());
  const uint64_t listener = log::add_listener([&](const log::Event& event) {
    if (log::channel_of(event.kind) == log::Channel::autotune)
      out.lines.push_back(log::to_text(event).substr(sizeof "[framejit autotune]"));
  });
  const MakePlan make = [&](const Choices& choices) -> Result<runtime::Executable> {
    out.made.push_back(name_of(choices));
    if (plan_of) return plan_of(choices);
    runtime::Executable plan;
    plan.name = name_of(choices);
    return plan;
  };
  Choices chosen;
  const auto plan = choose_by_time(graph.value(), rows(), make, reference_target(), timer, budget, chosen);
  out.chosen = name_of(chosen);
  log::remove_listener(listener);
  (plan.ok() ? out.plan : out.error) = plan.ok() ? plan.value().name : name_of(plan.error().reason);
  out.runs = timer.runs;
  return out;
}

TEST(Autotune, TheFastestOfEachChoiceIsTaken) {
  const Outcome out = tune(TableTimer({{"u0 t0", 10}, {"u1 t0", 9}, {"u2 t0", 8}, {"u2 t1", 7}, {"u2 t2", 9}}));
  EXPECT_EQ(out.plan, "u2 t1");
  EXPECT_EQ(out.chosen, "u2 t1");
  EXPECT_EQ(out.lines, (std::vector<std::string>{"unroll: twice of cost_model 10 ms, half 9 ms, twice 8 ms",
                                                 "threads: fewer of cost_model 8 ms, fewer 7 ms, more 9 ms"}));
  EXPECT_EQ(out.made, (std::vector<std::string>{"u0 t0", "u1 t0", "u2 t0", "u2 t1", "u2 t2", "u2 t1"}))
      << "the winner is made again, for the log";
}

TEST(Autotune, ThreePercentAreNoDifference) {
  EXPECT_EQ(tune(TableTimer({{"u0 t0", 10}, {"u1 t0", 9.8}, {"u0 t2", 9.71}})).plan, "u0 t0");
  EXPECT_EQ(tune(TableTimer({{"u0 t0", 10}, {"u1 t0", 9.6}})).plan, "u1 t0");
}

TEST(Autotune, DisturbedRoundsDoNotDecide) {
  TableTimer in_few({{"u1 t0", 10.2}});
  in_few.factor = [](const std::string& plan, int run) { return plan == "u1 t0" && run % 9 == 0 ? 0.5 : 1; };
  EXPECT_EQ(tune(std::move(in_few)).plan, "u0 t0") << "the fastest run is no proof";
  TableTimer in_half({});
  in_half.factor = [](const std::string& plan, int run) { return plan == "u1 t0" && run % 5 < 3 ? 0.9 : 1; };
  EXPECT_EQ(tune(std::move(in_half)).plan, "u0 t0") << "more than half of the rounds may be chance";
  TableTimer in_most({{"u0 t0", 8}});
  in_most.factor = [](const std::string& plan, int run) { return plan == "u0 t0" && run % 9 != 0 ? 1.5 : 1; };
  EXPECT_EQ(tune(std::move(in_most)).plan, "u0 t0") << "left alone, the plan that stands is faster";
}

TEST(Autotune, ClearLosersRunThreeTimes) {
  const Outcome out = tune(TableTimer({{"u1 t0", 30}}));
  EXPECT_EQ(out.runs.at("u1 t0"), 3);
  EXPECT_GT(out.runs.at("u2 t0"), 20);
  EXPECT_EQ(out.lines.at(0), "unroll: cost_model of cost_model 10 ms, half 30 ms (2 runs), twice 10 ms");
}

TEST(Autotune, EqualPlansDoNotRun) {
  const Outcome out = tune(TableTimer({}), 60, kGraph, [](const Choices& c) -> Result<runtime::Executable> {
    if (c.unroll == Unroll::twice) return Error{Reason::code_generation, "no registers"};
    runtime::Executable plan;
    plan.name = c.threads == Threads::more ? "f" : "g";
    auto code = std::make_shared<runtime::KernelCode>();
    code->id = runtime::content_id("hand", c.threads == Threads::fewer ? "other" : "one");
    plan.kernels.push_back(std::move(code));
    plan.forward.steps.emplace_back(runtime::KernelStep{});
    return plan;
  });
  EXPECT_EQ(out.lines.at(0), "unroll not timed: half is cost_model, twice refused: no registers");
  EXPECT_NE(out.lines.at(1).find("fewer 10 ms, more 10 ms"), std::string::npos)
      << "machine code and texts count: " << out.lines.at(1);
}

TEST(Autotune, TheBudgetEndsIt) {
  const Outcome none = tune(TableTimer({}), 0);
  EXPECT_EQ(none.made.size(), 1u);
  EXPECT_TRUE(none.runs.empty());
  EXPECT_EQ(none.lines, (std::vector<std::string>{"unroll not timed: the budget of 0 ms is used up",
                                                  "threads not timed: the budget of 0 ms is used up"}));

  const auto sleeping = [](const Choices& c) -> Result<runtime::Executable> {
    std::this_thread::sleep_for(std::chrono::milliseconds(40));  // compiling counts
    runtime::Executable plan;
    plan.name = name_of(c);
    return plan;
  };
  const Outcome little = tune(TableTimer({{"u1 t0", 1}}), 0.05, kGraph, sleeping);
  EXPECT_EQ(little.plan, "u0 t0");
  EXPECT_EQ(little.lines.at(0).find("unroll not timed: the budget of 50 ms "), 0u) << little.lines.at(0);

  TableTimer slow({{"u1 t0", 1}});
  slow.on_run = [](const std::string&, int) { std::this_thread::sleep_for(std::chrono::milliseconds(30)); };
  EXPECT_EQ(tune(std::move(slow), 0.2).plan, "u0 t0") << "three runs are no proof";
  EXPECT_EQ(tune(TableTimer({{"u0 t0", 3000}, {"u1 t0", 1}}), 2).plan, "u0 t0") << "the plan that stands has no time";
  EXPECT_EQ(tune(TableTimer({{"u1 t0", 3000}, {"u2 t0", 3000}}), 2).lines.at(0),
            "unroll not timed: half given up: no time left, twice given up: no time left");
  const Outcome long_loser = tune(TableTimer({{"u1 t0", 3000}, {"u2 t0", 8}}), 2);
  EXPECT_EQ(long_loser.plan, "u2 t0");
  EXPECT_EQ(long_loser.lines.at(0), "unroll: twice of cost_model 10 ms, twice 8 ms; half given up: no time left");
}

TEST(Autotune, WhatFailsIsNotChosen) {
  const Outcome all = tune(TableTimer({{"u0 t0", -1}, {"u1 t0", 1}}));
  EXPECT_EQ(all.plan, "u0 t0");
  EXPECT_EQ(all.lines, (std::vector<std::string>{"unroll not timed: index out of range",
                                                 "threads not timed: index out of range"}));
  const Outcome one = tune(TableTimer({{"u1 t0", -1}, {"u2 t0", 8}}));
  EXPECT_EQ(one.plan, "u2 t0");
  EXPECT_EQ(one.lines.at(0), "unroll: twice of cost_model 10 ms, twice 8 ms; half given up: index out of range");
}

bool g_is_interrupted = false;

TEST(Autotune, ASignalEndsIt) {
  set_interrupt_reader([] { return g_is_interrupted; });
  TableTimer timer({});
  timer.on_run = [](const std::string& plan, int run) { g_is_interrupted = plan == "u0 t1" && run == 4; };
  const Outcome out = tune(std::move(timer));
  g_is_interrupted = false;
  EXPECT_EQ(out.error, "interrupted");
  EXPECT_EQ(out.runs.at("u0 t1"), 4);
  EXPECT_EQ(tune(TableTimer({}), 60, kGraph, [](const Choices& c) -> Result<runtime::Executable> {
              if (c.unroll == Unroll::half) return Error{Reason::interrupted, "a signal"};
              return runtime::Executable{};
            }).error,
            "interrupted");
  set_interrupt_reader(nullptr);
}

TEST(Autotune, WhatDoesMoreThanComputeIsNotTimed) {
  const auto declare = [](const char* name, std::vector<std::string> args, uint32_t flags) {
    graph::OpDef op;
    op.name = name;
    op.arg_names = std::move(args);
    op.flags = flags;
    graph::declare_op(std::move(op));
  };
  declare("autotune_test_attention", {"query", "dropout_p"}, graph::kRandom);
  declare("mine::op", {"x"}, 0);
  declare("autotune_test_write", {"x"}, graph::kMutates);
  const auto line_of = [](const std::string& call) {
    const Outcome out =
        tune(TableTimer({{"u1 t0", 1}}), 60, "graph @f(%x : f32[4]) {\n  %0 = " + call + " : f32[4]\n  return %0\n}");
    EXPECT_EQ(out.plan, out.runs.empty() ? "u0 t0" : "u1 t0");
    return out.lines.at(0);
  };
  EXPECT_EQ(line_of("rand_like %x"), "graph f not timed: rand_like draws random numbers");
  EXPECT_EQ(line_of("autotune_test_write %x"), "graph f not timed: autotune_test_write writes an argument");
  EXPECT_EQ(line_of("mine::op %x"), "graph f not timed: mine::op may have other effects");
  EXPECT_EQ(line_of("autotune_test_attention %x, 0.1"),
            "graph f not timed: autotune_test_attention draws random numbers");
  EXPECT_EQ(line_of("autotune_test_attention %x, 0.0").substr(0, 13), "unroll: half ");
  EXPECT_EQ(line_of("autotune_test_attention %x").substr(0, 13), "unroll: half ");
}

// The table's own rows: for a graph with all choices, each alternative gives the interpreter's results.
TEST(SlowChoices, EveryAlternativeComputesTheSame) {
  const char* const text = R"(graph @f(%x : f32[40, 3000], %y : f32[3000], %i : i64[40]) {
    %0 = exp %x : f32[40, 3000]
    %1 = sum.dim_IntList %0, [1], true, none : f32[40, 1]
    %2 = div.Tensor %0, %1 : f32[40, 3000]
    %3 = mul.Tensor %2, %y : f32[40, 3000]
    %4 = sum.dim_IntList %x, [0, 1], false, none : f32[]
    %5 = amax %x, [1], false : f32[40]
    %6 = add.Tensor %i, 1, 1 : i64[40]
    %7 = var.correction %x, [1], 0, false : f32[40]
    return %3, %4, %5, %6, %7
  })";
  for (const ChoiceRow& row : choice_rows())
    for (size_t k = 0; k < row.alternatives.size(); ++k) {
      testing::CheckOptions options;
      row.pick(options.choices, k);
      testing::check_graph(text, options);
    }
}

TEST(Choices, AreTextAndBack) {
  EXPECT_EQ(text_of(Choices()), "");
  for (const ChoiceRow& row : choice_rows())
    for (size_t k = 0; k < row.alternatives.size(); ++k) {
      Choices choices = choices_of("unroll=twice");
      row.pick(choices, k);
      const Choices back = choices_of(text_of(choices));
      for (const ChoiceRow& other : choice_rows())
        EXPECT_EQ(other.picked(back), other.picked(choices)) << row.name << "=" << row.alternatives[k];
    }
  EXPECT_EQ(text_of(choices_of("threads=more, of=another, unroll=never")), "threads=more");
}

// The first alternative that makes another plan is the faster one.
class OtherIsFaster final : public graph::PlanTimer {
 public:
  Result<double> seconds(const std::shared_ptr<const runtime::Executable>& plan, double) override {
    const std::string text = runtime::print(*plan);
    if (first_.empty()) first_ = text;
    return text == first_ ? 0.01 : 0.001;
  }

 private:
  std::string first_;
};

TEST(Choices, WhatWasDecidedHoldsForThePlanWithDerivedValues) {
  const auto graph = graph::parse_graph(R"(graph @f(%x : f32[4096, 256], %w : f32[256, 256]) {
    %0 = mul.Tensor %w, 2.0 : f32[256, 256]
    %1 = mm %x, %0 : f32[4096, 256]
    %2 = relu %1 : f32[4096, 256]
    return %2
  })");
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  const std::vector<bool> weights = {false, true};
  const auto derived = [&](graph::Backend& backend, const std::string& decided) {
    const auto made = backend.derive(graph.value(), weights, decided);
    EXPECT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(made.value().derived.size(), 1u);
    return runtime::print(made.value());
  };
  const auto backend = make_inductor_backend();
  OtherIsFaster timer;
  std::string decided = "from before";
  ASSERT_TRUE(backend->compile_timed(graph.value(), timer, decided).ok());
  ASSERT_NE(decided.find('='), std::string::npos) << decided;
  const auto told = make_inductor_backend({.choices = choices_of(decided)});
  EXPECT_EQ(derived(*backend, decided), derived(*told, ""));
  EXPECT_NE(derived(*backend, decided), derived(*backend, "")) << "the choice makes no other plan";
}

TEST(Choices, TheTableSaysWhatTheyAreFor) {
  const auto applying = [](const std::string& call) {
    std::string names;
    const auto graph = graph::parse_graph(
        "graph @f(%x : f32[1, 8, 9, 9], %w : f32[4, 8, 3, 3], %a : bf16[4, 4]) {\n  " + call + "\n  return %0\n}");
    EXPECT_TRUE(graph.ok()) << graph.error().message;
    for (const ChoiceRow& row : choice_rows()) {
      EXPECT_GE(row.alternatives.size(), 2u) << row.name;
      EXPECT_EQ(row.alternatives[0], "cost_model") << row.name;
      if (row.applies(graph.value())) names += row.name + " ";
    }
    return names;
  };
  EXPECT_EQ(applying("%0 = relu %x : f32[1, 8, 9, 9]"), "threads unroll ");
  EXPECT_EQ(applying("%0 = mm %a, %a : bf16[4, 4]"), "wide_products products threads unroll ");
  EXPECT_EQ(applying("%0 = convolution %x, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1 : f32[1, 4, 7, 7]"),
            "memory_formats threads unroll ");
}

}  // namespace
}  // namespace framejit::inductor
