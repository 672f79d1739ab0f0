// runtime/base/said_once.cpp — see said_once.h.
#include "runtime/base/said_once.h"

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

bool is_new(const std::string& subject) {
  const std::lock_guard lock(said().mutex);
  return said().subjects.insert(subject).second;
}

void forget_what_was_said() {
  const std::lock_guard lock(said().mutex);
  said().subjects.clear();
}

}  // namespace framejit::log
