// runtime/base/sha256.h — SHA-256 (FIPS 180-4), for names of contents: equal in every process, machine and run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace framejit {

class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;

  Sha256& add(std::string_view bytes);
  // A part and its length, so that the same bytes in other parts give another digest.
  Sha256& add_part(std::string_view bytes);
  Digest digest();  // ends the hash

 private:
  void take_block(const uint8_t* block);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> pending_{};
  size_t pending_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

}  // namespace framejit
