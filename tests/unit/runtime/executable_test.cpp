// Executables as data: ids of contents, text and back, rules, and binding with several plans and devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>

#include "runtime/base/sha256.h"
#include "tests/parsers/executable_parser.h"
#include "tests/unit/hand_kernels.h"

namespace framejit::runtime {
namespace {

using testing::HandKernel;
using testing::HandLoader;

std::string hex(const Sha256::Digest& digest) {
  std::string text;
  for (uint8_t byte : digest) text += "0123456789abcdef"[byte >> 4], text += "0123456789abcdef"[byte & 15];
  return text;
}

TEST(Sha256, VectorsOfTheStandard) {
  EXPECT_EQ(hex(Sha256().digest()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(Sha256().add("abc").digest()), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(Sha256().add("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq").digest()),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  const std::string million(1'000'000, 'a');
  EXPECT_EQ(hex(Sha256().add(million).digest()), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  for (const size_t at : {size_t{1}, size_t{55}, size_t{56}, size_t{63}, size_t{64}, size_t{65}, size_t{999}}) {
    const std::string text = million.substr(0, 1000);
    EXPECT_EQ(Sha256().add(text.substr(0, at)).add(text.substr(at)).digest(), Sha256().add(text).digest()) << at;
  }
  EXPECT_NE(Sha256().add_part("ab").add_part("c").digest(), Sha256().add_part("a").add_part("bc").digest());
}

TEST(KernelId, IsOfTargetAndText) {
  const KernelId id = content_id("cpu", "kernel () {}\n");
  EXPECT_EQ(id.text(), "70cd778ed88303ba66412d190dd7da3c") << "the same in every process, machine and run";
  EXPECT_EQ(parse_kernel_id(id.text()), id);
  EXPECT_NE(content_id("cpu2", "kernel () {}\n"), id);
  EXPECT_NE(content_id("cpu", "kernel () { }\n"), id);
  for (const char* wrong : {"", "d2", "70CD778ED88303BA66412D190DD7DA3C", "70cd778ed88303ba66412d190dd7da3x",
                            "-0cd778ed88303ba66412d190dd7da3c"})
    EXPECT_EQ(parse_kernel_id(wrong), std::nullopt) << wrong;
}

// out[i] = in[i] * 3
int64_t triple(void* const* buffers, const int64_t*, const FjScalar*, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i)
    static_cast<float*>(buffers[1])[i] = static_cast<const float*>(buffers[0])[i] * 3;
  return 0;
}
// out[i] = a[i] + b[i]
int64_t sum(void* const* buffers, const int64_t*, const FjScalar*, int64_t begin, int64_t end) {
  const float *a = static_cast<const float*>(buffers[0]), *b = static_cast<const float*>(buffers[1]);
  for (int64_t i = begin; i < end; ++i) static_cast<float*>(buffers[2])[i] = a[i] + b[i];
  return 0;
}
int64_t refused(void* const*, const int64_t*, const FjScalar*, int64_t, int64_t) { return -719; }

testing::HandKernels kernels() {
  return {std::make_shared<HandKernel>("triple", triple), std::make_shared<HandKernel>("sum", sum),
          std::make_shared<HandKernel>("refused", refused)};
}

// The derived value of input 1 (w3 = 3 w) is added on device 1:0 to the CPU's result for input 0; the sum is saved for
// a backward.
const char* const kThreePlans = R"(executable @f {
code c0 = "00000000000000000000000000000000" for "hand" named "triple"
code c1 = "00000000000000000000000000000000" for "hand" named "sum"
value d0: tensor f32[4] by 0 from [1]
value v0: tensor f32[4] device 1:0
derive plan @f inputs 1 symbols 0 {
  b0: input 0 f32[4]
  b1: tensor f32[4]
  allocate b1
  kernel k0(b0, b1) runs c0 extent 4
  return b1
}
forward plan @f inputs 2 symbols 0 {
  arena 0: 16 bytes
  b0: input 0 f32[4]
  b1: derived 0 f32[4]
  b2: arena 0 f32[4]
  b3: tensor f32[4] device 1:0
  kernel k0(b0, b2) runs c0 extent 4 grain 2
  allocate b3
  kernel k1(b2, b1, b3) runs c1 extent 4 device 1:0
  save b3
  return b3
}
backward plan @f inputs 1 symbols 0 {
  b0: input 0 f32[4] device 1:0
  b1: saved 0 f32[4] device 1:0
  b2: tensor f32[4] device 1:0
  allocate b2
  kernel k0(b0, b1, b2) runs c1 extent 4 device 1:0
  return b2
}
}
)";

Executable three_plans() {
  Executable executable = parse_executable(kThreePlans).take();
  executable.kernels = {kernels()[0], kernels()[1]};
  return executable;
}

TEST(Executable, TextAndBack) {
  const auto parsed = parse_executable(kThreePlans);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(print(parsed.value()), kThreePlans);
  EXPECT_TRUE(parse_executable(print(three_plans())).value() == three_plans());
  EXPECT_FALSE(parsed.value() == three_plans()) << "kernels of other contents";
  EXPECT_TRUE(verify(parsed.value()).ok());
}

TEST(Executable, HasAHashOfItsContents) {
  const std::string hash = content_hash(three_plans());
  EXPECT_EQ(hash, "c412b7942419447982a297a95ef3395c") << "the same in every process, machine and run";
  EXPECT_EQ(content_hash(parse_executable(print(three_plans())).value()), hash);
  const std::pair<const char*, void (*)(Executable&)> changes[] = {
      {"its name", [](Executable& e) { e.name = "g"; }},
      {"a kernel", [](Executable& e) { e.kernels[0] = kernels()[2]; }},
      {"an operand", [](Executable& e) { e.derived[0].operands[0] = 0; }},
      {"a saved value", [](Executable& e) { e.saved[0].device.index = 1; }},
      {"a derivation", [](Executable& e) { e.derive[0].steps.pop_back(); }},
      {"a step", [](Executable& e) { std::get<KernelStep>(e.forward.steps[0]).grain = 3; }},
      {"a backward", [](Executable& e) { e.backward.clear(); }},
  };
  for (const auto& [what, change] : changes) {
    Executable changed = three_plans();
    change(changed);
    EXPECT_NE(content_hash(changed), hash) << what;
    EXPECT_FALSE(changed == three_plans()) << what;
  }
}

// Memory of plans: values of every device lie here.
class Host : public PlanHost {
 public:
  Host(const CallPlan& plan, std::vector<std::vector<float>>& inputs, std::vector<std::vector<float>>& between)
      : plan_(plan), inputs_(inputs), between_(between) {}
  void* data(BufferId b) override {
    const Buffer& buffer = plan_.buffers[b];
    if (buffer.storage == Storage::kArena) return arena_.data();
    if (buffer.storage == Storage::kInput) return inputs_[buffer.index].data();
    if (buffer.storage == Storage::kDerived || buffer.storage == Storage::kSaved) return between_[buffer.index].data();
    return tensors[b].data();
  }
  void allocate(BufferId b, BufferId) override { tensors[b].resize(4); }
  void view(BufferId, BufferId) override {}
  void call(const ExternStep&, size_t) override {}
  void release(BufferId) override {}
  void enter(const Place& place) override { entered += text_of(place.device) + ";"; }
  void take(uint32_t, int64_t bytes) override { arena_.resize(static_cast<size_t>(bytes)); }
  void give(uint32_t) override {}
  void parallel_for(int64_t begin, int64_t end, int64_t, void (*body)(void*, int64_t, int64_t), void* state) override {
    body(state, begin, end);
  }
  std::map<BufferId, std::vector<float>> tensors;
  std::string entered;

