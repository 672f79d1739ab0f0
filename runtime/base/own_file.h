// runtime/base/own_file.h — files that are written for the user: never through a link, never over another user's.
#pragma once

#include <string>

namespace framejit {

// To write from the beginning, made if it is not there. -1 and errno: a link (ELOOP); another user's, not a plain file,
// or one with several names (EPERM); or what the system says.
int open_own_file(const std::string& path);
bool write_whole(int file, const std::string& bytes);

}  // namespace framejit
