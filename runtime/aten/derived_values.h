// runtime/aten/derived_values.h — the derived values of an executable for the weights of one call, and whether those
// weights are unchanged.
//
// An operand is unchanged while it is the same view of the same memory with the same version, and nobody wrote to that
// memory. For large operands, the system knows whether somebody wrote (runtime/write_watch.h); small ones are compared
// with a copy. A value is identified by its derivation and its operands: executables that want the same value share it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/aten/plan_runner.h"
#include "runtime/write_watch.h"

namespace framejit::runtime {

enum class Trust : uint8_t {
  kWatch,  // an operand is proven unchanged
  kIdentityVersion,  // the user promises that nobody writes to a weight without changing its version, if it has one
};

class KeptOperand;
class KeptValue;

// How to make the derived values of one bound executable.
class Derivations {
 public:
  Derivations(std::shared_ptr<const BoundExecutable> executable, std::vector<at::Tensor> constants);
  const Executable& executable() const { return executable_->executable(); }

 private:
  friend class DerivedValues;
  std::shared_ptr<const BoundExecutable> executable_;
  std::vector<at::Tensor> constants_;
  std::vector<PlanRunner> runners_;  // per derivation
  std::vector<std::string> keys_;  // per derivation: the same in all executables
};

// Which existing values leave no memory for new ones.
enum class InTheWay : uint8_t {
  kNone,
  kOfTheseWeights,  // with them, all would take more bytes than the weights
  kOfAnyWeights,  // with them, all would take more than FRAMEJIT_DERIVED_MB
};

class DerivedValues {
 public:
  // Why nothing can be derived from such weights, whatever the derivations; empty if no reason is known.
  static std::string refusal(const std::vector<at::Tensor>& weights, Trust trust);
  // Call it without the GIL. `inputs`: those of the forward; inputs that are not operands may be null. An Error says
  // why nothing is derived, in_the_way whether it helps to drop others. Exceptions of library calls pass through.
  static Result<std::shared_ptr<const DerivedValues>> make(const Derivations& derivations,
                                                           const at::Tensor* const* inputs, Trust trust,
                                                           InTheWay* in_the_way);

  // The first input that has changed; -1: none. Allocates nothing.
  int64_t changed_input(const at::Tensor* const* inputs) const;
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  std::vector<uint32_t> inputs() const;  // inputs of the forward from which they were made
  bool derives_from(const std::vector<at::Tensor>& weights) const;  // from the memory of at least one of them
  int64_t bytes() const { return bytes_; }
  size_t made_now() const { return made_now_; }  // how many make() made; the others existed

 private:
  struct Kept {
    uint32_t input;
    std::shared_ptr<const KeptOperand> operand;
  };
  // What each call compares of an operand. Briefs lie side by side, because thousands of small objects all over memory
  // take longer to read than to compare.
  struct Brief {
    static constexpr size_t kMostDims = 4;
    uint32_t input;
    c10::ScalarType dtype;
    int8_t ndim;  // -1: a brief does not hold this operand, so its KeptOperand is compared
    const c10::StorageImpl* storage;
    const void* data;
    int64_t version;  // -1: it has none
    int64_t shape[2 * kMostDims];  // sizes, then strides
  };
  struct Operands;  // of all derivations of an executable
  Result<Operands> keep_operands(const Derivations& derivations, const at::Tensor* const* inputs, Trust trust);
  static bool fits(const Brief& brief, const at::Tensor& tensor);
  void note_briefs();
  std::vector<Kept> kept_;
  std::vector<Brief> briefs_;  // of kept_
  uint64_t distrusts_ = 0;  // how often operands had been distrusted when they were kept
  WriteWatch::Question question_;
  std::vector<std::shared_ptr<const KeptValue>> values_;
  std::vector<at::Tensor> tensors_;  // of the values
  int64_t bytes_ = 0;
  size_t made_now_ = 0;
};

void count_derived_again(uint64_t values);

// From now on, values derived from the memory of these tensors count as outdated.
void distrust(const std::vector<at::Tensor>& weights);

}  // namespace framejit::runtime
