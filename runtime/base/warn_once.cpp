#include "runtime/base/warn_once.h"

#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "runtime/base/log.h"
#include "runtime/base/text.h"

namespace framejit::log {

namespace {

// How many causes of one reason are reported; a program can have any number of them.
constexpr size_t kMostCauses = 8;

struct Said {
  std::mutex mutex;
  std::set<std::string> subjects;
  std::map<Reason, std::set<std::string>> causes;  // of each reason up to one more than is reported
};
Said& said() {
  static auto* const one = new Said;  // never destroyed: threads may log during exit
  return *one;
}

// Notes a cause, and returns how many causes of this reason were noted before it. nullopt: this cause was noted
// already, or there were too many.
std::optional<size_t> note_cause(Reason reason, const std::string& cause) {
  const std::lock_guard lock(said().mutex);
  std::set<std::string>& causes = said().causes[reason];
  const size_t before = causes.size();
  if (before > kMostCauses || !causes.insert(cause).second) return std::nullopt;
  return before;
}

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

void warn_reason(Reason reason, const std::string& detail, const std::string& where, Extent extent, OnceFor once_for) {
  const Kind kind = extent == Extent::call ? Kind::RunsPlainly : Kind::BrokeGraph;
  if (!enabled(kind)) return;
  const ReasonRow& row = row_of(reason);
  // The first line alone: text of code or of kernels may follow it.
  const std::string text(text::first_line(text_with_detail(reason, detail)));
  const std::optional<size_t> before = note_cause(reason, once_for == OnceFor::place ? where + ": " + text : text);
  if (!before) return;
  const bool is_shown = *before < kMostCauses;
  emit(kind, where,
       {{"reason", row.name},
        {"detail", is_shown ? text : "further causes are not shown"},
        {"hint", is_shown ? row.hint : "FRAMEJIT_LOGS=graph_breaks shows each"}});
}

void warn_reason(Reason reason, const std::string& detail, const std::string& where) {
  warn_reason(reason, detail, where, Extent::call, OnceFor::detail);
}

void reset_warn_once() {
  const std::lock_guard lock(said().mutex);
  said().subjects.clear();
  said().causes.clear();
}

}  // namespace framejit::log
