// runtime/call_plan.h — one plan of an executable as data: a flat array of steps run by one small loop.
//
// Sizes are constants or slots of a per-call array that `size_program` fills from the symbols. Buffers live in an
// input, a constant, a derived or saved value of the executable, the arena, or a tensor of their own (outputs, results
// and operands of extern calls). A plan holds no pointer: kernels are indices into the executable's table. The loop
// that runs a plan is in call_plan.cpp. Whatever it does with tensors (allocate, view, extern call) goes through a
// PlanHost, which runtime/aten implements.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/dtype.h"
#include "runtime/kernel_code.h"
#include "runtime/size_op.h"
#include "runtime/torch_arg.h"

namespace framejit::runtime {

using BufferId = uint32_t;
inline constexpr BufferId kNoBuffer = UINT32_MAX;
inline constexpr uint32_t kArenaBlocks = 3;  // of a plan, at most

struct Size {
  int64_t constant = 0;
  int32_t slot = -1;  // >= 0: value of that size slot, `constant` unused
  bool operator==(const Size&) const = default;
};

enum class Storage : uint8_t {
  kInput,
  kConstant,
  kDerived,  // made by the plan `derive` from parameters, kept between calls
  kSaved,    // from a forward to its backward
  kArena,
  kTensor
};
struct Buffer {
  Storage storage = Storage::kTensor;
  uint32_t index = 0;        // which input, constant, derived or saved value; kArena: which block
  DType dtype = DType::kFloat32;
  int32_t torch_dtype = 6;   // c10::ScalarType, also for dtypes without a row
  bool is_packed = false;    // in the layout of the library that made it: no data pointer, no strides
  DeviceId device;
  std::vector<Size> sizes, strides;
  Size offset;               // in elements; kArena: in bytes, in the block
  bool operator==(const Buffer&) const = default;
};

struct TorchDType { int32_t scalar_type; bool operator==(const TorchDType&) const = default; };
struct TorchDevice { int8_t type, index; bool operator==(const TorchDevice&) const = default; };
struct PlanArg {             // argument of an extern call, in schema order
  std::variant<None, BufferId, std::vector<BufferId>, Size, std::vector<Size>, double, std::vector<double>, bool,
               std::vector<bool>, std::string, TorchDType, TorchDevice, TorchEnum, OpaqueSlot>
      payload;
  bool operator==(const PlanArg&) const;  // compares numbers bit by bit: NaN equals itself, -0.0 does not equal 0.0
};

// Where a step runs. Stream 0 of a device is the one that torch's ops would use.
struct Place {
  DeviceId device;
  uint8_t stream = 0;
  bool operator==(const Place&) const = default;
};

struct KernelStep {
  uint32_t kernel = 0;                 // of the executable's table
  std::string name;                    // "k0", "k1": the steps of a plan in order
  Place place;
  std::vector<BufferId> buffers;
  // Arguments that begin at an offset in their buffers, in bytes.
  std::vector<std::pair<uint32_t, int64_t>> offsets;
  std::vector<Size> sizes;
  Size extent{1};                      // parallel range [0, extent)
  int64_t grain = 0;  // at least this much per thread; 0 or less: one thread; -1: the function computes all of it
  int64_t unit = 1;                    // threads get multiples of it, except for the last part of the range
  uint32_t together = 1;  // this step and the next ones, so many in all, do not need each other: one parallel region
  bool operator==(const KernelStep&) const = default;
};
struct ExternStep {
  std::string op;                      // as OpDef::name
  Place place;                         // of its results
  std::vector<PlanArg> args;
  std::vector<BufferId> results;       // flattened; kNoBuffer if unused
  std::vector<int16_t> result_lists;   // as graph::Node
  uint32_t line = 0;
  bool operator==(const ExternStep&) const = default;
};
// A kTensor buffer for a kernel to write: empty_strided. over: a saved value of the same shape that is not needed
// afterwards. If nobody else holds it, its tensor is taken instead.
struct AllocateStep {
  BufferId buffer, over = kNoBuffer;
  bool operator==(const AllocateStep&) const = default;
};
// The result is an as_strided view of base, with the shape of its Buffer.
struct ViewStep { BufferId base, result; bool operator==(const ViewStep&) const = default; };
struct FreeStep { BufferId buffer; bool operator==(const FreeStep&) const = default; };
struct TakeStep {
  uint32_t block;
  bool operator==(const TakeStep&) const = default;
};  // a block of the arena, not the first
struct GiveStep { uint32_t block; bool operator==(const GiveStep&) const = default; };
using Step = std::variant<KernelStep, ExternStep, AllocateStep, ViewStep, FreeStep, TakeStep, GiveStep>;

struct Output {
  enum Kind : uint8_t { kBuffer, kInput } kind = kBuffer;
  uint32_t index = 0;                  // BufferId, or input index: the same object is returned
  bool operator==(const Output&) const = default;
};

struct ArenaBlock {
  DeviceId device;
  Size bytes;
  bool operator==(const ArenaBlock&) const = default;
};

struct CallPlan {
  std::string name;
  uint32_t input_count = 0, symbol_count = 0;
  std::vector<SizeOp> size_program;    // slot i of the size array holds the result of size_program[i]
  std::vector<ArenaBlock> arena;  // the first exists from start to end, unless it is empty; TakeStep and GiveStep
                                  // delimit the others
  std::vector<Buffer> buffers;
  std::vector<Step> steps;
  std::vector<Output> outputs;
  // After all steps: input <- buffer (copy_, version bump); if it is the input's own buffer, steps have written it.
  std::vector<std::pair<uint32_t, BufferId>> updates;
  std::vector<BufferId> saves;         // of a forward: the executable's saved values, in order
  bool operator==(const CallPlan&) const = default;
};

// The loop's access to tensors. One host per call; it owns the tensors of kTensor buffers until they are freed or
// returned.
class PlanHost {
 public:
  virtual ~PlanHost() = default;
  virtual void* data(BufferId buffer) = 0;     // base pointer with storage offset applied
  virtual void allocate(BufferId buffer, BufferId over) = 0;  // as AllocateStep
  virtual void view(BufferId base, BufferId result) = 0;
  virtual void call(const ExternStep& step, size_t step_index) = 0;  // throws what the op throws
  virtual void release(BufferId buffer) = 0;
  virtual void enter(const Place& place) = 0;  // the next kernels run there; not called for CPU kernels
  virtual void take(uint32_t block,
                    int64_t bytes) = 0;  // blocks still taken are given back when the call ends, in any way
  virtual void give(uint32_t block) = 0;
  virtual void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*body)(void*, int64_t, int64_t),
                            void* state) = 0;
  std::vector<int64_t> sizes;                  // the size array of this call
  int64_t size(const Size& s) const { return s.slot < 0 ? s.constant : sizes[s.slot]; }
};

// A plan and its kernels in this process: per step, null if it is not a kernel.
struct BoundPlan {
  const CallPlan* plan = nullptr;
  std::vector<const LoadedKernel*> kernels;
};

// Runs all steps. A failed check of a kernel is an Error, and so is a launch that the driver refuses. Exceptions of
// extern calls pass through.
Result<void> run_steps(const BoundPlan& bound, const int64_t* symbols, PlanHost& host);
std::string print(const CallPlan& plan);

}  // namespace framejit::runtime
