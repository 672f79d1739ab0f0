// inductor/target/target_info.cpp — classes, columns, and rows that stand in for others.
#include "inductor/target/target_info.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>

namespace framejit::inductor {
namespace {

struct ClassRow {
  MachineClass machine_class;
  const char* name;
  VectorLevel level;
  std::string vendor, feature;
};

const std::vector<ClassRow>& class_rows() {
  static const std::vector<ClassRow> rows = {
#define MACHINE_CLASS(name, level, vendor, feature, what) {MachineClass::name, #name, VectorLevel::level, vendor, feature},
#include "inductor/target/machine_classes.def"
#undef MACHINE_CLASS
  };
  return rows;
}

constexpr size_t kClasses = static_cast<size_t>(MachineClass::gpu) + 1;
constexpr int64_t kLike = INT64_MIN;  // + the class whose number stands in
constexpr int64_t like(MachineClass machine_class) { return kLike + static_cast<int64_t>(machine_class); }
constexpr bool is_like(int64_t cell) { return cell < kLike + static_cast<int64_t>(kClasses); }
#define AS_ZEN like(MachineClass::zen_avx512)
#define AS_AVX2 like(MachineClass::avx2)
#define AS_GPU like(MachineClass::gpu)

using Cells = int64_t[kClasses];
constexpr int64_t resolved(const Cells& cells, MachineClass machine_class) {
  int64_t cell = cells[static_cast<size_t>(machine_class)];
  for (size_t turn = 0; turn < kClasses && is_like(cell); ++turn) cell = cells[static_cast<size_t>(cell - kLike)];
  return cell;
}
constexpr bool is_resolved(const Cells& cells) {
  for (size_t k = 0; k < kClasses; ++k)
    if (is_like(resolved(cells, static_cast<MachineClass>(k)))) return false;
  return true;
}

// A row with a column too few or too many, or one of which no class has a number, does not compile.
struct Table {
#define CELLS(name, ...)                       \
  static constexpr Cells name = {__VA_ARGS__}; \
  static_assert(is_resolved(name), "a column is like another that is like it");
#define COST(name, unit, a, b, c, d, e, f, what) CELLS(name, a, b, c, d, e, f)
#define CPU_COST(name, unit, a, b, c, d, e, what) CELLS(name, a, b, c, d, e, AS_ZEN)
#define GPU_COST(name, unit, a, what) CELLS(name, AS_GPU, AS_GPU, AS_GPU, AS_GPU, AS_GPU, a)
#include "inductor/target/costs.def"
#undef COST
#undef CPU_COST
#undef GPU_COST
#undef CELLS
};
#undef AS_ZEN
#undef AS_AVX2
#undef AS_GPU

std::mutex mutex;
std::map<std::string, int64_t> replacements;

void take_costs(TargetInfo& target) {
  const std::lock_guard lock(mutex);
  for (const CostRow& row : cost_rows()) {
    const auto replaced = replacements.find(row.name);
    target.costs.*row.field = replaced == replacements.end() ? row.of(target.machine_class) : replaced->second;
    if (replaced != replacements.end()) target.replaced += std::string(row.name) + "=" + std::to_string(replaced->second) + ", ";
  }
}

VectorRegisters registers_of(VectorLevel level) {
  if (level == VectorLevel::kAvx512) return {16, 512, 32};
  if (level == VectorLevel::kAvx2) return {8, 256, 16};
  return {4, 128, 16};
}

// The first row that fits; else the first of the level.
const ClassRow& class_of(const Machine& machine, VectorLevel level, bool& is_measured) {
  const std::vector<ClassRow>& rows = class_rows();
  const auto fits = [&](const ClassRow& row) {
    return row.level == level && machine.architecture == "x86_64" && (row.vendor.empty() || row.vendor == machine.vendor) && (row.feature.empty() || machine.has(row.feature));
  };
  const auto row = std::find_if(rows.begin(), rows.end(), fits);
  is_measured = row != rows.end();
  return is_measured ? *row : *std::find_if(rows.begin(), rows.end(), [&](const ClassRow& r) { return r.level == level; });
}

std::string kib(int64_t bytes) { return std::to_string(bytes >> 10) + " KiB"; }

}  // namespace

const std::vector<CostRow>& cost_rows() {
  static const std::vector<CostRow> rows = {
#define ROW(name, unit, what) \
  {#name, unit, what, [](MachineClass c) { return resolved(Table::name, c); }, [](MachineClass c) { return !is_like(Table::name[static_cast<size_t>(c)]); }, &Costs::name},
#define COST(name, unit, a, b, c, d, e, f, what) ROW(name, unit, what)
#define CPU_COST(name, unit, a, b, c, d, e, what) ROW(name, unit, what)
#define GPU_COST(name, unit, a, what) ROW(name, unit, what)
#include "inductor/target/costs.def"
#undef COST
#undef CPU_COST
#undef GPU_COST
#undef ROW
  };
  return rows;
}

const char* name_of(MachineClass machine_class) {
  for (const ClassRow& row : class_rows())
    if (row.machine_class == machine_class) return row.name;
  return "gpu";
}

TargetInfo cpu_target(const Machine& machine, VectorLevel level) {
  TargetInfo target;
  target.machine_class = class_of(machine, level, target.is_measured).machine_class;
  target.registers = registers_of(level);
  target.caches = machine.caches;
  target.cores = target.host_cores = machine.cores;
  target.multiplies_bf16 = machine.architecture != "x86_64" || machine.has("avx512bf16");
  take_costs(target);
  return target;
}

TargetInfo gpu_target() {
  TargetInfo target;
  target.machine_class = MachineClass::gpu;
  target.host_cores = this_machine().cores;
#define TARGET_FACT(name, cpu, gpu, what) target.facts.name = gpu;
#include "inductor/target/target_facts.def"
#undef TARGET_FACT
  take_costs(target);
  return target;
}

TargetInfo reference_target(VectorLevel level) {
  Machine machine{"x86_64", "AuthenticAMD", {"avx512bf16"}, {48 << 10, 1 << 20, 32 << 20, 64}, 2};
  return cpu_target(machine, level);
}

std::string text_of(const TargetInfo& target) {
  return std::string("costs ") + name_of(target.machine_class) + (target.replaced.empty() ? "" : " but " + target.replaced) + " caches " +
         std::to_string(target.caches.first) + " " + std::to_string(target.caches.second) + " " + std::to_string(target.caches.last) + " line " + std::to_string(target.caches.line);
}

std::string description_of(const TargetInfo& target, const Machine& machine) {
  const std::string own = std::to_string(target.registers.count) + " registers of " + std::to_string(target.registers.width_bits) + " bits, caches of " + kib(target.caches.first) + ", " +
                          kib(target.caches.second) + " and " + kib(target.caches.last) + ", cores: " + std::to_string(target.cores);
  const std::string costs = std::string("; costs of ") + name_of(target.machine_class);
  if (target.is_measured) return own + costs;
  const std::string maker = machine.vendor.empty() ? machine.architecture : machine.vendor;
  return own + costs + ", the nearest by instruction set: none were measured on CPUs like this one of " + maker + " (make bench NAME=costs prints a column)";
}

Result<void> replace_costs(std::string_view rows) {
  std::map<std::string, int64_t> given;
  while (!rows.empty()) {
    const size_t comma = std::min(rows.find(','), rows.size());
    std::string_view one = rows.substr(0, comma);
    rows.remove_prefix(std::min(comma + 1, rows.size()));
    one.remove_prefix(std::min(one.find_first_not_of(' '), one.size()));
    const size_t equals = std::min(one.find('='), one.size());
    const std::string name(one.substr(0, equals));
    int64_t number = 0;
    const std::string_view text = one.substr(std::min(equals + 1, one.size()));
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_row = std::any_of(cost_rows().begin(), cost_rows().end(), [&](const CostRow& row) { return row.name == name; });
    if (!is_row || failed != std::errc() || end != text.data() + text.size()) return Error{"costs", "no row of costs.def and its number: " + std::string(one)};
    given[name] = number;
  }
  const std::lock_guard lock(mutex);
  replacements = std::move(given);
  return {};
}

std::string replaced_costs() {
  const std::lock_guard lock(mutex);
  std::string text;
  for (const auto& [name, number] : replacements) text += name + "=" + std::to_string(number) + ", ";
  return text;
}

}  // namespace framejit::inductor
