// runtime/aten/bernoulli.cpp — the op "framejit::bernoulli": the draws of bernoulli.p, on all threads.
//
// It has the same results, and leaves the generator in the same state. If torch draws in another way (MKL does, for
// processors that it knows), torch's own op runs. The first call compares the two.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <torch/library.h>

#include <bit>
#include <mutex>
#include <optional>

#include "runtime/aten/parallel.h"
#include "runtime/aten/result_memory.h"
#include "runtime/mersenne.h"

namespace framejit::runtime {
namespace {

constexpr int64_t kFewTrials = 4096;  // torch's op costs less than the copies of the state

std::optional<uint64_t> one_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat: return std::bit_cast<uint32_t>(1.0F);
    case at::kDouble: return std::bit_cast<uint64_t>(1.0);
    case at::kBFloat16: return c10::BFloat16(1.0F).x;
    case at::kHalf: return c10::Half(1.0F).x;
    default: return std::nullopt;
  }
}

void share(int64_t count, void (*body)(void*, int64_t, int64_t), void* state) {
  parallel_for(0, count, 1, body, state);
}

// Fills a dense tensor in the order of memory, as torch does.
void draw(at::Tensor& results, double probability, uint64_t one, at::CPUGeneratorImpl& generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex_);
  at::mt19937 engine = generator.engine();
  at::mt19937_data_pod data = engine.data();
  // In a generator that has drawn nothing since its seed, next_ is 0, but left_ says that no word is left.
  MersenneState state{data.state_, data.left_ == 1 ? MersenneState::kWords : static_cast<int64_t>(data.next_)};
  run_trials(
      state,
      {results.numel(), probability, results.mutable_data_ptr(), static_cast<size_t>(results.element_size()), one},
      share);
  data.state_ = state.words;
  data.next_ = static_cast<uint32_t>(state.next);
  data.left_ = static_cast<int>(MersenneState::kWords - state.next) + 1;
  engine.set_data(data);
  generator.set_engine(engine);
}

bool draws_as_torch() {
  static const bool same = [] {
    constexpr uint64_t kSeed = 20240229;
    constexpr double kProbability = 0.7;
    at::Generator theirs = at::detail::createCPUGenerator(kSeed), ours = at::detail::createCPUGenerator(kSeed);
    const at::Tensor expected = at::bernoulli(at::empty({2000}, at::kFloat), kProbability, theirs);
    at::Tensor drawn = at::empty({2000}, at::kFloat);
    draw(drawn, kProbability, *one_of(at::kFloat), *ours.get<at::CPUGeneratorImpl>());
    return at::equal(expected, drawn) && at::equal(theirs.get_state(), ours.get_state());
  }();
  return same;
}

at::Tensor bernoulli(const at::Tensor& self, double p, std::optional<at::Generator> generator) {
  const std::optional<uint64_t> one = one_of(self.scalar_type());
  if (!self.is_cpu() || !one || self.numel() < kFewTrials || !(p >= 0 && p <= 1) ||
      !self.is_non_overlapping_and_dense() || !draws_as_torch())
    return at::bernoulli(self, p, generator);
  at::Tensor results = new_result(self.sizes(), self.strides(), self.scalar_type());
  draw(results, p, *one,
       *at::get_generator_or_default<at::CPUGeneratorImpl>(generator, at::detail::getDefaultCPUGenerator()));
  return results;
}

at::Tensor with_history(const at::Tensor& self, double p, std::optional<at::Generator> generator) {
  return at::bernoulli(self, p, generator);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(framejit, library) {
  library.def("bernoulli(Tensor self, float p, *, Generator? generator=None) -> Tensor",
              {at::Tag::nondeterministic_seeded});
  library.impl("bernoulli", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(bernoulli));
  library.impl("bernoulli", c10::DispatchKey::Autograd, TORCH_FN(with_history));
}

}  // namespace framejit::runtime
