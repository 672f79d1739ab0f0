// inductor/autotune.cpp — rounds of runs, and when a difference counts.
//
// In each round every plan runs once, and each round begins with another plan, so that disturbances of the machine hit
// all plans alike. A plan counts as faster if it is faster by kMargin in three quarters of the rounds, which rules out
// chance, and also in the fastest run. Other processes may slow down plans with several threads more than others; the
// fastest run shows the undisturbed time.
#include "inductor/autotune.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "graph/node_values.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/log.h"

namespace framejit::inductor {
namespace {

constexpr double kMargin = 0.97;
constexpr size_t kLeastRounds = 5, kMostRounds = 41;
constexpr size_t kTrialRounds = 2;
constexpr double kHopeless = 1.5;  // a plan that is this much slower in every trial round is not run again

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Why a graph must not run more often than the program runs it; "" if it may.
std::string why_not(const graph::Graph& functional, const TargetInfo& target) {
  if (!target.traits.steps_end_in_order) return "its device keeps running after the call returns";
  for (const graph::Node& node : functional.nodes) {
    if (node.op->has(graph::kMutates)) return node.op->name + " writes an argument";
    if (graph::draws_numbers(node)) return node.op->name + " draws random numbers";
    if (node.op->name.find("::") != std::string::npos) return node.op->name + " may have other effects";
  }
  return "";
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.size() % 2 == 1 ? values[values.size() / 2]
                                : (values[values.size() / 2 - 1] + values[values.size() / 2]) / 2;
}

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g ms", seconds * 1000);
  return text;
}

struct Candidate {
  std::string name;
  size_t alternative = 0;
  std::shared_ptr<const runtime::Executable> plan;
  std::vector<double> times = {};
  bool is_out = false;
  double fastest() const { return *std::min_element(times.begin(), times.end()); }
};

class Tuner {
 public:
  Tuner(const graph::Graph& functional, const std::vector<ChoiceRow>& rows, const MakePlan& make,
        const TargetInfo& target, graph::PlanTimer& timer, double budget)
      : graph_(functional), target_(target), make_(make), timer_(timer), budget_(budget) {
    for (const ChoiceRow& row : rows)
      if (row.applies(functional)) rows_.push_back(&row);
  }

  Result<runtime::Executable> run() {
    FJ_TRY(runtime::Executable plan, make_({}));
    if (const std::string why = why_not(graph_, target_); !why.empty())
      return leave("graph " + graph_.name, why), std::move(plan);
    best_ = std::make_shared<const runtime::Executable>(std::move(plan));
    end_ = now() + budget_;
    bool is_changed = false;
    for (size_t r = 0; r < rows_.size(); ++r) {
      FJ_TRY(const bool changed,
             decide(*rows_[r], now() + std::max(end_ - now(), 0.0) / static_cast<double>(rows_.size() - r)));
      is_changed = is_changed || changed;
    }
    if (is_changed) return make_(chosen_);  // the same plan and kernels again: trials are not logged, this one is
    return *best_;
  }

  const Choices& chosen() const { return chosen_; }

 private:
  // Decides one choice by `until`, or later if there were too few rounds. Returns whether it replaces the cost model's
  // alternative.
  Result<bool> decide(const ChoiceRow& row, double until) {
    if (!failure_.empty()) return leave(row.name, failure_);
    if (now() >= until) return leave(row.name, "the budget of " + milliseconds(budget_) + " is used up");
    notes_.clear();
    FJ_TRY(std::vector<Candidate> all, candidates(row, until));
    if (all.size() == 1) return leave(row.name, notes_);
    FJ_TRY_VOID(run_rounds(all, until));
    if (!failure_.empty()) return leave(row.name, failure_);
    const bool is_open =
        all[0].is_out || std::any_of(all.begin() + 1, all.end(), [](const Candidate& c) { return !c.is_out; });
    if (is_open && all[0].times.size() < kLeastRounds)
      return leave(row.name, "the budget of " + milliseconds(budget_) + " is too short for " +
                                 std::to_string(kLeastRounds) + " rounds");
    if (all[0].times.empty()) return leave(row.name, notes_);
    const Candidate& winner = winner_of(all);
    log_choice(row, all, winner);
    if (winner.alternative == 0) return false;
    row.pick(chosen_, winner.alternative);
    best_ = winner.plan;
    return true;
  }

