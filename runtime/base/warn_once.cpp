// runtime/base/warn_once.cpp — see warn_once.h.
#include "runtime/base/warn_once.h"

#include <mutex>
#include <set>

#include "runtime/base/log.h"

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

namespace {

// How many causes of one reason are reported; a program can have any number of them.
constexpr int kMostCauses = 8;

// The first line is followed by the text of code or of kernels.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// The row's sentence with the detail; if the sentence has no place for it, it comes after the sentence.
std::string text_with_detail(Reason reason, const std::string& detail) {
  const std::string text = sentence(reason, detail);
  return detail.empty() || text != row_of(reason).what ? text : text + ": " + detail;
}

}  // namespace

bool is_first_time(const std::string& subject) {
  const std::lock_guard lock(said().mutex);
  return said().subjects.insert(subject).second;
}

void warn_reason(Reason reason, const std::string& detail, const std::string& where) {
  const ReasonRow& row = row_of(reason);
  const std::string text = first_line(text_with_detail(reason, detail)), count = std::string(row.name) + " ";
  if (!enabled(Kind::RunsPlainly) || !is_first_time(std::string(row.name) + ": " + text)) return;
  for (int i = 0; i < kMostCauses; ++i) {
    if (!is_first_time(count + std::to_string(i))) continue;
    return emit(Kind::RunsPlainly, where, {{"reason", row.name}, {"detail", text}, {"hint", row.hint}});
  }
}

void reset_warn_once() {
  const std::lock_guard lock(said().mutex);
  said().subjects.clear();
}

}  // namespace framejit::log
