// inductor/target/machine.h — what a CPU and its system report about themselves, queried once per process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace framejit::inductor {

// Bytes of the data caches that one core sees. Unknown ones keep these values, which are small for current CPUs.
struct Caches {
  int64_t first = 32 << 10, second = 512 << 10, last = 8 << 20;
  int64_t line = 64;
};

struct Machine {
  std::string architecture;           // "x86_64", "aarch64"
  std::string vendor;                 // its maker's name, as the CPU reports it; "" if it reports none
  std::vector<std::string> features;  // those of features.def that the CPU has
  Caches caches;
  int64_t cores = 1;                  // that this process may use

  bool has(const std::string& feature) const;
};

const Machine& this_machine();

// The caches described by a folder with the layout of /sys/devices/system/cpu/cpu0/cache.
Caches caches_in(const std::string& folder);

}  // namespace framejit::inductor
