// runtime/base/own_file.h — files that are written for the user. Those whose names are ours: never through a link,
// never over another user's file. The caller closes what these functions open.
#pragma once

#include <string>

namespace framejit {

// open(), but never through a link, and never waiting: for a reader of a pipe, or for a terminal. The caller asks what
// kind of file it is.
int open_at_once(const std::string& path, int flags, unsigned mode);
int open_at_once(int folder, const std::string& name, int flags, unsigned mode);  // in an open folder
// Opens for writing from the beginning, and creates the file if needed. Returns -1 and sets errno: for a link (ELOOP);
// for another user's file, a special file, or one with several names (EPERM); or as the system says.
int open_own_file(const std::string& path);
int open_own_file(int folder, const std::string& name);  // in an open folder
// Opens for writing at the end, and creates the file if needed: through links too, and a device or a pipe, as a shell's
// `>>` does. But it does not wait for a reader of a pipe: -1 and ENXIO.
int open_to_append(const std::string& path);
// Opens a folder in another one, and creates it if needed. Returns -1 and sets errno: for a link (ELOOP), or as the
// system says. `parent` may be reached through links.
int open_own_folder(const std::string& parent, const std::string& name);
bool write_whole(int file, const std::string& bytes);
// Why the system refused, in words for the user. `error`: an errno of these functions.
std::string error_text(int error);
// The same for a file or folder that could not be opened or made: "its folder /a/b does not exist".
std::string open_error_text(int error, const std::string& path);

}  // namespace framejit
