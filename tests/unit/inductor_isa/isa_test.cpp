// Kernels for CPUs other than this one: their assembly is read, not run.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <sstream>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>

#include "inductor/cpu/code_target.h"
#include "tests/unit/inductor/plan_runner.h"

namespace framejit::inductor::testing {
namespace {

// A CPU in LLVM's terms, whose target the caller has initialised.
struct CodeTarget {
  std::string triple, cpu, features;
  EmitOptions options;
};

CodeTarget x86(VectorLevel level, const char* cpu = nullptr) {
  return {"x86_64-unknown-linux-gnu", cpu != nullptr ? cpu : cpu_of(level), "", EmitOptions(reference_target(level))};
}
CodeTarget arm(const char* features) {
  return {"aarch64-unknown-linux-gnu", "generic", features, EmitOptions(reference_target(VectorLevel::k128))};
}

const char* const kGraphs[][2] = {
    {"pointwise",
     "graph @f(%x : f32[9, 1001], %y : f32[9, 1001]) {\n  %0 = mul.Tensor %x, %y : f32[9, 1001]\n  %1 = add.Tensor %0, "
     "%y, 1 : f32[9, 1001]\n"
     "  %2 = relu %1 : f32[9, 1001]\n  return %2\n}"},
    {"softmax", "graph @f(%x : f32[33, 1000]) {\n  %0 = _softmax %x, 1, false : f32[33, 1000]\n  return %0\n}"},
    {"gelu", "graph @f(%x : f32[4099]) {\n  %0 = gelu %x, \"none\" : f32[4099]\n  return %0\n}"},
    {"tile",
     "graph @f(%x : f32[127, 70; 1, 127], %y : f32[127, 70]) {\n  %0 = add.Tensor %y, %x, 1 : f32[127, 70]\n  return "
     "%0\n}"},
    {"argmax", "graph @f(%x : f32[33, 1000]) {\n  %0 = argmax %x, 1, false : i64[33]\n  return %0\n}"},
    {"bfloat16",
     "graph @f(%x : bf16[4099], %y : bf16[4099]) {\n  %0 = add.Tensor %x, %y, 1 : bf16[4099]\n  return %0\n}"},
    {"float16", "graph @f(%x : f16[4099], %y : f16[4099]) {\n  %0 = add.Tensor %x, %y, 1 : f16[4099]\n  return %0\n}"},
    {"sin", "graph @f(%x : f32[4099]) {\n  %0 = sin %x : f32[4099]\n  return %0\n}"},
    {"pow", "graph @f(%x : f32[4099], %y : f32[4099]) {\n  %0 = pow.Tensor_Tensor %x, %y : f32[4099]\n  return %0\n}"},
};

struct Code {
  std::string all;                 // instructions, no directives
  std::vector<std::string> loops;  // those that contain no other loop
};

Code code_of(const std::string& assembly) {
  std::vector<std::string> lines;
  std::map<std::string, size_t> labels;
  std::vector<std::pair<size_t, size_t>> loops;
  std::istringstream stream(assembly);
  static const std::regex kLabel(R"(^(\.LBB\w+):.*)"), kTarget(R"(^\s+(j\w+|b|b\.\w+|cbn?z|tbn?z)\s.*(\.LBB\w+).*)");
  Code code;
  for (std::string line; std::getline(stream, line);) {
    std::smatch match;
    if (std::regex_match(line, match, kLabel)) labels[match[1]] = lines.size();
    if (line.empty() || line[0] != '\t' || line[1] == '.') continue;
    if (std::regex_match(line, match, kTarget) && labels.count(match[2]) != 0)
      loops.emplace_back(labels[match[2]], lines.size());
    lines.push_back(line);
    code.all += line + "\n";
  }
  for (const auto& [from, to] : loops) {
    const bool holds_another = std::any_of(loops.begin(), loops.end(),
                                           [&](const auto& other) { return other.first > from && other.second < to; });
    std::string body;
    for (size_t k = from; k <= to; ++k) body += lines[k] + "\n";
    if (!holds_another) code.loops.push_back(std::move(body));
  }
  return code;
}

Result<std::string> assembly_for(const Kernel& kernel, const CodeTarget& target) {
  prepare_code_generation();
  const llvm::Triple triple(target.triple);
  std::string problem;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple, problem);
  if (found == nullptr) return Error{Reason::code_generation, problem};
  const std::unique_ptr<llvm::TargetMachine> machine(
      found->createTargetMachine(triple, target.cpu, target.features, llvm::TargetOptions(), llvm::Reloc::PIC_,
                                 llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default, true));
  llvm::LLVMContext context;
  FJ_TRY(auto module, make_module(kernel, "kernel", context, triple, machine->createDataLayout(), target.options));
  return assembly_of(*module, *machine);
}

std::map<std::string, Code> compiled(const CodeTarget& target) {
  static const bool initialised = [] {
    LLVMInitializeX86TargetInfo(), LLVMInitializeX86Target(), LLVMInitializeX86TargetMC(),
        LLVMInitializeX86AsmPrinter();
    LLVMInitializeAArch64TargetInfo(), LLVMInitializeAArch64Target(), LLVMInitializeAArch64TargetMC(),
        LLVMInitializeAArch64AsmPrinter();
    return true;
  }();
  std::map<std::string, Code> all;
  for (const auto& [name, graph] : kGraphs) {
    const std::vector<Kernel> kernels = kernels_of(graph);
    EXPECT_TRUE(initialised && kernels.size() == 1) << name;
    const auto text = assembly_for(kernels.at(0), target);
    EXPECT_TRUE(text.ok()) << name << ": " << text.error().message;
    if (text.ok()) all[name] = code_of(text.value());
  }
  return all;
}

bool has(const std::string& text, const char* pattern) { return std::regex_search(text, std::regex(pattern)); }

// What the text of a level must contain; the check returns the first violation, or nothing.
struct Wanted {
  const char* in_a_loop;       // wide registers
  const char* nowhere;         // wide registers of other levels; null: none
  const char* masked;          // of tails; null: LLVM does it its own way
  const char* calls = "fj_far_";  // allowed calls
};

std::string missing(const std::string& name, const Code& code, const Wanted& wanted) {
  const bool in_a_loop = std::any_of(code.loops.begin(), code.loops.end(),
                                     [&](const std::string& body) { return has(body, wanted.in_a_loop); });
  if (!in_a_loop) return name + ": no loop with " + wanted.in_a_loop;
  if (wanted.nowhere != nullptr && has(code.all, wanted.nowhere)) return name + ": there is " + wanted.nowhere;
  if (wanted.masked != nullptr && !has(code.all, wanted.masked)) return name + ": no " + wanted.masked;
  static const std::regex kCall(R"(\t(callq|bl)\t\*?(\S+))");
  for (std::sregex_iterator at(code.all.begin(), code.all.end(), kCall), end; at != end; ++at)
    if (!has((*at)[2], wanted.calls)) return name + ": calls " + (*at)[2].str();
  return "";
}

std::string missing(const CodeTarget& target, const Wanted& wanted) {
  for (const auto& [name, code] : compiled(target))
    if (std::string what = missing(name, code, wanted); !what.empty()) return what + "\n" + code.all;
  return "";
}

const Wanted kAvx512{"%zmm", nullptr, R"(\{%k[1-7]\})"};
const Wanted kAvx2{"%ymm", "%zmm|%k[0-7]", nullptr};
// Half precision without instructions for it is converted lane by lane.
const Wanted kGeneric{"%xmm", "%[yz]mm|%k[0-7]", nullptr, "fj_far_|__extendhfsf2|__truncsfhf2"};

TEST(Isa, Avx512UsesWideRegistersAndMasks) {
  EXPECT_EQ(missing(x86(VectorLevel::kAvx512), kAvx512), "");
  for (const char* cpu : {"icelake-server", "sapphirerapids"})
    EXPECT_EQ(missing(x86(VectorLevel::kAvx512, cpu), kAvx512), "") << cpu;
}

// Without a division, without a second branch, and without the steps that make a power of two from an exponent.
TEST(Isa, Avx512FunctionsTakeTablesAndScales) {
  auto wide = compiled(x86(VectorLevel::kAvx512)), narrow = compiled(x86(VectorLevel::kAvx2));
  EXPECT_TRUE(has(wide["gelu"].all, R"(\tvpermps)"));
  EXPECT_TRUE(has(wide["softmax"].all, R"(\tvscalefps)"));
  EXPECT_FALSE(has(wide["gelu"].all, R"(\tvdivps)"));
  EXPECT_FALSE(has(narrow["gelu"].all, R"(\tvpermps)"));
  EXPECT_FALSE(has(narrow["softmax"].all, R"(\tvscalefps)"));
}

TEST(Isa, Avx2StaysWithinItsRegisters) { EXPECT_EQ(missing(x86(VectorLevel::kAvx2), kAvx2), ""); }
TEST(Isa, GenericStaysWithinItsRegisters) { EXPECT_EQ(missing(x86(VectorLevel::k128), kGeneric), ""); }

// The tests above fail for code of a narrower level, for half of the width, and if masks are loops over lanes.
TEST(Isa, TheChecksSeeNarrowCode) {
  CodeTarget halved = x86(VectorLevel::kAvx512);
  halved.options.target.registers.lanes = 8;
  halved.options.target.registers.width_bits = 256;
  EXPECT_NE(missing(halved, kAvx512), "");
  CodeTarget narrow = x86(VectorLevel::kAvx512);
  narrow.options.target.registers.width_bits = 256;
  EXPECT_NE(missing(narrow, kAvx512), "");
  EXPECT_NE(missing(x86(VectorLevel::kAvx2), kAvx512), "");
  EXPECT_NE(missing(x86(VectorLevel::k128), kAvx2), "");
  EXPECT_NE(missing(x86(VectorLevel::kAvx512), kAvx2), "");
  EXPECT_NE(missing(x86(VectorLevel::kAvx2), kGeneric), "");
}

TEST(Isa, AArch64HasVectorCode) {
  EXPECT_EQ(missing(arm("+neon"), {R"(\bv\d+\.(4s|2d|8h)\b)", R"(\bz\d+\.|\bp\d+/)", nullptr}), "");
  EXPECT_EQ(missing(arm("+neon,+sve"), {R"(\bv\d+\.(4s|2d|8h)\b)", nullptr, nullptr}), "");
  EXPECT_TRUE(has(compiled(arm("+neon,+sve"))["pointwise"].all, R"(\bp\d+/[zm])")) << "a mask is a predicate";
}

// Exact where eager is: see LaneOps::rounded_bits and to_memory.
TEST(Isa, HalfPrecisionIsConvertedAndComputedInFloat32) {
  for (const char* cpu : {"x86-64-v3", "icelake-server", "sapphirerapids"}) {
    const bool is_wide = cpu[0] != 'x';
    auto codes = compiled(x86(is_wide ? VectorLevel::kAvx512 : VectorLevel::kAvx2, cpu));
    EXPECT_FALSE(has(codes["bfloat16"].all, "vcvtne")) << "it takes denormals for zero";
    EXPECT_TRUE(has(codes["float16"].all, "vcvtps2ph")) << codes["float16"].all;
    EXPECT_TRUE(has(codes["float16"].all, "vcvtph2ps"));
    for (const char* name : {"bfloat16", "float16"}) EXPECT_TRUE(has(codes[name].all, "vaddps")) << name;
    EXPECT_FALSE(has(codes["float16"].all, "vaddph"));
  }
}

// An intrinsic of AVX512-IFMA for a CPU that lacks it. In a separate process, which it ends.
void select_the_impossible() {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  prepare_code_generation();
  const llvm::Triple triple("x86_64-unknown-linux-gnu");
  std::string problem;
  const std::unique_ptr<llvm::TargetMachine> machine(
      llvm::TargetRegistry::lookupTarget(triple, problem)
          ->createTargetMachine(triple, cpu_of(VectorLevel::k128), "", llvm::TargetOptions(), llvm::Reloc::PIC_));
  llvm::LLVMContext context;
  llvm::Module module("fj_kernel_7_odd", context);
  module.setTargetTriple(triple);
  module.setDataLayout(machine->createDataLayout());
  llvm::IRBuilder<> b(context);
  auto* lanes = llvm::FixedVectorType::get(b.getInt64Ty(), 2);
  auto* type = llvm::FunctionType::get(lanes, {lanes, lanes, lanes}, false);
  auto* function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, "f", module);
  b.SetInsertPoint(llvm::BasicBlock::Create(context, "", function));
  b.CreateRet(b.CreateCall(module.getOrInsertFunction("llvm.x86.avx512.vpmadd52l.uq.128", type),
                           {function->getArg(0), function->getArg(1), function->getArg(2)}));
  static_cast<void>(assembly_of(module, *machine));
}

TEST(IsaDeathTest, WhatCannotBeSelectedIsNamedBeforeTheEnd) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(select_the_impossible(),
               "LLVM cannot compile fj_kernel_7_odd, .*Cannot select(.|\n)*FRAMEJIT_CPU_FEATURES=generic");
}

}  // namespace
}  // namespace framejit::inductor::testing
