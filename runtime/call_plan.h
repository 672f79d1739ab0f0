// runtime/call_plan.h — a compiled graph as data: a flat array of steps run by one small loop.
//
// Sizes are constants or slots of a per-call array that `size_program` fills from the symbols. Buffers live in an input, a
// constant, the arena, or a tensor of their own (outputs, results and operands of extern calls). The loop that runs a plan is
// call_plan.cpp; what it needs of tensors (allocate, view, extern call) it asks of a PlanHost, which runtime/aten implements.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/abi.h"
#include "runtime/base/result.h"
#include "runtime/dtype.h"
#include "runtime/size_op.h"

namespace framejit::runtime {

using BufferId = uint32_t;
inline constexpr BufferId kNoBuffer = UINT32_MAX;
inline constexpr uint32_t kArenaBlocks = 3;  // at most

struct Size {
  int64_t constant = 0;
  int32_t slot = -1;  // >= 0: value of that size slot, `constant` unused
};

enum class Home : uint8_t { kInput, kConstant, kArena, kTensor };
struct Buffer {
  Home home = Home::kTensor;
  uint32_t index = 0;        // kInput, kConstant: which one; kArena: which block
  DType dtype = DType::kFloat32;
  int32_t torch_dtype = 6;   // c10::ScalarType, also for dtypes without a row
  int8_t device_type = 0, device_index = -1;  // c10 values
  std::vector<Size> sizes, strides;
  Size offset;               // in elements; kArena: in bytes, in the block
};

struct None {};
struct TorchEnum { char kind; int8_t value; };     // as graph::TorchEnum
struct TorchDType { int32_t scalar_type; };
struct TorchDevice { int8_t type, index; };
struct OpaqueSlot { uint32_t index; };
struct PlanArg {             // argument of an extern call, in schema order
  std::variant<None, BufferId, std::vector<BufferId>, Size, std::vector<Size>, double, std::vector<double>, bool, std::vector<bool>,
               std::string, TorchDType, TorchDevice, TorchEnum, OpaqueSlot>
      payload;
};

struct KernelStep {
  FjKernelFn function = nullptr;
  std::shared_ptr<void> code;          // keeps the machine code
  std::string name;
  std::vector<BufferId> buffers;
  std::vector<Size> sizes;
  std::vector<FjScalar> scalars;
  Size extent{1};                      // parallel range [0, extent)
  int64_t grain = 0;                   // at least this much per thread; 0 or less: one thread; -1: the function computes all of it
  int64_t unit = 1;                    // threads are given multiples of it, but for the last ones of the range
};
struct ExternStep {
  std::string op;                      // as OpDef::name
  std::vector<PlanArg> args;
  std::vector<BufferId> results;       // flattened; kNoBuffer when unused
  std::vector<int16_t> result_lists;   // as graph::Node
  uint32_t line = 0;
};
struct AllocateStep { BufferId buffer; };                  // a kTensor buffer for a kernel to write: empty_strided
struct ViewStep { BufferId base, result; };                // result is an as_strided view of base, shape from its Buffer
struct FreeStep { BufferId buffer; };
struct TakeStep { uint32_t block; Size bytes; };           // a block of the arena; block 0 is there from the start to the end
struct GiveStep { uint32_t block; };
struct CheckStep { Size left, right; std::string message; };  // equal, or the call fails before anything is committed
using Step = std::variant<KernelStep, ExternStep, AllocateStep, ViewStep, FreeStep, TakeStep, GiveStep, CheckStep>;

struct Output {
  enum Kind : uint8_t { kBuffer, kInput } kind = kBuffer;
  uint32_t index = 0;                  // BufferId, or input index: the same object is returned
};

struct CallPlan {
  std::string name;
  uint32_t input_count = 0, symbol_count = 0;
  std::vector<SizeOp> size_program;    // slot i of the size array holds the result of size_program[i]
  Size arena_bytes;                    // of block 0
  std::vector<Buffer> buffers;
  std::vector<Step> steps;
  std::vector<Output> outputs;
  std::vector<std::pair<uint32_t, BufferId>> updates;  // after all steps: input <- buffer (copy_, version bump); the input's own buffer: steps have written it
};

// What the loop needs of tensors. One host per call; it owns the tensors of kTensor buffers until they are freed or returned.
class PlanHost {
 public:
  virtual ~PlanHost() = default;
  virtual void* data(BufferId buffer) = 0;     // base pointer with storage offset applied
  virtual void allocate(BufferId buffer) = 0;
  virtual void view(BufferId base, BufferId result) = 0;
  virtual void call(const ExternStep& step, size_t step_index) = 0;  // throws what the op throws
  virtual void release(BufferId buffer) = 0;
  virtual void take(uint32_t block, int64_t bytes) = 0;  // what is still taken goes back when the call ends, however it does
  virtual void give(uint32_t block) = 0;
  virtual void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*body)(void*, int64_t, int64_t), void* state) = 0;
  std::vector<int64_t> sizes;                  // the size array of this call
  int64_t size(const Size& s) const { return s.slot < 0 ? s.constant : sizes[s.slot]; }
};

// Runs all steps. A failed kernel check or CheckStep is an Error; what an extern call throws passes through.
Result<void> run_steps(const CallPlan& plan, const int64_t* symbols, PlanHost& host);
std::string print(const CallPlan& plan);

}  // namespace framejit::runtime
