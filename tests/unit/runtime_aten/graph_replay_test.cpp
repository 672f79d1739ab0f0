// tests/unit/runtime_aten/graph_replay_test.cpp — which calls are replayed, what is copied, whose memory outputs are.
//
// The machinery here uses the CPU as its device. A capture computes the outputs' memory and leaves inputs unchanged; a
// replay computes the same steps on the same memory.
#include "runtime/aten/graph_replay.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <set>
#include <thread>

#include "plan_fixture.h"
#include "runtime/aten/totals.h"
#include "runtime/base/config.h"

namespace framejit::runtime {
namespace {

class FakeGraphs final : public GraphMachinery {
 public:
  bool takes(c10::Device device) const override { return device.is_cpu() == takes_cpu; }
  void* stream_of(c10::Device) override { return stream; }
  bool is_capturing(void*) override { return is_captured; }
  bool is_busy() const override { return is_taken; }
  bool shares_memory(c10::Device, void* on) const override { return recorded_on.contains(on); }
  Result<void> copy(void* to, const void* from, size_t bytes, void*) override {
    std::memcpy(to, from, bytes);
    ++copies;
    return {};
  }
  Result<Captured> capture(c10::Device, void* on, const std::vector<at::Generator>&, const Work& work) override {
    ++captures;
    if (fails > 0) {
      --fails;
      throw std::runtime_error("an operation is not permitted when the stream is capturing");
    }
    std::vector<std::string> before;
    for (const at::Tensor& tensor : world)
      before.emplace_back(static_cast<const char*>(tensor.storage().data()), tensor.storage().nbytes());
    FJ_TRY(const std::vector<at::Tensor> outputs, work());
    for (size_t i = 0; i < world.size(); ++i)
      std::memcpy(world[i].storage().mutable_data(), before[i].data(), before[i].size());
    for (const at::Tensor& tensor : outputs)
      if (tensor.defined() && !is_of_world(tensor)) std::memset(tensor.mutable_data_ptr(), 0x5a, tensor.nbytes());
    struct Replayed final : Graph {
      Result<void> replay(void* where) override {
        EXPECT_EQ(where, stream);
        FJ_TRY(const std::vector<at::Tensor> again, work());
        for (size_t i = 0; i < again.size(); ++i)
          if (again[i].defined() && again[i].const_data_ptr() != first[i].const_data_ptr())
            std::memcpy(first[i].mutable_data_ptr(), again[i].const_data_ptr(), first[i].nbytes());
        return {};
      }
      Work work;
      std::vector<at::Tensor> first;
      void* stream = nullptr;
    };
    auto graph = std::make_shared<Replayed>();
    graph->work = work;
    graph->first = outputs;
    graph->stream = on;
    recorded_on.insert(on);
    return Captured{graph, outputs};
  }

  std::vector<at::Tensor> world;  // what a capture must not change
  bool takes_cpu = true, is_captured = false, is_taken = false;
  void* stream = nullptr;
  int captures = 0, copies = 0, fails = 0;
  std::set<void*> recorded_on;

 private:
  bool is_of_world(const at::Tensor& tensor) const {
    for (const at::Tensor& known : world)
      if (known.storage().is_alias_of(tensor.storage())) return true;
    return false;
  }
};

// A plan, its replays, and calls of it as PlannedCall makes them.
struct Program {
  explicit Program(PlanBuilder builder, std::vector<bool> weights = {}) : Program(builder.runner(), weights) {}
  explicit Program(PlanRunner the_runner, std::vector<bool> weights = {})
      : runner(std::move(the_runner)), replays("f", names(runner.plan().input_count), std::move(weights), graphs) {}

  static std::vector<std::string> names(uint32_t count) {
    std::vector<std::string> names;
    for (uint32_t i = 0; i < count; ++i) names.push_back("x" + std::to_string(i));
    return names;
  }

