#include "runtime/base/own_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace framejit {

int open_at_once(const std::string& path, int flags, unsigned mode) {
  return open_at_once(AT_FDCWD, path, flags, mode);
}

int open_at_once(int folder, const std::string& name, int flags, unsigned mode) {
  return openat(folder, name.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, mode);
}

int open_own_file(const std::string& path) { return open_own_file(AT_FDCWD, path); }

int open_own_file(int folder, const std::string& name) {
  const int file = open_at_once(folder, name, O_CREAT | O_RDWR, 0644);
  if (file < 0) return -1;
  struct stat status{};
  const bool is_known = fstat(file, &status) == 0;
  const bool is_own = is_known && S_ISREG(status.st_mode) && status.st_uid == geteuid() && status.st_nlink == 1;
  if (is_own && ftruncate(file, 0) == 0) return file;
  const int error = is_known && !is_own ? EPERM : errno;
  close(file);
  errno = error;
  return -1;
}

int open_to_append(const std::string& path) {
  const int file = open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
  if (file >= 0) fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_NONBLOCK);  // writing may wait
  return file;
}

int open_own_folder(const std::string& parent, const std::string& name) {
  const int above = open(parent.c_str(), O_DIRECTORY | O_RDONLY | O_CLOEXEC);
  if (above < 0) return -1;
  const bool is_there = mkdirat(above, name.c_str(), 0777) == 0 || errno == EEXIST;
  const int folder = is_there ? openat(above, name.c_str(), O_DIRECTORY | O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
  int error = errno;
  struct stat known{};
  const bool is_known = folder < 0 && fstatat(above, name.c_str(), &known, AT_SYMLINK_NOFOLLOW) == 0;
  if (is_known && S_ISLNK(known.st_mode)) error = ELOOP;  // the system says ENOTDIR
  close(above);
  errno = error;
  return folder;
}

bool write_whole(int file, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = write(file, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

std::string error_text(int error) {
  switch (error) {
    case ELOOP: return "it is a link";
    case ENXIO: return "it is a pipe or a socket";  // without a reader
    default: return std::strerror(error);
  }
}

std::string open_error_text(int error, const std::string& path) {
  if (error != ENOENT) return error_text(error);
  const size_t name = path.find_last_not_of('/'), slash = path.rfind('/', name);
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  return access(folder.c_str(), F_OK) == 0 ? error_text(error) : "its folder " + folder + " does not exist";
}

}  // namespace framejit
