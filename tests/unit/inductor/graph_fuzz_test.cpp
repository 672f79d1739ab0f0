// Random graphs of pointwise ops, views and reductions: compiled, fused and not, compared with the interpreter. Seeded;
// the message has the text of a failing graph. FUZZ_ROUNDS sets how many run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <regex>

#include "graph/passes/pipeline.h"
#include "tests/parsers/graph_parser.h"
#include "tests/unit/inductor/fuzz_rounds.h"
#include "tests/unit/inductor/plan_runner.h"
#include "tests/unit/inductor/planted.h"

namespace framejit::inductor::testing {
namespace {

class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed) : random_(seed) {}

  std::string make() {
    shape_ = {1 + pick(5), 1 + pick(4), pick(4) == 0 ? 1 : 2 + pick(40)};
    std::string text = "graph @f(%x : f32" + sizes(shape_) + ", %y : f32" + sizes(shape_) + ", %row : f32[" +
                       std::to_string(shape_[2]) + "]) {\n";
    full_ = {"%x", "%y"};
    const int count = 3 + pick(9);
    for (int k = 0; k < count; ++k) text += line();
    text += "  return " + full_.back();
    for (size_t k = full_.size() - 1; k-- > std::max<size_t>(full_.size() - 4, 2);)
      text += ", " + full_[k];  // a value that nobody uses shows nothing
    for (const std::string& r : rows_) text += ", " + r;
    return text + "\n}\n";
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  static std::string sizes(const std::vector<int>& s) {
    std::string out = "[";
    for (size_t k = 0; k < s.size(); ++k) out += (k ? ", " : "") + std::to_string(s[k]);
    return out + "]";
  }
  std::string any() { return full_[static_cast<size_t>(pick(static_cast<int>(full_.size())))]; }
  std::string next() { return "%" + std::to_string(count_++); }

  std::string line() {
    const std::string type = " : f32" + sizes(shape_) + "\n";
    switch (pick(8)) {
      case 0: {
        static const char* kUnary[] = {"tanh", "neg", "abs", "relu", "sigmoid", "silu"};
        const std::string v = any(), r = next();
        full_.push_back(r);
        return "  " + r + " = " + kUnary[pick(6)] + " " + v + type;
      }
      case 1:
      case 2: {
        static const char* kBinary[] = {"add.Tensor @, #, 1", "sub.Tensor @, #, 1", "mul.Tensor @, #", "maximum @, #"};
        std::string op = kBinary[pick(4)];
        const std::string a = any(), b = pick(4) == 0 ? std::string("%row") : any();
        op.replace(op.find('@'), 1, a);
        op.replace(op.find('#'), 1, b);
        full_.push_back(next());
        return "  " + full_.back() + " = " + op + type;
      }
      case 3: {  // a row statistic, used and returned
        static const char* kReduce[] = {"amax @, [2], true", "mean.dim @, [2], true, none",
                                        "sum.dim_IntList @, [2], true, none", "amin @, [0, 2], true"};
        const int which = pick(4);
        std::string op = kReduce[which];
        op.replace(op.find('@'), 1, any());
        const std::string r = next(), used = next();
        rows_.push_back(r);
        const std::string other = any();
        full_.push_back(used);
        return "  " + r + " = " + op + " : f32" + sizes({which == 3 ? 1 : shape_[0], shape_[1], 1}) + "\n  " + used +
               " = sub.Tensor " + other + ", " + r + ", 1" + type;
      }
      case 4: {
        const std::string v = any();
        full_.push_back(next());
        return "  " + full_.back() + " = _softmax " + v + ", " + std::to_string(pick(3)) + ", false" + type;
      }
      case 5: {  // through a transposition and back
        const std::string v = any(), t = next(), e = next(), r = next();
        const std::string strides =
            "; " + std::to_string(shape_[2]) + ", " + std::to_string(shape_[1] * shape_[2]) + ", 1]";
        std::string turned = sizes({shape_[1], shape_[0], shape_[2]});
        turned.pop_back();
        full_.push_back(r);
        return "  " + t + " = permute " + v + ", [1, 0, 2] : f32" + turned + strides + "\n  " + e + " = exp " + t +
               " : f32" + turned + strides + "\n  " + r + " = permute " + e + ", [1, 0, 2]" + type;
      }
      case 6: {  // through a flat view
        const std::string v = any(), c = next(), f = next(), g = next(), r = next();
        const std::string flat = "[" + std::to_string(shape_[0] * shape_[1] * shape_[2]) + "]";
        full_.push_back(r);
        return "  " + c + " = clone " + v + ", none" + type + "  " + f + " = view " + c + ", " + flat + " : f32" +
               flat + "\n  " + g + " = mul.Tensor " + f + ", 0.5 : f32" + flat + "\n  " + r + " = view " + g + ", " +
               sizes(shape_) + type;
      }
      default: {
        const std::string a = any(), b = any(), c = any(), m = next(), r = next();
        full_.push_back(r);
        return "  " + m + " = lt.Tensor " + a + ", " + b + " : bool" + sizes(shape_) + "\n  " + r + " = where.self " +
               m + ", " + c + ", " + a + type;
      }
    }
  }

  std::mt19937 random_;
  std::vector<int> shape_;
  std::vector<std::string> full_, rows_;
  int count_ = 0;
};

constexpr int kGraphRounds = 12;
constexpr double kTolerance = 2e-4;

Result<Outputs> interpret(const std::string& text, uint32_t seed) {
  declare_ops();
  FJ_TRY(graph::Graph parsed, graph::parse_graph(text));
  FJ_TRY(const graph::Graph graph, graph::run_pipeline(std::move(parsed), true));
  return run_interpreted(graph, random_inputs(graph, {}, seed, 1), {});
}

// The largest of the finite values from `base`, or of `values` if `base` is empty.
double largest(const std::vector<double>& values, const std::vector<double>& base) {
  double most = 0;
  for (size_t k = 0; k < values.size(); ++k)
    if (std::isfinite(values[k])) most = std::max(most, std::fabs(values[k] - (base.empty() ? 0 : base[k])));
  return most;
}

// The text without outputs that consist mostly of rounding errors, such as the sum of differences from a mean: each
// order of evaluation gives other values. float64 shows which outputs these are. Empty: none is left.
std::string without_roundings(const std::string& text, uint32_t seed) {
  const auto rounded = interpret(text, seed),
             exact = interpret(std::regex_replace(text, std::regex("f32"), "f64"), seed);
  if (!rounded.ok() || !exact.ok()) return text;  // check_graph says why
  const size_t at = text.rfind("  return ");
  std::string left, names = text.substr(at + 9, text.rfind("\n}") - at - 9);
  std::regex comma(", ");
  size_t o = 0;
  for (std::sregex_token_iterator name(names.begin(), names.end(), comma, -1), end; name != end; ++name, ++o)
    if (largest(rounded.value().values[o], exact.value().values[o]) <=
        kTolerance / 32 * largest(exact.value().values[o], {}))
      left += (left.empty() ? "" : ", ") + name->str();
  return left.empty() ? left : text.substr(0, at) + "  return " + left + "\n}\n";
}

TEST(Fuzz, RandomGraphs) {
  for_each_seed(kGraphRounds, [](uint32_t seed) {
    const std::string text = without_roundings(RandomGraph(seed).make(), seed);
    if (!text.empty()) check_graph(text, {.tolerance = kTolerance, .seed = seed});
  });
}

TEST(Fuzz, OutputsThatAreRoundingsAreLeftOut) {
  const auto graph = [](const std::string& outputs) {
    return "graph @f(%x : f32[2, 9]) {\n  %0 = mean.dim %x, [1], true, none : f32[2, 1]\n  %1 = sub.Tensor %x, %0, 1 : "
           "f32[2, 9]\n"
           "  %2 = sum.dim_IntList %1, [1], true, none : f32[2, 1]\n  return " +
           outputs + "\n}\n";
  };
  EXPECT_EQ(without_roundings(graph("%1, %2, %0"), 1), graph("%1, %0"));
  EXPECT_EQ(without_roundings(graph("%2"), 1), "");
  int whole = 0;  // most graphs of the test stay unchanged
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    const std::string text = RandomGraph(seed).make();
    whole += without_roundings(text, seed) == text;
  }
  EXPECT_GE(whole, 90);
}

