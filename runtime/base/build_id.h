// runtime/base/build_id.h — identifies this build of framejit.
#pragma once

#include <string>

namespace framejit {

// The build id that the linker wrote into the object (library or program) at `address`, in hexadecimal digits; "" if it
// has none. Equal ids mean equal code.
std::string build_id_of(const void* address);

}  // namespace framejit
