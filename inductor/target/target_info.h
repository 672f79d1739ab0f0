// inductor/target/target_info.h — what lowering, scheduling, choices and emitters know of the machine that kernels are for.
//
// A target describes itself: how its device runs plans (target_facts.def), its vector registers, caches and cores, and what was measured on
// machines of its class (costs.def). Decisions read this and nothing else: no vendor, no device, no number of a machine of their own.
// Tests make one up, so that what they expect does not depend on the machine at hand.
#pragma once

#include <string>
#include <string_view>

#include "inductor/target/machine.h"
#include "runtime/base/result.h"

namespace framejit::inductor {

// Vector registers that code may use. kHost: the widest that this CPU has.
enum class VectorLevel : uint8_t { kHost, kAvx512, kAvx2, k128 };

// Columns of costs.def.
enum class MachineClass : uint8_t {
#define MACHINE_CLASS(name, level, vendor, feature, what) name,
#include "inductor/target/machine_classes.def"
#undef MACHINE_CLASS
  gpu
};

struct Costs {
#define COST(name, ...) int64_t name = 0;
#define CPU_COST(name, ...) int64_t name = 0;
#define GPU_COST(name, ...) int64_t name = 0;
#include "inductor/target/costs.def"
#undef COST
#undef CPU_COST
#undef GPU_COST
};

struct TargetFacts {
#define TARGET_FACT(name, cpu, gpu, what) bool name = cpu;
#include "inductor/target/target_facts.def"
#undef TARGET_FACT
};

// Of one thread; lanes of float32.
struct VectorRegisters {
  unsigned lanes = 16, width_bits = 512, count = 32;
};

struct TargetInfo {
  MachineClass machine_class{};  // whose costs these are
  bool is_measured = true;       // false: they are another class's, the nearest by instruction set
  VectorRegisters registers;
  Caches caches;
  int64_t cores = 1;             // that run kernels
  int64_t host_cores = 1;        // that compile them
  bool multiplies_bf16 = true;   // libraries multiply bfloat16 with instructions for it
  TargetFacts facts;
  Costs costs;
  std::string replaced;          // rows that replace_costs() has replaced
};

// A CPU whose code uses registers of `level`, which is not kHost.
TargetInfo cpu_target(const Machine& machine, VectorLevel level);
TargetInfo gpu_target();
// No machine at all but always the same one: for the interpreter, and for tests.
TargetInfo reference_target(VectorLevel level = VectorLevel::kAvx512);

// All that machine code depends on, as part of what a target says of itself.
std::string text_of(const TargetInfo& target);
// Which machine this is and whose costs count, for the log.
std::string description_of(const TargetInfo& target, const Machine& machine);

// "row=number, row=number": what stands in place of costs.def in targets that are made from now on. For benchmarks, which measure what a
// row is worth by compiling with other values of it. "" takes it back.
Result<void> replace_costs(std::string_view rows);
// The rows that are replaced now.
std::string replaced_costs();

struct CostRow {
  const char *name, *unit, *what;
  int64_t (*of)(MachineClass machine_class);
  bool (*is_measured)(MachineClass machine_class);  // false: the value of another class stands in
  int64_t Costs::*field;
};
const std::vector<CostRow>& cost_rows();
const char* name_of(MachineClass machine_class);

}  // namespace framejit::inductor
