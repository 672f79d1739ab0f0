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
#define MACHINE_CLASS(name, level, vendor, feature, what) \
  {MachineClass::name, #name, VectorLevel::level, vendor, feature},
#include "inductor/target/machine_classes.def"
#undef MACHINE_CLASS
  };
  return rows;
}

constexpr size_t kClasses = static_cast<size_t>(MachineClass::gpu) + 1;
constexpr int64_t kLike = INT64_MIN;  // + the class whose number is used instead
constexpr int64_t like(MachineClass machine_class) { return kLike + static_cast<int64_t>(machine_class); }
constexpr bool is_like(int64_t cell) { return cell < kLike + static_cast<int64_t>(kClasses); }
#define AS_ZEN like(MachineClass::zen_avx512)
#define AS_AMX like(MachineClass::intel_amx)
#define AS_AVX2 like(MachineClass::avx2)
#define AS_GPU like(MachineClass::gpu)

using Cells = int64_t[kClasses];
// The class whose number is in the cell.
constexpr MachineClass measured_on(const Cells& cells, MachineClass machine_class) {
  for (size_t turn = 0; turn < kClasses && is_like(cells[static_cast<size_t>(machine_class)]); ++turn)
    machine_class = static_cast<MachineClass>(cells[static_cast<size_t>(machine_class)] - kLike);
  return machine_class;
}
constexpr int64_t number_of(const Cells& cells, MachineClass machine_class) {
  return cells[static_cast<size_t>(measured_on(cells, machine_class))];
}
constexpr bool are_resolved(const Cells& cells) {
  for (size_t k = 0; k < kClasses; ++k)
    if (is_like(number_of(cells, static_cast<MachineClass>(k)))) return false;
  return true;
}
constexpr bool are_among(const Cells& cells, const CostNumbers& numbers) {
  for (size_t k = 0; k < kClasses; ++k)
    if (!numbers.has(number_of(cells, static_cast<MachineClass>(k)))) return false;
  return true;
}

// Words of costs.def.
constexpr CostNumbers any{}, positive{1}, power_of_two{1, 1, true};
constexpr CostNumbers multiple_of(int64_t n) { return {n, n}; }

// A row does not compile if it has too few or too many columns, if no class has a number, or if a number is not
// allowed.
struct Table {
#define CELLS(name, numbers, ...)                                                \
  static constexpr Cells name = {__VA_ARGS__};                                   \
  static_assert(are_resolved(name), "two columns refer to each other"); \
  static_assert(are_among(name, numbers), "a number that is not allowed in the row");
#define COST(name, unit, numbers, a, b, c, d, e, f, what) CELLS(name, numbers, a, b, c, d, e, f)
#define CPU_COST(name, unit, numbers, a, b, c, d, e, what) CELLS(name, numbers, a, b, c, d, e, AS_ZEN)
#define GPU_COST(name, unit, numbers, a, what) CELLS(name, numbers, AS_GPU, AS_GPU, AS_GPU, AS_GPU, AS_GPU, a)
#include "inductor/target/costs.def"
#undef COST
#undef CPU_COST
#undef GPU_COST
#undef CELLS
};
#undef AS_ZEN
#undef AS_AMX
#undef AS_AVX2
#undef AS_GPU

std::mutex mutex;
std::map<std::string, int64_t> replacements;

void take_costs(TargetInfo& target) {
  const std::lock_guard lock(mutex);
  for (const CostRow& row : cost_rows()) {
    const auto replaced = replacements.find(row.name);
    target.costs.*row.field = replaced == replacements.end() ? row.of(target.machine_class) : replaced->second;
    if (replaced != replacements.end())
      target.replaced += std::string(row.name) + "=" + std::to_string(replaced->second) + ", ";
  }
}

VectorRegisters registers_of(VectorLevel level) {
  if (level == VectorLevel::kAvx512) return {16, 512, 32};
  if (level == VectorLevel::kAvx2) return {8, 256, 16};
  return {4, 128, 16};
}

// The first row that fits; otherwise the first of the level.
const ClassRow& class_of(const Machine& machine, VectorLevel level, bool& fits_machine) {
  const std::vector<ClassRow>& rows = class_rows();
  const auto fits = [&](const ClassRow& row) {
    return row.level == level && machine.architecture == "x86_64" &&
           (row.vendor.empty() || row.vendor == machine.vendor) && (row.feature.empty() || machine.has(row.feature));
  };
  const auto row = std::find_if(rows.begin(), rows.end(), fits);
  fits_machine = row != rows.end();
  return fits_machine ? *row
                      : *std::find_if(rows.begin(), rows.end(), [&](const ClassRow& r) { return r.level == level; });
}

std::string kib(int64_t bytes) { return std::to_string(bytes >> 10) + " KiB"; }

