// runtime/executable.h — what a recording becomes: kernels, plans, and the values that live between plans.
//
// Pure data: it holds no pointer into this process, and it prints, parses (parse(print(x)) == x) and hashes the same in
// every process and run. Training (saved values), derived weights, several devices and a kernel cache all use this one
// structure. Binding it to this process (bind()) makes the object that runs, which is immutable and shared by threads.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/call_plan.h"

namespace framejit::runtime {

// A derivation makes it from inputs of the forward, and it is kept between calls. Operands from forward.input_count on
// are constants.
struct DerivedValue {
  Buffer buffer;
  uint32_t derivation = 0;  // of Executable::derive
  std::vector<uint32_t> operands;  // in the order of the derivation's inputs
  bool operator==(const DerivedValue&) const = default;
};

struct Executable {
  std::string name;
  std::vector<std::shared_ptr<const KernelCode>> kernels;  // each content once; KernelStep::kernel is an index into it
  std::vector<DerivedValue> derived;          // read by the forward and the backward plans
  std::vector<Buffer> saved;                  // CallPlan::saves of the forward, read by the backward plans
  std::vector<CallPlan> derive;  // derivations, each content once; one output each
  CallPlan forward;
  std::vector<CallPlan> backward;             // inputs are gradients of outputs. Each pattern of gradients that are
                                              // given and wanted has its own executable, without a forward.
  bool operator==(const Executable& other) const;  // kernels by id
};

// An Error: the first rule that the executable breaks (an index out of range, a plan that reads what it must not). No
// Error: it may be bound.
Result<void> verify(const Executable& executable);

// The forward of one executable as a plan of another, which takes over its kernels.
CallPlan moved_plan(Executable from, Executable& to);

std::string print(const Executable& executable);
// A hash of the text, and so of the contents, as 32 hexadecimal digits. Equal executables have the same hash in every
// process and run.
std::string content_hash(const Executable& executable);

// An executable in this process: every kernel is loaded for the devices on which it runs.
class BoundExecutable {
 public:
  static Result<std::shared_ptr<const BoundExecutable>> bind(Executable executable, KernelLoader& loader);
  const Executable& executable() const { return executable_; }
  const BoundPlan& forward() const { return forward_; }
  const std::vector<BoundPlan>& derive() const { return derive_; }
  const std::vector<BoundPlan>& backward() const { return backward_; }

 private:
  Result<BoundPlan> bind_plan(const CallPlan& plan, KernelLoader& loader);
  Result<const LoadedKernel*> load(const KernelStep& step, KernelLoader& loader);

  Executable executable_;
  std::map<std::pair<uint32_t, DeviceId>, LoadedKernel> loaded_;
  BoundPlan forward_;
  std::vector<BoundPlan> derive_, backward_;
};

}  // namespace framejit::runtime