  std::vector<at::Tensor> call(const std::vector<at::Tensor>& inputs, std::vector<int64_t> symbols = {},
                               const std::vector<bool>& marked = {}) {
    std::vector<at::Tensor> outputs(runner.plan().outputs.size());
    std::vector<const at::Tensor*> pointers;
    for (const at::Tensor& input : inputs) pointers.push_back(&input);
    graphs.world = inputs;
    const ReplayCall as{runner, nullptr, nullptr, pointers.data(), symbols.data(), outputs.data()};
    how = "replayed";
    if (is_done(replays.replay(as))) return outputs;
    how = "recorded";
    if (is_done(replays.record(as, marked))) return outputs;
    how = "plain";
    return run(runner, inputs, symbols);
  }
  static bool is_done(const Result<bool>& result) {
    EXPECT_TRUE(result.ok());
    return result.ok() && result.value();
  }

  FakeGraphs graphs;
  PlanRunner runner;
  GraphReplay replays;
  std::string how;  // the last call ran
};

PlanBuilder sum_of_two(const at::Tensor& like) {
  PlanBuilder b;
  const BufferId x = b.input(like), w = b.input(like);
  b.returns({b.call("add.Tensor", {arg(x), arg(w), integer(1)})});
  return b;
}

TEST(GraphReplay, TheFirstCallIsPlainTheSecondRecordsTheNextOnesReplay) {
  Program p(sum_of_two(at::ones({5})), {false, true});
  const at::Tensor w = at::randn({5});
  for (const char* how : {"plain", "recorded", "replayed", "replayed"}) {
    const at::Tensor x = at::randn({5});
    const at::Tensor y = p.call({x, w})[0];
    EXPECT_EQ(p.how, how);
    EXPECT_TRUE(at::equal(y, x + w)) << how;
  }
  EXPECT_EQ(p.graphs.captures, 1);
}

TEST(GraphReplay, ValuesOfFixedInputsAreReadInEachReplay) {
  Program p(sum_of_two(at::ones({5})), {false, true});
  const at::Tensor x = at::randn({5}), w = at::randn({5});
  for (int i = 0; i < 4; ++i) {
    w.fill_(i);
    x.fill_(10 * i);
    EXPECT_TRUE(at::equal(p.call({x, w})[0], at::full({5}, 11.0 * i)));
  }
  EXPECT_EQ(p.how, "replayed");
  EXPECT_EQ(p.graphs.copies, 0);  // x had the same address in both calls
}

TEST(GraphReplay, AnInputThatMovesIsCopiedFromThenOn) {
  Program p(sum_of_two(at::ones({5})));
  const at::Tensor x = at::randn({5}), w = at::randn({5});
  std::vector<at::Tensor> kept;  // so that no address occurs twice
  for (int i = 0; i < 3; ++i) p.call({x, w});
  EXPECT_EQ(p.how, "replayed");
  for (const char* how : {"recorded", "replayed", "replayed"}) {
    kept.push_back(at::randn({5}));
    EXPECT_TRUE(at::equal(p.call({kept.back(), w})[0], kept.back() + w));
    EXPECT_EQ(p.how, how);
  }
  EXPECT_EQ(p.graphs.captures, 2);
  EXPECT_GE(p.graphs.copies, 3);
}

TEST(GraphReplay, OutputsThatAreKeptStayWhatTheyAre) {
  Program p(sum_of_two(at::ones({5})), {false, true});
  const at::Tensor w = at::ones({5});
  std::vector<at::Tensor> xs, ys;
  std::set<const void*> places;
  for (int i = 0; i < 12; ++i) {
    xs.push_back(at::randn({5}));
    ys.push_back(p.call({xs.back(), w})[0]);
    places.insert(ys.back().const_data_ptr());
  }
  EXPECT_EQ(p.how, "replayed");
  EXPECT_EQ(places.size(), ys.size());
  for (size_t i = 0; i < ys.size(); ++i) EXPECT_TRUE(at::equal(ys[i], xs[i] + w)) << i;
  EXPECT_EQ(p.graphs.captures, 2);  // the first hands out its own memory, the second copies
}

TEST(GraphReplay, AnOutputThatIsReplacedInEachCallTakesTwoRecordings) {
  Program p(sum_of_two(at::ones({5})), {false, true});
  const at::Tensor w = at::ones({5});
  at::Tensor y;
  for (int i = 0; i < 10; ++i) {
    const at::Tensor x = at::randn({5}), before = y.defined() ? y.clone() : y;
    const at::Tensor next = p.call({x, w})[0];
    if (before.defined()) {
      EXPECT_TRUE(at::equal(y, before));
    }
    EXPECT_TRUE(at::equal(next, x + w));
    y = next;
  }
  EXPECT_EQ(p.graphs.captures, 2);
}

// Both graphs share their memory, and the first one may run while an output of the second is in use.
TEST(GraphReplay, TheFirstGraphOfAStreamAloneHandsOutItsMemory) {
  Program p(sum_of_two(at::ones({5})), {false, true});
  const at::Tensor x = at::ones({5}), w = at::ones({5});
  p.call({x, w});
  const at::Tensor first = p.call({x, w})[0], second = p.call({x, w})[0];
  EXPECT_EQ(p.how, "recorded");
  EXPECT_EQ(p.graphs.copies, 1);
  p.call({x, w});
  EXPECT_EQ(p.how, "replayed");
  EXPECT_EQ(p.graphs.copies, 2);
}

TEST(GraphReplay, AViewOfAnOutputKeepsItToo) {
  Program p(sum_of_two(at::ones({6})), {false, true});
  const at::Tensor w = at::ones({6}), x = at::randn({6});
  for (int i = 0; i < 2; ++i) p.call({x, w});
  const at::Tensor part = p.call({x, w})[0].slice(0, 2, 4), before = part.clone();
  EXPECT_EQ(p.how, "replayed");
  const at::Tensor other = at::randn({6});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(p.call({other, w})[0], other + w));
  EXPECT_TRUE(at::equal(part, before));
}

TEST(GraphReplay, AnOutputThatIsResizedGivesItsMemoryBack) {
  Program p(sum_of_two(at::ones({5})), {false, true});
  const at::Tensor w = at::ones({5}), x = at::randn({5});
  for (int i = 0; i < 2; ++i) p.call({x, w});
  at::Tensor y = p.call({x, w})[0];
  y.resize_({5000});
  y.zero_();
  EXPECT_TRUE(at::equal(p.call({x, w})[0], x + w));
  EXPECT_EQ(p.how, "replayed");
  EXPECT_EQ(p.graphs.captures, 1);
}

TEST(GraphReplay, ModulesThatShareAPlanHaveRecordingsOfTheirOwn) {
  Program p(sum_of_two(at::ones({5})), {false, true});
  const at::Tensor x = at::randn({5}), first = at::ones({5}), second = at::full({5}, 7.0);
  for (int i = 0; i < 4; ++i)
    for (const at::Tensor& w : {first, second}) EXPECT_TRUE(at::equal(p.call({x, w})[0], x + w));
  EXPECT_EQ(p.how, "replayed");
  EXPECT_EQ(p.graphs.captures, 2);
}

TEST(GraphReplay, AMarkedInputIsNeverCopied) {
  Program p(sum_of_two(at::ones({5})));
  const at::Tensor x = at::randn({5});
  std::vector<at::Tensor> caches{at::randn({5}), at::randn({5})};
  p.call({x, caches[0]}, {}, {false, true});
  for (int i = 0; i < 4; ++i)
    EXPECT_TRUE(at::equal(p.call({x, caches[1]}, {}, {false, true})[0], x + caches[1]));
  EXPECT_EQ(p.how, "replayed");
  EXPECT_EQ(p.graphs.copies, 0);
}

TEST(GraphReplay, SizesHaveGraphsOfTheirOwnUpToTheLimit) {
  PlanBuilder b;
  const at::Tensor like = at::ones({4});
  b.plan().symbol_count = 1;
  b.plan().size_program = {{SizeOpcode::kSymbol, 0}};
  const BufferId x = b.input(like);
  b.plan().buffers[x].sizes = {Size{0, 0}};
  b.returns({b.call("mul.Tensor", {arg(x), arg(x)})});
  Program p(std::move(b));
  const int64_t limit = config().replays;
  int replayed = 0;
  // All inputs are kept alive: one in the memory of an earlier one would count as an input that stays where it is.
  std::vector<at::Tensor> kept;
  for (int round = 0; round < 3; ++round)
    for (int64_t n = 1; n <= limit + 3; ++n) {
      const at::Tensor& in = kept.emplace_back(at::randn({n}));
      EXPECT_TRUE(at::equal(p.call({in}, {n})[0], in * in)) << n;
      replayed += p.how == "replayed";
    }
  EXPECT_EQ(p.graphs.captures, limit);
  EXPECT_EQ(replayed, limit);
}

TEST(GraphReplay, AFixedInputThatIsWrittenIsWrittenOnceACallAndGetsAVersion) {
  PlanBuilder b;
  const at::Tensor x = at::zeros({5});
  const BufferId in = b.input(x);
  const BufferId twice = b.call("add.Scalar", {arg(in), {1.0}, integer(1)});
  b.plan().updates = {{0, twice}};
  b.returns({b.call("mul.Scalar", {arg(in), {2.0}})});
  Program p(std::move(b));
  for (int i = 0; i < 5; ++i) {
    const int64_t version = x._version();
    const at::Tensor y = p.call({x})[0];
    EXPECT_TRUE(at::equal(x, at::full({5}, i + 1.0))) << p.how;
    EXPECT_TRUE(at::equal(y, at::full({5}, 2.0 * i)));
    EXPECT_GT(x._version(), version);
  }
  EXPECT_EQ(p.how, "replayed");
}

TEST(GraphReplay, AWrittenInputThatMovesIsCopiedBack) {
  PlanBuilder b;
  const BufferId in = b.input(at::zeros({5}));
  b.call("add_.Tensor", {arg(in), arg(in), integer(1)}, {kNoBuffer});
  b.plan().updates = {{0, in}};
  b.returns({b.call("mul.Scalar", {arg(in), {3.0}})});
  Program p(std::move(b));
  std::vector<at::Tensor> kept;
  for (int i = 0; i < 5; ++i) {
    kept.push_back(at::full({5}, i + 1.0));
    const int64_t version = kept.back()._version();
    const at::Tensor y = p.call({kept.back()})[0];
    EXPECT_TRUE(at::equal(kept.back(), at::full({5}, 2 * (i + 1.0)))) << p.how;
    EXPECT_TRUE(at::equal(y, at::full({5}, 6 * (i + 1.0))));
    EXPECT_GT(kept.back()._version(), version);
  }
  EXPECT_EQ(p.how, "replayed");
}

TEST(GraphReplay, ViewsOfInputsAreOfTheCallsOwn) {
  PlanBuilder b;
  const at::Tensor like = at::zeros({2, 3});
  const BufferId in = b.input(like), view = b.buffer(at::zeros({3, 2}).t());
  b.plan().buffers[view].sizes = sizes_of({3, 2});
  b.plan().buffers[view].strides = sizes_of({1, 3});
  b.step(ViewStep{in, view});
  b.returns({view, b.call("neg", {arg(in)})});
  Program p(std::move(b));
  std::vector<at::Tensor> kept;
  for (int i = 0; i < 4; ++i) {
    kept.push_back(at::randn({4, 3}).slice(0, 1, 3));
    const auto outputs = p.call({kept.back()});
    EXPECT_TRUE(outputs[0].storage().is_alias_of(kept.back().storage())) << p.how;
    EXPECT_TRUE(at::equal(outputs[0], kept.back().t()));
    EXPECT_TRUE(at::equal(outputs[1], -kept.back()));
  }
  EXPECT_EQ(p.how, "replayed");
}

TEST(GraphReplay, ExpandedAndSlicedInputs) {
  for (const at::Tensor& like : {at::randn({1, 4}).expand({3, 4}), at::randn({3, 64}).slice(1, 0, 4)}) {
    PlanBuilder b;
    const BufferId in = b.input(like);
    b.returns({b.call("neg", {arg(in)})});
    Program p(std::move(b));
    std::vector<at::Tensor> kept;
    for (int i = 0; i < 4; ++i) {
      kept.push_back(like.stride(0) == 0 ? at::randn({1, 4}).expand({3, 4}) : at::randn({3, 64}).slice(1, 0, 4));
      EXPECT_TRUE(at::equal(p.call({kept.back()})[0], -kept.back()));
    }
    EXPECT_EQ(p.how, "replayed");
  }
}

TEST(GraphReplay, InsideOfTheProgramsOwnCaptureCallsArePlain) {
  Program p(sum_of_two(at::ones({5})), {false, true});
  const at::Tensor w = at::randn({5}), x = at::randn({5});
  for (int i = 0; i < 3; ++i) p.call({x, w});
  p.graphs.is_captured = true;
  EXPECT_TRUE(at::equal(p.call({x, w})[0], x + w));
  EXPECT_EQ(p.how, "plain");
  p.graphs.is_captured = false;
  p.call({x, w});
  EXPECT_EQ(p.how, "replayed");
}

TEST(GraphReplay, WhileAnotherThreadCapturesNothingIsRecorded) {
  Program p(sum_of_two(at::ones({5})), {false, true});
  const at::Tensor w = at::randn({5}), x = at::randn({5});
  p.graphs.is_taken = true;
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(at::equal(p.call({x, w})[0], x + w));
    EXPECT_EQ(p.how, "plain");
  }
  p.graphs.is_taken = false;
  p.call({x, w});
  EXPECT_EQ(p.how, "recorded");
}

