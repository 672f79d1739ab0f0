// runtime/base/result.cpp — the one place that turns a broken invariant into an InternalError with its location.
#include "runtime/base/result.h"

#include <string_view>

namespace framejit {

void throw_internal_error(const char* file, int line, const char* condition, const std::string& detail) {
  std::string_view path(file);
  // Paths are cut to the project root, so that messages do not name the build machine.
  for (std::string_view top : {"runtime/", "graph/", "guards/", "frame_hook/", "inductor/", "python/", "tests/"}) {
    const size_t at = path.rfind(top);
    if (at != std::string_view::npos && (at == 0 || path[at - 1] == '/')) {
      path.remove_prefix(at);
      break;
    }
  }
  std::string message = "internal error at " + std::string(path) + ":" + std::to_string(line) + ": " + condition;
  if (!detail.empty()) message += " (" + detail + ")";
  throw InternalError(message);
}

}  // namespace framejit
