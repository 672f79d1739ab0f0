// runtime/base/warn_once.cpp — see warn_once.h.
#include "runtime/base/warn_once.h"

#include <mutex>
#include <set>

namespace framejit::log {

namespace {

struct Said {
  std::mutex mutex;
  std::set<std::string> subjects;
};
Said& said() {
  static auto* const one = new Said;  // never destroyed: threads may log during exit
  return *one;
}

}  // namespace

bool is_first_time(const std::string& subject) {
  const std::lock_guard lock(said().mutex);
  return said().subjects.insert(subject).second;
}

void reset_warn_once() {
  const std::lock_guard lock(said().mutex);
  said().subjects.clear();
}

}  // namespace framejit::log