TEST(GraphReplay, AThreadRecordsOnlyAfterACallThatItRanStepByStep) {
  Program p(sum_of_two(at::ones({5})), {false, true});
  const at::Tensor w = at::randn({5}), x = at::randn({5});
  p.call({x, w});
  std::vector<std::string> how;
  std::thread([&] {
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(at::equal(p.call({x, w})[0], x + w));
      how.push_back(p.how);
    }
  }).join();
  EXPECT_EQ(how, (std::vector<std::string>{"plain", "recorded", "replayed"}));
  p.call({x, w});
  EXPECT_EQ(p.how, "replayed");  // no matter which thread recorded it
}

TEST(GraphReplay, AStreamHasRecordingsOfItsOwn) {
  Program p(sum_of_two(at::ones({5})), {false, true});
  const at::Tensor w = at::randn({5}), x = at::randn({5});
  for (int i = 0; i < 3; ++i) p.call({x, w});
  int other = 0;
  p.graphs.stream = &other;
  for (const char* how : {"plain", "recorded", "replayed"}) {
    EXPECT_TRUE(at::equal(p.call({x, w})[0], x + w));
    EXPECT_EQ(p.how, how);
  }
}

TEST(GraphReplay, ACaptureThatFailsTwiceIsNotTriedAgain) {
  Program once(sum_of_two(at::ones({5})), {false, true}), twice(sum_of_two(at::ones({5})), {false, true});
  const at::Tensor w = at::randn({5}), x = at::randn({5});
  once.graphs.fails = 1;
  for (const char* how : {"plain", "plain", "recorded", "replayed"}) {
    EXPECT_TRUE(at::equal(once.call({x, w})[0], x + w));
    EXPECT_EQ(once.how, how);
  }
  twice.graphs.fails = 2;
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(at::equal(twice.call({x, w})[0], x + w));
    EXPECT_EQ(twice.how, "plain");
  }
  EXPECT_EQ(twice.graphs.captures, 2);
}

