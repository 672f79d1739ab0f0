// inductor/target/machine.h — what a CPU and its system answer when they are asked, once a process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace framejit::inductor {

// Bytes of the data caches that one core sees. What is not told keeps these values, which are small for today's CPUs.
struct Caches {
  int64_t first = 32 << 10, second = 512 << 10, last = 8 << 20;
  int64_t line = 64;
};

struct Machine {
  std::string architecture;           // "x86_64", "aarch64"
  std::string vendor;                 // as the CPU names its maker; "" where it does not
  std::vector<std::string> features;  // those of features.def that it has
  Caches caches;
  int64_t cores = 1;                  // that this process may use

  bool has(const std::string& feature) const;
};

const Machine& this_machine();

// The caches that a folder laid out as /sys/devices/system/cpu/cpu0/cache tells of.
Caches caches_in(const std::string& folder);

}  // namespace framejit::inductor
