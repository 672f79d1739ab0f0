// runtime/base/build_id.cpp — the note NT_GNU_BUILD_ID of a loaded object.
#include "runtime/base/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

namespace framejit {
namespace {

struct Search {
  uintptr_t address;
  std::string id;
};

bool holds(const dl_phdr_info& object, uintptr_t address) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object.dlpi_phdr[i];
    const uintptr_t begin = object.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && address >= begin && address < begin + segment.p_memsz) return true;
  }
  return false;
}

std::string id_in(const uint8_t* notes, size_t bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  const auto padded = [](size_t n) { return (n + 3) & ~size_t{3}; };
  while (bytes >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes, sizeof note);
    const size_t name = padded(note.n_namesz), value = padded(note.n_descsz);
    if (sizeof note + name + value > bytes) break;
    const uint8_t* const id = notes + sizeof note + name;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(notes + sizeof note, "GNU", 4) == 0) {
      std::string text;
      for (size_t i = 0; i < note.n_descsz; ++i) text += {kDigits[id[i] >> 4], kDigits[id[i] & 15]};
      return text;
    }
    notes += sizeof note + name + value;
    bytes -= sizeof note + name + value;
  }
  return "";
}

int visit(dl_phdr_info* object, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  if (!holds(*object, search.address)) return 0;
  for (int i = 0; i < object->dlpi_phnum && search.id.empty(); ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type == PT_NOTE)
      search.id = id_in(reinterpret_cast<const uint8_t*>(object->dlpi_addr + segment.p_vaddr), segment.p_memsz);
  }
  return 1;
}

}  // namespace

std::string build_id_of(const void* address) {
  Search search{reinterpret_cast<uintptr_t>(address), ""};
  dl_iterate_phdr(visit, &search);
  return search.id;
}

}  // namespace framejit
