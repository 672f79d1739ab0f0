// runtime/base/own_file.h — files that are written for the user: never through a link, never over another user's file.
#pragma once

#include <string>

namespace framejit {

// Opens for writing from the beginning, and creates the file if needed. Returns -1 and sets errno: for a link (ELOOP);
// for another user's file, a special file, or one with several names (EPERM); or as the system says.
int open_own_file(const std::string& path);
bool write_whole(int file, const std::string& bytes);

}  // namespace framejit
