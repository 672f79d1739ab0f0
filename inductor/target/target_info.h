// inductor/target/target_info.h — what lowering, scheduling, choices and emitters know about the machine that kernels
// are for.
//
// A target describes itself: how its device runs plans (target_traits.def), its vector registers, caches and cores, and
// what was measured on machines of its class (costs.def). Decisions read only this: they contain no vendor, no device
// and no machine-specific number.
// Tests use targets of their own, so that what they expect does not depend on this machine.
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

struct TargetTraits {
#define TARGET_TRAIT(name, cpu, gpu, what) bool name = cpu;
#include "inductor/target/target_traits.def"
#undef TARGET_TRAIT
};

// Of one thread; in lanes of float32.
struct VectorRegisters {
  unsigned lanes = 16, width_bits = 512, count = 32;
  bool are_wide() const { return width_bits >= 512; }
};

struct TargetInfo {
  MachineClass machine_class{};  // whose costs these are
  VectorRegisters registers;
  Caches caches;
  int64_t cores = 1;             // of the host, for compiling kernels
  int64_t processors = 132;  // of a GPU: units that run blocks side by side
  bool multiplies_bf16 = true;   // libraries have instructions to multiply bfloat16
  TargetTraits traits;
  Costs costs;
  std::string replaced;          // rows that replace_costs() has replaced
  std::string description;       // for the log
};

// A CPU whose code uses registers of `level`, which is not kHost.
TargetInfo cpu_target(const Machine& machine, VectorLevel level);
TargetInfo gpu_target();
// Describes no real machine, but always the same one: for the interpreter, and for tests.
TargetInfo reference_target(VectorLevel level = VectorLevel::kAvx512);

// Everything that machine code depends on, as part of a target's description.
std::string text_of(const TargetInfo& target);

// "row=number, row=number": replaces rows of costs.def in targets made from now on. For benchmarks, which measure the
// value of a row by compiling with other numbers. "" undoes it.
Result<void> replace_costs(std::string_view rows);
// The rows that are currently replaced.
std::string replaced_costs();

// The numbers that are allowed in a row.
struct CostNumbers {
  int64_t least = 0, multiple_of = 1;
  bool is_power_of_two = false;
  constexpr bool has(int64_t n) const {
    return n >= least && n % multiple_of == 0 && (!is_power_of_two || (n & (n - 1)) == 0);
  }
};
std::string text_of(const CostNumbers& numbers);  // "a power of two, 1 or more"

enum class CostAsker : uint8_t {
  any,
  cpu,
  gpu
};

struct CostRow {
  const char *name, *unit, *what;
  CostAsker asker;
  CostNumbers numbers;
  int64_t (*of)(MachineClass machine_class);
  // The class whose number it is: another's, if none was measured.
  MachineClass (*measured_on)(MachineClass machine_class);
  int64_t Costs::*field;
};
const std::vector<CostRow>& cost_rows();
const char* name_of(MachineClass machine_class);

}  // namespace framejit::inductor