// --- planted defects ---

int first_seed_that_finds(const std::string& pattern, const std::string& wrong, const PlanChange& plan) {
  return seeds_until_found(kGraphRounds, ", expected ", [&](uint32_t seed) {
    const std::string text = without_roundings(RandomGraph(seed).make(), seed);
    if (!text.empty())
      check_graph(text, {.tolerance = kTolerance,
                         .seed = seed,
                         .compiled = std::regex_replace(text, std::regex(pattern), wrong),
                         .plan = plan});
  });
}

TEST(Planted, GraphDefectsAreFound) {
  const struct {
    const char *name, *pattern, *wrong;  // of the graph's text
    PlanChange plan;
  } defects[] = {
      {"an add that subtracts", "add\\.Tensor", "sub.Tensor"},
      {"a relu or silu that lets negative numbers pass", " (relu|silu) ", " abs "},
      {"a largest that is the smallest", "amax", "amin"},
      {"a softmax over another dimension", "(_softmax \\S+,) 2", "$1 1"},
      {"a condition that is turned round", "where.self (\\S+), (\\S+), (\\S+)", "where.self $1, $3, $2"},
      {"a mask that misses the last lane", "^$", "", miss_the_last},
      {"a thread that begins one late", "^$", "", begin_one_late},
      {"memory that is shared by what lives at once", "^$", "", share_memory},
  };
  for (const auto& defect : defects) {
    SCOPED_TRACE(defect.name);
    EXPECT_GT(first_seed_that_finds(defect.pattern, defect.wrong, defect.plan), 0);
  }
  EXPECT_EQ(seeds_until_found(3, "",
                              [](uint32_t seed) {
                                check_graph(
                                    RandomGraph(seed).make(),
                                    {.tolerance = kTolerance, .seed = seed, .plan = [](runtime::Executable&) {}});
                              }),
            0);
}

}  // namespace
}  // namespace framejit::inductor::testing