 private:
  const CallPlan& plan_;
  std::vector<std::vector<float>>&inputs_, &between_;
  std::vector<char> arena_;
};

TEST(Executable, SeveralPlansAndDevices) {
  HandLoader loader;
  const auto bound = BoundExecutable::bind(three_plans(), loader);
  ASSERT_TRUE(bound.ok()) << bound.error().message;
  EXPECT_EQ(loader.loaded, "triple on cpu, sum on 1:0") << "each kernel once for each device";
  using Values = std::vector<std::vector<float>>;
  Values weights = {{1, 2, 3, 4}}, none;
  const BoundPlan& derivation = bound.value()->derive().at(0);
  Host derive(*derivation.plan, weights, none);
  ASSERT_TRUE(run_steps(derivation, nullptr, derive).ok());
  Values derived = {derive.tensors[1]}, inputs = {{1, 1, 1, 1}, weights[0]};
  Host forward(*bound.value()->forward().plan, inputs, derived);
  ASSERT_TRUE(run_steps(bound.value()->forward(), nullptr, forward).ok());
  EXPECT_EQ(forward.tensors[3], (std::vector<float>{6, 9, 12, 15}));
  EXPECT_EQ(forward.entered, "1:0;") << "kernels of the CPU enter nothing";
  Values saved = {forward.tensors[3]}, gradients = {{10, 10, 10, 10}};
  const BoundPlan& stage = bound.value()->backward().at(0);
  Host backward(*stage.plan, gradients, saved);
  ASSERT_TRUE(run_steps(stage, nullptr, backward).ok());
  EXPECT_EQ(backward.tensors[2], (std::vector<float>{16, 19, 22, 25}));
}

TEST(Executable, ALaunchThatFailsIsNoFailedCheck) {
  Executable executable = three_plans();
  executable.kernels[1] = kernels()[2];
  HandLoader loader;
  const auto bound = BoundExecutable::bind(std::move(executable), loader).take();
  std::vector<std::vector<float>> inputs = {{1, 1, 1, 1}, {1, 1, 1, 1}}, derived = {{1, 1, 1, 1}};
  Host host(*bound->forward().plan, inputs, derived);
  const auto ran = run_steps(bound->forward(), nullptr, host);
  ASSERT_FALSE(ran.ok());
  EXPECT_EQ(ran.error().reason, Reason::launch_failed);
  EXPECT_EQ(ran.error().message, "the driver refused to launch kernel k1 on device 1:0: error 719");
}

TEST(Executable, WhatCannotBeLoadedIsNotBound) {
  HandLoader loader;
  const auto bound = BoundExecutable::bind(parse_executable(kThreePlans).take(), loader);
  ASSERT_FALSE(bound.ok());
  EXPECT_EQ(bound.error().message, "no kernel of this test: triple");
}

TEST(Executable, RulesAreChecked) {
  const std::pair<const char*, void (*)(Executable&)> broken[] = {
      {"plan forward @f: kernel c7", [](Executable& e) { std::get<KernelStep>(e.forward.steps[0]).kernel = 7; }},
      {"plan forward @f: buffer b9", [](Executable& e) { std::get<KernelStep>(e.forward.steps[0]).buffers[0] = 9; }},
      {"plan forward @f: stream 1: only each device's first is there",
       [](Executable& e) { std::get<KernelStep>(e.forward.steps[0]).place.stream = 1; }},
      {"plan forward @f: parts of a kernel that runs on device 1:0",
       [](Executable& e) { std::get<KernelStep>(e.forward.steps[2]).grain = 2; }},
      {"plan forward @f: kernels that cannot run together with kernel k0",
       [](Executable& e) { std::get<KernelStep>(e.forward.steps[0]).together = 99; }},
      {"plan forward @f: a unit of 0", [](Executable& e) { std::get<KernelStep>(e.forward.steps[0]).unit = 0; }},
      {"plan forward @f: an offset of argument 2",
       [](Executable& e) { std::get<KernelStep>(e.forward.steps[0]).offsets = {{2, 4}}; }},
      {"plan forward @f: size slot z0",
       [](Executable& e) { std::get<KernelStep>(e.forward.steps[0]).extent = {0, 0}; }},
      {"plan forward @f: operands of z0",
       [](Executable& e) { e.forward.size_program = {{SizeOpcode::kAdd, 0, 0, 0}}; }},
      {"plan forward @f: operands of z0", [](Executable& e) { e.forward.size_program = {{SizeOpcode::kSymbol, 3}}; }},
      {"plan forward @f: a buffer of input 5", [](Executable& e) { e.forward.buffers[0].index = 5; }},
      {"plan forward @f: a buffer of arena 2", [](Executable& e) { e.forward.buffers[2].index = 2; }},
      {"plan forward @f: a buffer of device 1:0 in arena 0",
       [](Executable& e) { e.forward.buffers[2].device = {1, 0}; }},
      {"plan forward @f: a buffer of derived value 1", [](Executable& e) { e.forward.buffers[1].index = 1; }},
      {"plan forward @f: a buffer of saved value 0",
       [](Executable& e) { e.forward.buffers[1].storage = Storage::kSaved; }},
      {"plan derive @f: a buffer of derived value 0",
       [](Executable& e) { e.derive[0].buffers[0].storage = Storage::kDerived; }},
      {"plan forward @f: a buffer with 0 strides", [](Executable& e) { e.forward.buffers[3].strides.clear(); }},
      {"plan forward @f: b0 has no tensor of its own", [](Executable& e) { e.forward.steps.push_back(FreeStep{0}); }},
      {"plan forward @f: b1 is not a saved value to write over",
       [](Executable& e) { std::get<AllocateStep>(e.forward.steps[1]).over = 1; }},
      {"plan backward @f: b2 does not fit over b1",
       [](Executable& e) {
         std::get<AllocateStep>(e.backward[0].steps[0]).over = 1;
         e.backward[0].buffers[1].strides = {{2}};
       }},
      {"plan forward @f: arena 0 is not taken by a step",
       [](Executable& e) { e.forward.steps.push_back(TakeStep{0}); }},
      {"plan forward @f: an update of input 2", [](Executable& e) { e.forward.updates = {{2, 0}}; }},
      {"plan forward @f: output of input 2", [](Executable& e) { e.forward.outputs = {{Output::kInput, 2}}; }},
      {"plan forward @f saves 0 values of 1", [](Executable& e) { e.forward.saves.clear(); }},
      {"plan derive @f: it does not derive one value of constant size",
       [](Executable& e) { e.derive[0].outputs.clear(); }},
      {"plan derive @f: it does not derive one value of constant size",
       [](Executable& e) { e.derive[0].symbol_count = 1; }},
      {"plan derive @f: it does not derive one value of constant size",
       [](Executable& e) { e.derive[0].updates = {{0, 0}}; }},
      {"@f has a derived value that no derivation makes", [](Executable& e) { e.derived[0].derivation = 1; }},
      {"@f has a derived value that no derivation makes", [](Executable& e) { e.derived[0].operands = {0, 1}; }},
      {"@f has a derived value that no derivation makes", [](Executable& e) { e.derive.clear(); }},
      {"plan backward @f: buffer b6", [](Executable& e) { e.backward[0].outputs[0].index = 6; }},
  };
  for (const auto& [message, change] : broken) {
    Executable executable = three_plans();
    change(executable);
    const auto verified = verify(executable);
    ASSERT_FALSE(verified.ok()) << message;
    EXPECT_EQ(verified.error().message, message);
  }
}

// --- random executables: text and back; truncated or changed texts give an error, never a crash ---

class RandomExecutable {
 public:
  explicit RandomExecutable(uint64_t seed) : random_(seed) {}

