// inductor/target/machine.cpp — cpuid, /sys and the system's limits.
#include "inductor/target/machine.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <thread>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace framejit::inductor {
namespace {

std::string word_in(const std::string& path) {
  std::ifstream in(path);
  std::string word;
  in >> word;
  return word;
}

// "48K", "1024K", "32M"; 0 for anything else.
int64_t bytes_of(const std::string& text) {
  char* unit = nullptr;
  const int64_t number = std::strtoll(text.c_str(), &unit, 10);
  if (number <= 0) return 0;
  return number << (*unit == 'K' ? 10 : *unit == 'M' ? 20 : *unit == 'G' ? 30 : 0);
}

std::string vendor() {
#if defined(__x86_64__)
  unsigned most = 0, words[3] = {};
  if (__get_cpuid(0, &most, &words[0], &words[2], &words[1]) != 0)
    return {reinterpret_cast<const char*>(words), sizeof words};
#endif
  return "";
}

std::vector<std::string> features() {
  std::vector<std::string> found;
#if defined(__x86_64__)
#define CPU_FEATURE(name) \
  if (__builtin_cpu_supports(name)) found.emplace_back(name);
#include "inductor/target/features.def"
#undef CPU_FEATURE
#endif
  return found;
}

// According to the scheduler, which returns an error if there are more CPUs than the mask has bits.
int64_t cores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return std::max(CPU_COUNT(&allowed), 1);
  return std::max<int64_t>(std::thread::hardware_concurrency(), 1);
}

Machine ask() {
  Machine machine;
#if defined(__x86_64__)
  machine.architecture = "x86_64";
#elif defined(__aarch64__)
  machine.architecture = "aarch64";
#endif
  machine.vendor = vendor();
  machine.features = features();
  machine.caches = caches_in("/sys/devices/system/cpu/cpu0/cache");
  machine.cores = cores();
  return machine;
}

}  // namespace

bool Machine::has(const std::string& feature) const {
  return std::find(features.begin(), features.end(), feature) != features.end();
}

// Not from sysconf(): in virtual machines it reports the last-level cache of the whole processor, not of this part.
Caches caches_in(const std::string& folder) {
  Caches caches;
  int64_t last_level = 0;
  constexpr int kIndices = 8;
  for (int k = 0; k < kIndices; ++k) {
    const std::string index = folder + "/index" + std::to_string(k) + "/";
    const int64_t level = std::atoll(word_in(index + "level").c_str()), bytes = bytes_of(word_in(index + "size"));
    if (level == 0 || bytes == 0 || word_in(index + "type") == "Instruction") continue;
    if (const int64_t line = std::atoll(word_in(index + "coherency_line_size").c_str()); line > 0) caches.line = line;
    if (level == 1) caches.first = bytes;
    if (level == 2) caches.second = bytes;
    if (level >= last_level && level >= 2) {
      caches.last = bytes;
      last_level = level;
    }
  }
  return caches;
}

const Machine& this_machine() {
  static const Machine machine = ask();
  return machine;
}

}  // namespace framejit::inductor
