// runtime/call_plan.h — one plan of an executable as data: a flat array of steps run by one small loop.
//
// Sizes are constants or slots of a per-call array that `size_program` fills from the symbols. Buffers live in an
// input, a constant, a derived or saved value of the executable, the arena, or a tensor of their own (outputs, results
// and operands of extern calls). A plan holds no pointer: kernels are numbers into the executable's table. The loop
// that runs a plan is call_plan.cpp; what it needs of tensors (allocate, view, extern call) it asks of a PlanHost,
// which runtime/aten implements.
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

namespace framejit::runtime {

using BufferId = uint32_t;
inline constexpr BufferId kNoBuffer = UINT32_MAX;
inline constexpr uint32_t kArenaBlocks = 3;  // of a plan, at most

struct Size {
  int64_t constant = 0;
  int32_t slot = -1;  // >= 0: value of that size slot, `constant` unused
  bool operator==(const Size&) const = default;
};

enum class Home : uint8_t {
  kInput, kConstant,
  kDerived,  // made by the plan `derive` from parameters, kept between calls
  kSaved,    // from a forward to its backward
  kArena, kTensor
};
struct Buffer {
  Home home = Home::kTensor;
  uint32_t index = 0;        // which input, constant, derived or saved value; kArena: which block
  DType dtype = DType::kFloat32;
  int32_t torch_dtype = 6;   // c10::ScalarType, also for dtypes without a row
  bool is_packed = false;    // lies as the library that made it wants it: no data pointer, no strides
  DeviceId device;
  std::vector<Size> sizes, strides;
  Size offset;               // in elements; kArena: in bytes, in the block
  bool operator==(const Buffer&) const = default;
};

struct None { bool operator==(const None&) const = default; };
struct TorchEnum {
  char kind;
  int8_t value;
  bool operator==(const TorchEnum&) const = default;
};  // as graph::TorchEnum
struct TorchDType { int32_t scalar_type; bool operator==(const TorchDType&) const = default; };
struct TorchDevice { int8_t type, index; bool operator==(const TorchDevice&) const = default; };
struct OpaqueSlot { uint32_t index; bool operator==(const OpaqueSlot&) const = default; };
struct PlanArg {             // argument of an extern call, in schema order
  std::variant<None, BufferId, std::vector<BufferId>, Size, std::vector<Size>, double, std::vector<double>, bool,
               std::vector<bool>, std::string, TorchDType, TorchDevice, TorchEnum, OpaqueSlot>
      payload;
  bool operator==(const PlanArg&) const;  // numbers bit by bit: NaN is itself, -0.0 is not 0.0
};

// Where a step runs. Stream 0 of a device is the one that torch's ops would run on.
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
  std::vector<std::pair<uint32_t, int64_t>>
      offsets;  // arguments that begin further on in their buffers, and by how many bytes
  std::vector<Size> sizes;
  Size extent{1};                      // parallel range [0, extent)
  int64_t grain = 0;  // at least this much per thread; 0 or less: one thread; -1: the function computes all of it
  int64_t unit = 1;                    // threads are given multiples of it, but for the last ones of the range
  bool operator==(const KernelStep&) const = default;
};
struct ExternStep {
  std::string op;                      // as OpDef::name
  Place place;                         // of its results
  std::vector<PlanArg> args;
  std::vector<BufferId> results;       // flattened; kNoBuffer when unused
  std::vector<int16_t> result_lists;   // as graph::Node
  uint32_t line = 0;
  bool operator==(const ExternStep&) const = default;
};
// A kTensor buffer for a kernel to write: empty_strided.
struct AllocateStep { BufferId buffer; bool operator==(const AllocateStep&) const = default; };
// The result is an as_strided view of base, its shape is its Buffer's.
struct ViewStep { BufferId base, result; bool operator==(const ViewStep&) const = default; };
struct FreeStep { BufferId buffer; bool operator==(const FreeStep&) const = default; };
struct TakeStep {
  uint32_t block;
  bool operator==(const TakeStep&) const = default;
};  // a block of the arena, not the first
struct GiveStep { uint32_t block; bool operator==(const GiveStep&) const = default; };
// Both are equal, or the call fails before anything is committed.
struct CheckStep { Size left, right; std::string message; bool operator==(const CheckStep&) const = default; };
using Step = std::variant<KernelStep, ExternStep, AllocateStep, ViewStep, FreeStep, TakeStep, GiveStep, CheckStep>;

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
  std::vector<ArenaBlock> arena;  // the first is there from the start to the end, unless it is empty; TakeStep and
                                  // GiveStep say for the others
  std::vector<Buffer> buffers;
  std::vector<Step> steps;
  std::vector<Output> outputs;
  std::vector<std::pair<uint32_t, BufferId>>
      updates;  // after all steps: input <- buffer (copy_, version bump); the input's own buffer: steps have written it
  std::vector<BufferId> saves;         // of a forward: what the executable's saved values are, in their order
  bool operator==(const CallPlan&) const = default;
};

// What the loop needs of tensors. One host per call; it owns the tensors of kTensor buffers until they are freed or
// returned.
class PlanHost {
 public:
  virtual ~PlanHost() = default;
  virtual void* data(BufferId buffer) = 0;     // base pointer with storage offset applied
  virtual void allocate(BufferId buffer) = 0;
  virtual void view(BufferId base, BufferId result) = 0;
  virtual void call(const ExternStep& step, size_t step_index) = 0;  // throws what the op throws
  virtual void release(BufferId buffer) = 0;
  virtual void enter(const Place& place) = 0;  // the next kernels run there; not called for kernels of the CPU
  virtual void take(uint32_t block,
                    int64_t bytes) = 0;  // what is still taken goes back when the call ends, however it does
  virtual void give(uint32_t block) = 0;
  virtual void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*body)(void*, int64_t, int64_t),
                            void* state) = 0;
  std::vector<int64_t> sizes;                  // the size array of this call
  int64_t size(const Size& s) const { return s.slot < 0 ? s.constant : sizes[s.slot]; }
};

// A plan and what its kernels are in this process: per step, null where it is no kernel.
struct BoundPlan {
  const CallPlan* plan = nullptr;
  std::vector<const LoadedKernel*> kernels;
};

// Runs all steps. A failed kernel check or CheckStep is an Error, and so is a launch that the driver refuses; what an
// extern call throws passes through.
Result<void> run_steps(const BoundPlan& bound, const int64_t* symbols, PlanHost& host);
std::string print(const CallPlan& plan);

}  // namespace framejit::runtime
