// What a target knows about a machine: which class's costs are used, its description, and that decisions follow a
// made-up target.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "inductor/loop/nest_builder.h"
#include "inductor/target/target_info.h"
#include "tests/unit/inductor/plan_runner.h"

namespace framejit::inductor::testing {
namespace {

Machine machine(const std::string& vendor, std::vector<std::string> features = {},
                const std::string& architecture = "x86_64") {
  return {architecture, vendor, std::move(features), {48 << 10, 1 << 20, 32 << 20, 64}, 8};
}

TEST(Target, TheFirstClassThatFits) {
  EXPECT_EQ(cpu_target(machine("AuthenticAMD"), VectorLevel::kAvx512).machine_class, MachineClass::zen_avx512);
  EXPECT_EQ(cpu_target(machine("GenuineIntel"), VectorLevel::kAvx512).machine_class, MachineClass::intel_avx512);
  EXPECT_EQ(cpu_target(machine("GenuineIntel", {"amx-bf16"}), VectorLevel::kAvx512).machine_class,
            MachineClass::intel_amx);
  EXPECT_EQ(cpu_target(machine("GenuineIntel", {"amx-bf16"}), VectorLevel::kAvx2).machine_class, MachineClass::avx2);
  EXPECT_EQ(cpu_target(machine("AnyMaker"), VectorLevel::kAvx2).machine_class, MachineClass::avx2);
  EXPECT_EQ(cpu_target(machine("AnyMaker"), VectorLevel::k128).machine_class, MachineClass::sse);
}

TEST(Target, AClassWithoutRowsTakesTheNearestByInstructionSetAndSaysSo) {
  const Machine other = machine("AnyMaker"), arm = machine("", {}, "aarch64");
  const TargetInfo wide = cpu_target(other, VectorLevel::kAvx512), narrow = cpu_target(arm, VectorLevel::k128);
  EXPECT_EQ(wide.machine_class, MachineClass::zen_avx512);
  EXPECT_EQ(narrow.machine_class, MachineClass::sse);
  EXPECT_EQ(wide.description,
            "32 registers of 512 bits, caches of 48 KiB, 1024 KiB and 32768 KiB, cores: 8; costs of zen_avx512, the "
            "nearest by instruction set: none "
            "were measured on CPUs like this one of AnyMaker (make bench NAME=costs prints a column)");
  EXPECT_NE(narrow.description.find("this one of aarch64"), std::string::npos);
  const TargetInfo known = cpu_target(machine("GenuineIntel"), VectorLevel::kAvx2);
  EXPECT_EQ(known.description,
            "16 registers of 256 bits, caches of 48 KiB, 1024 KiB and 32768 KiB, cores: 8; costs of avx2 (9 measured, "
            "the rest of zen_avx512)");
}

TEST(Target, WhoseNumbersAColumnHas) {
  EXPECT_NE(cpu_target(machine("AuthenticAMD"), VectorLevel::kAvx512).description.find("; costs of zen_avx512"),
            std::string::npos);
  const std::string amx = cpu_target(machine("GenuineIntel", {"amx-bf16"}), VectorLevel::kAvx512).description;
  EXPECT_TRUE(amx.ends_with("; costs of intel_amx (3 measured, 7 of avx2, the rest of zen_avx512)")) << amx;
}

TEST(Target, AGpuAndTheReferenceSayNothingOfThisMachine) {
  const TargetInfo gpu = gpu_target();
  EXPECT_EQ(gpu.description, "costs of gpu (56 measured, 1 of avx2, the rest of zen_avx512)");
  EXPECT_EQ(text_of(gpu), "costs gpu processors 132");
  EXPECT_EQ(reference_target().description,
            "the reference target, which describes no real machine; costs of zen_avx512");
}

TEST(Target, WhatTheMachineAnswers) {
  const TargetInfo target = cpu_target(machine("GenuineIntel", {"avx512bf16"}), VectorLevel::kAvx512);
  EXPECT_EQ(target.caches.second, 1 << 20);
  EXPECT_EQ(target.cores, 8);
  EXPECT_TRUE(target.multiplies_bf16);
  EXPECT_FALSE(cpu_target(machine("GenuineIntel"), VectorLevel::kAvx512).multiplies_bf16);
  EXPECT_TRUE(cpu_target(machine("", {}, "aarch64"), VectorLevel::k128).multiplies_bf16);
  EXPECT_EQ(this_machine().caches.line % 32, 0);
  EXPECT_LE(this_machine().caches.first, this_machine().caches.second);
  EXPECT_LE(this_machine().caches.second, this_machine().caches.last);
  EXPECT_GE(this_machine().cores, 1);
}

TEST(Target, CachesFromTheSystemsFiles) {
  const auto folder = std::filesystem::temp_directory_path() / ("framejit-caches-" + std::to_string(getpid()));
  const auto write = [&](int index, const std::vector<std::pair<std::string, std::string>>& files) {
    const auto own = folder / ("index" + std::to_string(index));
    std::filesystem::create_directories(own);
    for (const auto& [name, text] : files) std::ofstream(own / name) << text << "\n";
  };
  EXPECT_EQ(caches_in(folder).second, Caches().second) << "nothing is told";
  write(0, {{"level", "1"}, {"type", "Data"}, {"size", "32K"}, {"coherency_line_size", "128"}});
  write(1, {{"level", "1"}, {"type", "Instruction"}, {"size", "64K"}, {"coherency_line_size", "128"}});
  write(2, {{"level", "2"}, {"type", "Unified"}, {"size", "2048K"}, {"coherency_line_size", "128"}});
  EXPECT_EQ(caches_in(folder).last, 2 << 20) << "no third level";
  write(3, {{"level", "3"}, {"type", "Unified"}, {"size", "1G"}, {"coherency_line_size", "128"}});
  const Caches caches = caches_in(folder);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(caches.first, 32 << 10);
  EXPECT_EQ(caches.second, 2 << 20);
  EXPECT_EQ(caches.last, 1 << 30);
  EXPECT_EQ(caches.line, 128);
}

TEST(Target, EveryRowHasANumberInEachColumn) {
  std::set<std::string> names;
  for (const CostRow& row : cost_rows()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " stands twice";
    EXPECT_FALSE(std::string(row.unit).empty() || std::string(row.what).empty()) << row.name;
    bool is_measured = false;
    for (int k = 0; k <= static_cast<int>(MachineClass::gpu); ++k) {
      EXPECT_TRUE(row.numbers.has(row.of(static_cast<MachineClass>(k))))
          << row.name << " of " << name_of(static_cast<MachineClass>(k));
      is_measured = is_measured || row.measured_on(static_cast<MachineClass>(k)) == static_cast<MachineClass>(k);
    }
    EXPECT_TRUE(is_measured) << row.name;
  }
}

TEST(Target, MachineCodeIsKnownByAllThatItDependsOn) {
  const TargetInfo one = reference_target();
  TargetInfo other = one;
  other.caches.second *= 2;
  EXPECT_NE(text_of(one), text_of(other));
  ASSERT_TRUE(replace_costs("slab_rows=16, walked_points=8").ok());
  const TargetInfo replaced = reference_target();
  ASSERT_TRUE(replace_costs("").ok());
  EXPECT_EQ(replaced.costs.slab_rows, 16);
  EXPECT_EQ(replaced.costs.walked_points, 8);
  EXPECT_NE(text_of(one), text_of(replaced));
  EXPECT_EQ(text_of(one), text_of(reference_target()));
}

TEST(Target, ReplacedCostsAreRowsAndNumbers) {
  for (const char* wrong : {"no_such_row=1", "slab_rows", "slab_rows=", "slab_rows=many", "slab_rows=1x"}) {
    const auto refused = replace_costs(wrong);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_NE(refused.error().message.find(wrong), std::string::npos);
  }
  const std::pair<const char*, const char*> table[] = {{"walked_points=3", "a power of two, 1 or more"},
                                                       {"walked_points=0", "a power of two, 1 or more"},
                                                       {"product_columns=-1", "a multiple of 12, 12 or more"},
                                                       {"product_columns=50", "a multiple of 12, 12 or more"},
                                                       {"slab_rows=0", "1 or more"},
                                                       {"most_work=-1", "0 or more"}};
  for (const auto& [rows, numbers] : table) {
    const auto refused = replace_costs(rows);
    ASSERT_FALSE(refused.ok()) << rows;
    const std::string text = rows;
    EXPECT_EQ(refused.error().message, text + ": " + text.substr(0, text.find('=')) + " is " + numbers);
  }
  EXPECT_EQ(replaced_costs(), "");
}

const char* const kTransposed =
    "graph @f(%x : f32[64, 48; 1, 64], %y : f32[64, 48]) {\n  %0 = add.Tensor %y, %x, 1 : f32[64, 48]\n  return %0\n}";

TEST(Target, ATargetThatIsMadeUpDecides) {
  TargetInfo target = reference_target();
  EXPECT_TRUE(kernels_of(kTransposed, target).at(0).in_tiles);
  target.costs.tile_extent = 64;
  EXPECT_FALSE(kernels_of(kTransposed, target).at(0).in_tiles);
  const char* const pointwise = "graph @f(%x : f32[262144]) {\n  %0 = relu %x : f32[262144]\n  return %0\n}";
  EXPECT_EQ(kernels_of(pointwise, target).at(0).grain, 32768);
  target.costs.grain_points = 4096;
  EXPECT_EQ(kernels_of(pointwise, target).at(0).grain, 4096);
}

}  // namespace
}  // namespace framejit::inductor::testing