// "costs of avx2 (9 measured, the rest of zen_avx512)"
std::string costs_text(MachineClass machine_class) {
  std::map<MachineClass, int> counts;
  for (const CostRow& row : cost_rows())
    if (row.asker == CostAsker::any || (row.asker == CostAsker::gpu) == (machine_class == MachineClass::gpu))
      ++counts[row.measured_on(machine_class)];
  const int own = counts[machine_class];
  counts.erase(machine_class);
  const std::string text = std::string("costs of ") + name_of(machine_class);
  if (counts.empty()) return text;
  const auto most = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
                      return a.second < b.second;
                    })->first;
  std::string others;
  for (const auto& [other, count] : counts)
    if (other != most) others += ", " + std::to_string(count) + " of " + name_of(other);
  return text + " (" + std::to_string(own) + " measured" + others + ", the rest of " + name_of(most) + ")";
}

}  // namespace

const std::vector<CostRow>& cost_rows() {
  static const std::vector<CostRow> rows = {
#define ROW(name, unit, asker, numbers, what)                  \
  {#name,                                                      \
   unit,                                                       \
   what,                                                       \
   CostAsker::asker,                                           \
   numbers,                                                    \
   [](MachineClass c) { return number_of(Table::name, c); },   \
   [](MachineClass c) { return measured_on(Table::name, c); }, \
   &Costs::name},
#define COST(name, unit, numbers, a, b, c, d, e, f, what) ROW(name, unit, any, numbers, what)
#define CPU_COST(name, unit, numbers, a, b, c, d, e, what) ROW(name, unit, cpu, numbers, what)
#define GPU_COST(name, unit, numbers, a, what) ROW(name, unit, gpu, numbers, what)
#include "inductor/target/costs.def"
#undef COST
#undef CPU_COST
#undef GPU_COST
#undef ROW
  };
  return rows;
}

std::string text_of(const CostNumbers& numbers) {
  const std::string more = std::to_string(numbers.least) + " or more";
  if (numbers.is_power_of_two) return "a power of two, " + more;
  return numbers.multiple_of > 1 ? "a multiple of " + std::to_string(numbers.multiple_of) + ", " + more : more;
}

const char* name_of(MachineClass machine_class) {
  for (const ClassRow& row : class_rows())
    if (row.machine_class == machine_class) return row.name;
  return "gpu";
}

TargetInfo cpu_target(const Machine& machine, VectorLevel level) {
  TargetInfo target;
  bool fits_machine = false;
  target.machine_class = class_of(machine, level, fits_machine).machine_class;
  target.registers = registers_of(level);
  target.caches = machine.caches;
  target.cores = machine.cores;
  target.multiplies_bf16 = machine.architecture != "x86_64" || machine.has("avx512bf16");
  take_costs(target);
  target.description = std::to_string(target.registers.count) + " registers of " +
                       std::to_string(target.registers.width_bits) + " bits, caches of " + kib(target.caches.first) +
                       ", " + kib(target.caches.second) + " and " + kib(target.caches.last) +
                       ", cores: " + std::to_string(target.cores) + "; " + costs_text(target.machine_class);
  if (!fits_machine)
    target.description += ", the nearest by instruction set: none were measured on CPUs like this one of " +
                          (machine.vendor.empty() ? machine.architecture : machine.vendor) +
                          " (make bench NAME=costs prints a column)";
  return target;
}

TargetInfo gpu_target() {
  TargetInfo target;
  target.machine_class = MachineClass::gpu;
  target.cores = this_machine().cores;
#define TARGET_TRAIT(name, cpu, gpu, what) target.traits.name = gpu;
#include "inductor/target/target_traits.def"
#undef TARGET_TRAIT
  take_costs(target);
  target.description = costs_text(target.machine_class);
  return target;
}

TargetInfo reference_target(VectorLevel level) {
  Machine machine{"x86_64", "AuthenticAMD", {"avx512bf16"}, {48 << 10, 1 << 20, 32 << 20, 64}, 2};
  TargetInfo target = cpu_target(machine, level);
  target.description = "the reference target, which describes no real machine; " + costs_text(target.machine_class);
  return target;
}

std::string text_of(const TargetInfo& target) {
  const std::string replaced = target.replaced.empty() ? "" : " but " + target.replaced;
  const std::string costs = std::string("costs ") + name_of(target.machine_class) + replaced;
  if (target.machine_class == MachineClass::gpu) return costs + " processors " + std::to_string(target.processors);
  return costs + " caches " + std::to_string(target.caches.first) + " " + std::to_string(target.caches.second) + " " +
         std::to_string(target.caches.last) + " line " + std::to_string(target.caches.line);
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
    const auto row =
        std::find_if(cost_rows().begin(), cost_rows().end(), [&](const CostRow& r) { return r.name == name; });
    if (row == cost_rows().end() || failed != std::errc() || end != text.data() + text.size())
      return Error{Reason::bad_setting, "not a row of costs.def and a number: " + std::string(one)};
    if (!row->numbers.has(number))
      return Error{Reason::bad_setting, std::string(one) + ": " + name + " is " + text_of(row->numbers)};
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
