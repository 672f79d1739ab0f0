// runtime/base/build_id.h — which build of us this is.
#pragma once

#include <string>

namespace framejit {

// The build id that the linker wrote into the object (library or program) that holds `address`, in hexadecimal digits;
// "" where it has none. Equal ids mean equal code.
std::string build_id_of(const void* address);

}  // namespace framejit
