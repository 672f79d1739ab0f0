// runtime/kernel_code.cpp — ids of contents.
#include "runtime/kernel_code.h"

#include "runtime/base/sha256.h"

namespace framejit::runtime {

std::string text_of(DeviceId device) {
  if (device.is_cpu()) return "cpu";
  return std::to_string(device.type) + ":" + std::to_string(device.index);
}

std::string KernelId::text() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(32, '0');
  for (size_t i = 0; i < 16; ++i) {
    text[15 - i] = kDigits[high >> (4 * i) & 15];
    text[31 - i] = kDigits[low >> (4 * i) & 15];
  }
  return text;
}

KernelId content_id(std::string_view target, std::string_view text) {
  const Sha256::Digest digest = Sha256().add_part(target).add_part(text).digest();
  KernelId id;
  for (size_t i = 0; i < 8; ++i) {
    id.high = id.high << 8 | digest[i];
    id.low = id.low << 8 | digest[8 + i];
  }
  return id;
}

}  // namespace framejit::runtime
