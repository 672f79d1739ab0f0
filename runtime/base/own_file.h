// runtime/base/own_file.h — files that are written for the user: never through a link, never over another user's file.
// What is opened is closed by the caller.
#pragma once

#include <string>

namespace framejit {

// Opens for writing from the beginning, and creates the file if needed. Returns -1 and sets errno: for a link (ELOOP);
// for another user's file, a special file, or one with several names (EPERM); or as the system says.
int open_own_file(const std::string& path);
int open_own_file(int folder, const std::string& name);  // in an open folder
// A folder in another one, made if it is not there. Returns -1 and sets errno: for a link (ELOOP), or as the system
// says. `parent` may be reached through links.
int open_own_folder(const std::string& parent, const std::string& name);
bool write_whole(int file, const std::string& bytes);

}  // namespace framejit