  Executable make() {
    Executable e;
    e.name = name();
    for (size_t i = 0, n = below(4); i < n; ++i) {
      auto code = std::make_shared<KernelCode>();
      code->id = content_id("random", std::to_string(random_()));
      code->target = name();
      code->name = name();
      e.kernels.push_back(std::move(code));
    }
    for (size_t i = 0, n = below(3); i < n; ++i) {
      e.derived.push_back({buffer(), static_cast<uint32_t>(below(9)), {}});
      for (size_t k = below(3); k > 0; --k) e.derived.back().operands.push_back(static_cast<uint32_t>(below(9)));
    }
    for (size_t i = 0, n = below(3); i < n; ++i) e.saved.push_back(buffer());
    for (size_t i = 0, n = below(3); i < n; ++i) e.derive.push_back(plan());
    e.forward = plan();
    for (size_t i = 0, n = below(3); i < n; ++i) e.backward.push_back(plan());
    return e;
  }

  uint64_t below(uint64_t n) { return random_() % n; }

 private:
  std::string name() {
    static const char* const kNames[] = {"f", "k0", "_wrapped", "<lambda>", "two words", "", "a\"b\\c\n", "0f", "é"};
    return kNames[below(std::size(kNames))];
  }
  Size size() {
    if (below(3) == 0) return {0, static_cast<int32_t>(below(5))};
    static const int64_t kSizes[] = {
        0, 1, 2, 7, 768, -3, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
    return {kSizes[below(std::size(kSizes))]};
  }
  std::vector<Size> sizes(size_t most = 3) {
    std::vector<Size> list;
    for (size_t i = 0, n = below(most + 1); i < n; ++i) list.push_back(size());
    return list;
  }
  DeviceId device() {
    return below(3) != 0 ? DeviceId{} : DeviceId{static_cast<int8_t>(1 + below(3)), static_cast<int8_t>(below(3))};
  }
  Place place() { return {device(), static_cast<uint8_t>(below(4) == 0 ? below(3) : 0)}; }
  BufferId some_buffer() { return below(5) == 0 ? kNoBuffer : static_cast<BufferId>(below(6)); }
  Buffer buffer() {
    Buffer b;
    b.storage = static_cast<Storage>(below(6));
    b.index = b.storage == Storage::kTensor ? 0 : static_cast<uint32_t>(below(3));
    if (below(5) == 0) {
      b.dtype = DType::kOther;
      b.torch_dtype = static_cast<int32_t>(12 + below(20));
    } else {
      b.dtype = static_cast<DType>(below(static_cast<uint64_t>(DType::kOther)));
      b.torch_dtype = row_of(b.dtype).torch_scalar_type;
    }
    if (b.dtype == DType::kOther && dtype_of_torch(b.torch_dtype) != DType::kOther) b.torch_dtype = 25;
    b.is_packed = below(4) == 0;
    b.device = device();
    b.sizes = sizes();
    for (size_t i = 0; i < b.sizes.size(); ++i) b.strides.push_back(size());
    if (below(2) != 0) b.offset = size();
    return b;
  }
  double number() {
    static const double kNumbers[] = {0.0,
                                      -0.0,
                                      1.5,
                                      1e300,
                                      5e-324,
                                      std::numeric_limits<double>::infinity(),
                                      std::numeric_limits<double>::quiet_NaN(),
                                      0.1};
    return kNumbers[below(std::size(kNumbers))];
  }
  template <class F> auto list_of(F make) {
    std::vector<decltype(make())> list;
    for (size_t i = 0, n = below(4); i < n; ++i) list.push_back(make());
    return list;
  }
  PlanArg argument() {
    switch (below(15)) {
      case 0: return {None{}};
      case 1: return {some_buffer()};
      case 2: return {list_of([&] { return some_buffer(); })};
      case 3: return {size()};
      case 4: return {sizes()};
      case 5: return {number()};
      case 6: return {list_of([&] { return number(); })};
      case 7: return {below(2) != 0};
      case 8: {
        std::vector<bool> flags;
        for (size_t i = 0, n = below(4); i < n; ++i) flags.push_back(below(2) != 0);
        return {flags};
      }
      case 9: return {name()};
      case 10: return {TorchDType{static_cast<int32_t>(below(30))}};
      case 11: return {TorchDevice{static_cast<int8_t>(below(20)), static_cast<int8_t>(below(5)) }};
      case 12: return {TorchEnum{"lmqx"[below(4)], static_cast<int8_t>(below(5))}};
      case 13: return {OpaqueSlot{static_cast<uint32_t>(below(5))}};
      default: return {TorchDevice{0, -1}};
    }
  }
  Step step() {
    switch (below(7)) {
      case 0: {
        KernelStep s;
        s.kernel = static_cast<uint32_t>(below(4));
        s.name = name();
        s.place = place();
        s.buffers = list_of([&] { return some_buffer(); });
        s.offsets =
            list_of([&] { return std::pair<uint32_t, int64_t>(static_cast<uint32_t>(below(3)), size().constant); });
        s.sizes = sizes();
        s.extent = size();
        s.grain = static_cast<int64_t>(below(5)) - 1;
        s.together = 1 + static_cast<uint32_t>(below(2) * below(3));
        s.unit = 1 + static_cast<int64_t>(below(3)) * 63;
        return s;
      }
      case 1: {
        static const char* const kOps[] = {"add.Tensor", "mm", "__and__.Tensor", "torchvision::nms", "ns::op.out"};
        ExternStep s;
        s.op = kOps[below(std::size(kOps))];
        s.place = place();
        s.args = list_of([&] { return argument(); });
        s.results = list_of([&] { return some_buffer(); });
        s.result_lists = list_of([&] { return static_cast<int16_t>(below(4)) ; });
        s.line = static_cast<uint32_t>(below(3));
        return s;
      }
      case 2: return AllocateStep{some_buffer(), below(2) == 0 ? kNoBuffer : some_buffer()};
      case 3: return ViewStep{some_buffer(), some_buffer()};
      case 4: return FreeStep{some_buffer()};
      case 5: return TakeStep{static_cast<uint32_t>(below(3))};
      default: return GiveStep{static_cast<uint32_t>(below(3))};
    }
  }
  CallPlan plan() {
    CallPlan p;
    p.name = name();
    p.input_count = static_cast<uint32_t>(below(4));
    p.symbol_count = static_cast<uint32_t>(below(3));
    for (size_t i = 0, n = below(5); i < n; ++i) {
      SizeOp op{static_cast<SizeOpcode>(below(8))};
      if (op.opcode == SizeOpcode::kConstant) op.constant = size().constant;
      else if (op.opcode == SizeOpcode::kSymbol) op.constant = static_cast<int64_t>(below(3));
      else op.left = static_cast<int32_t>(below(3)), op.right = static_cast<int32_t>(below(3));
      p.size_program.push_back(op);
    }
    p.arena = list_of([&] { return ArenaBlock{device(), size()}; });
    p.buffers = list_of([&] { return buffer(); });
    for (size_t i = 0, n = below(6); i < n; ++i) p.steps.push_back(step());
    p.outputs = list_of([&] {
      return below(2) != 0 ? Output{Output::kInput, static_cast<uint32_t>(below(3))}
                           : Output{Output::kBuffer, some_buffer()};
    });
    for (size_t i = 0, n = below(3); i < n; ++i) p.updates.emplace_back(static_cast<uint32_t>(below(3)), some_buffer());
    p.saves = list_of([&] { return some_buffer(); });
    return p;
  }

  std::mt19937_64 random_;
};

TEST(ExecutableFuzz, TextAndBack) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Executable executable = RandomExecutable(seed).make();
    const std::string text = print(executable);
    const auto parsed = parse_executable(text);
    ASSERT_TRUE(parsed.ok()) << "seed " << seed << ": " << parsed.error().message << "\n" << text;
    ASSERT_TRUE(parsed.value() == executable) << "seed " << seed << "\n" << text << "\n" << print(parsed.value());
    ASSERT_EQ(print(parsed.value()), text) << "seed " << seed;
    (void)verify(executable);
  }
}

TEST(ExecutableFuzz, DamagedTextsAreErrorsOrOtherExecutables) {
  int errors = 0;
  constexpr uint64_t kRounds = 2000;
  for (uint64_t seed = 0; seed < kRounds; ++seed) {
    RandomExecutable random(seed);
    std::string text = print(random.make());
    const size_t at = random.below(text.size());
    switch (random.below(4)) {
      case 0: text.resize(at); break;
      case 1: text[at] = static_cast<char>(random.below(256)); break;
      case 2: text.erase(at, 1 + random.below(8)); break;
      default: text.insert(at, text.substr(random.below(text.size()), 1 + random.below(16)));
    }
    const auto parsed = parse_executable(text);
    errors += !parsed.ok();
    if (parsed.ok()) {
      (void)verify(parsed.value());
      ASSERT_TRUE(parse_executable(print(parsed.value())).value() == parsed.value()) << text;
    } else {
      ASSERT_NE(parsed.error().message, "");
    }
  }
  EXPECT_GT(errors, static_cast<int>(kRounds / 2));
}

}  // namespace
}  // namespace framejit::runtime