  // The current plan, and those of the alternatives that differ from it and from each other.
  Result<std::vector<Candidate>> candidates(const ChoiceRow& row, double until) {
    std::vector<Candidate> all{{row.alternatives[0], 0, best_}};
    for (size_t k = 1; k < row.alternatives.size(); ++k) {
      FJ_TRY_VOID(stop_if_interrupted());
      if (now() >= until) {
        note(row.alternatives[k] + " not tried: no time left");
        continue;
      }
      Choices choices = chosen_;
      row.pick(choices, k);
      const log::Muted muted;
      auto made = make_(choices);
      if (!made.ok() && made.error().reason == Reason::interrupted) return made.error();
      if (!made.ok()) {
        note(row.alternatives[k] + " refused: " + made.error().message);
        continue;
      }
      const auto same =
          std::find_if(all.begin(), all.end(), [&](const Candidate& c) { return *c.plan == made.value(); });
      if (same != all.end()) note(row.alternatives[k] + " is " + same->name);
      else all.push_back({row.alternatives[k], k, std::make_shared<const runtime::Executable>(made.take())});
    }
    return all;
  }

  // The first run of a plan does not count: caches are cold, and libraries initialize themselves.
  Result<void> run_rounds(std::vector<Candidate>& all, double until) {
    for (size_t round = 0; round <= kMostRounds && !all[0].is_out && now() < (round <= kLeastRounds ? end_ : until);
         ++round) {
      for (size_t k = 0; k < all.size(); ++k) {
        Candidate& c = all[(round + k) % all.size()];
        if (c.is_out) continue;
        FJ_TRY_VOID(stop_if_interrupted());
        run_once(c, round > 0);
      }
      if (round == kTrialRounds && !all[0].is_out)
        for (Candidate& c : all) c.is_out = c.is_out || c.fastest() > kHopeless * all[0].fastest();
      if (std::all_of(all.begin() + 1, all.end(), [](const Candidate& c) { return c.is_out; })) return {};
    }
    return {};
  }

  // A plan that fails or exceeds the budget is out. If the current plan fails, no choice can be timed: their plans
  // would fail too.
  void run_once(Candidate& c, bool counts) {
    const auto run = timer_.seconds(c.plan, std::max(end_ - now(), 0.0));
    c.is_out = !run.ok() || !std::isfinite(run.value());
    if (!c.is_out && counts) c.times.push_back(run.value());
    if (!run.ok() && c.alternative == 0) failure_ = run.error().message;
    else if (c.is_out && c.alternative != 0)
      note(c.name + " given up: " + (run.ok() ? "no time left" : run.error().message));
  }

  static const Candidate& winner_of(const std::vector<Candidate>& all) {
    const Candidate* winner = &all[0];
    double least = kMargin;
    for (const Candidate& c : all) {
      if (&c == &all[0] || c.is_out) continue;
      const size_t rounds = std::min(c.times.size(), all[0].times.size());
      std::vector<double> ratios;
      for (size_t i = 0; i < rounds; ++i) ratios.push_back(c.times[i] / all[0].times[i]);
      std::sort(ratios.begin(), ratios.end());
      const double ratio = ratios[ratios.size() * 3 / 4];
      if (ratio < least && c.fastest() < kMargin * all[0].fastest()) winner = &c, least = ratio;
    }
    return *winner;
  }

  void log_choice(const ChoiceRow& row, const std::vector<Candidate>& all, const Candidate& winner) const {
    std::string text;
    for (const Candidate& c : all)
      if (!c.times.empty())
        text += (text.empty() ? "" : ", ") + c.name + " " + milliseconds(median(c.times)) +
                (c.is_out ? " (" + std::to_string(c.times.size()) + " runs)" : "");
    if (!notes_.empty()) text += "; " + notes_;
    log::emit(log::Kind::Choice, "", {{"choice", row.name}, {"winner", winner.name}, {"alternatives", text}});
  }

  bool leave(const std::string& what, const std::string& why) const {
    log::emit(log::Kind::NotTimed, "", {{"choice", what}, {"reason", why}});
    return false;
  }

  void note(const std::string& text) { notes_ += (notes_.empty() ? "" : ", ") + text; }

  const graph::Graph& graph_;
  const TargetInfo& target_;
  std::vector<const ChoiceRow*> rows_;
  const MakePlan& make_;
  graph::PlanTimer& timer_;
  const double budget_;
  double end_ = 0;
  Choices chosen_;
  std::shared_ptr<const runtime::Executable> best_;  // of chosen_
  std::string failure_;                            // of the current plan: without its time there is nothing to compare
                                                   // with
  std::string notes_;                              // on alternatives of the current choice
};

}  // namespace

Result<runtime::Executable> choose_by_time(const graph::Graph& functional, const std::vector<ChoiceRow>& rows,
                                           const MakePlan& make, const TargetInfo& target, graph::PlanTimer& timer,
                                           double budget, Choices& chosen) {
  Tuner tuner(functional, rows, make, target, timer, budget);
  auto plan = tuner.run();
  chosen = tuner.chosen();
  return plan;
}

}  // namespace framejit::inductor