TEST(GraphReplay, WhatIsHandedOutOutlivesTheRecording) {
  at::Tensor y;
  const at::Tensor w = at::randn({5}), x = at::randn({5});
  const int64_t before = replay_totals().bytes;
  {
    Program p(sum_of_two(at::ones({5})), {false, true});
    for (int i = 0; i < 3; ++i) y = p.call({x, w})[0];
    EXPECT_GT(replay_totals().bytes, before);
  }
  EXPECT_EQ(replay_totals().bytes, before);
  EXPECT_TRUE(at::equal(y, x + w));
}

// --- what is not replayed ---

std::string refusal_of(PlanRunner runner, bool takes_cpu = true) {
  Program p(std::move(runner));
  p.graphs.takes_cpu = takes_cpu;
  c10::Device device(c10::kCPU);
  const auto refused = p.replays.refusal_of(p.runner, device);
  return refused ? row_of(refused->refusal).name : "";
}

TEST(GraphRefusals, OfPlans) {
  EXPECT_EQ(refusal_of(sum_of_two(at::ones({5})).runner()), "");
  EXPECT_EQ(refusal_of(sum_of_two(at::ones({5})).runner(), false), "no_device");
  PlanBuilder saves = sum_of_two(at::ones({5}));
  saves.plan().saves = {2};
  Executable executable = testing::executable_of(saves.plan());
  executable.saved = {saves.plan().buffers[2]};
  testing::HandLoader loader;
  auto bound = BoundExecutable::bind(std::move(executable), loader);
  ASSERT_TRUE(bound.ok()) << bound.error().message;
  EXPECT_EQ(refusal_of(PlanRunner(bound.take(), {})), "saves");
  for (const char* expected : {"cpu_input", "cpu_step", "several_devices"}) {
    const bool is_input = std::string(expected) == "cpu_input", is_step = std::string(expected) == "cpu_step";
    PlanBuilder b = sum_of_two(at::ones({5}));
    const BufferId other = b.call("neg", {arg(0)});
    for (BufferId i = 0; i < b.plan().buffers.size(); ++i)
      if (!(is_input && i == 0) && !(is_step && i == other)) b.plan().buffers[i].device = {1, 0};
    for (Step& step : b.plan().steps) std::get<ExternStep>(step).place.device = {1, 0};
    if (is_step) std::get<ExternStep>(b.plan().steps[1]).place.device = {};
    if (!is_input && !is_step) std::get<ExternStep>(b.plan().steps[1]).place.device = {1, 1};
    EXPECT_EQ(refusal_of(b.runner(), false), expected);
  }
}

TEST(GraphRefusals, AViewOfAnInputAsAnotherDtype) {
  PlanBuilder b;
  const BufferId in = b.input(at::zeros({4}));
  b.returns({b.call("view.dtype", {arg(in), {TorchDType{static_cast<int32_t>(at::kInt)}}})});
  Program p(std::move(b));
  const at::Tensor x = at::randn({4});
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(at::equal(p.call({x})[0], x.view(at::kInt)));
    EXPECT_EQ(p.how, "plain");
  }
  EXPECT_EQ(p.graphs.captures, 1);
}

TEST(GraphRefusals, EveryRowSaysWhatToDo) {
  const char* const last = "limit";
  for (size_t i = 0;; ++i) {
    const GraphRefusalRow& row = row_of(static_cast<GraphRefusal>(i));
    EXPECT_GT(std::strlen(row.what), 10u);
    EXPECT_GT(std::strlen(row.hint), 5u);
    if (std::string(row.name) == last) break;
  }
}

}  // namespace
}  // namespace framejit::runtime
