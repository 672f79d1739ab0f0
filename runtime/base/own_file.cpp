// runtime/base/own_file.cpp — see own_file.h.
#include "runtime/base/own_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace framejit {

int open_own_file(const std::string& path) {
  const int file = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0644);
  if (file < 0) return -1;
  struct stat facts{};
  const bool is_known = fstat(file, &facts) == 0;
  const bool is_own = is_known && S_ISREG(facts.st_mode) && facts.st_uid == geteuid() && facts.st_nlink == 1;
  if (is_own && ftruncate(file, 0) == 0) return file;
  const int error = is_known && !is_own ? EPERM : errno;
  close(file);
  errno = error;
  return -1;
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

}  // namespace framejit
