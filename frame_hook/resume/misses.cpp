#include "frame_hook/resume/misses.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "frame_hook/resume/stats.h"
#include "runtime/base/config.h"
#include "runtime/base/log.h"

namespace framejit::frame_hook {

namespace {

std::string count_text(size_t entries, size_t limits = 1) {
  return std::to_string(entries) + "/" + std::to_string(limits * static_cast<size_t>(config().entries));
}

// The numbers of a long iterator do not become a symbol each: a sum of them would be an endless expression.
constexpr size_t kMostDynamicSources = 64;

}  // namespace

void Misses::explain(const char* died) {
  std::vector<std::string>& dynamic = note_of(frame_.state()).hints.dynamic_sources;
  const size_t known = dynamic.size();
  size_t missed = 0;
  std::optional<guards::GuardFailure> closest;
  std::vector<std::shared_ptr<Segment>> segments;  // a log listener is Python code and may drop entries
  for (const auto& entry : site_.entries) segments.push_back(static_cast<SegmentEntry&>(*entry).segment);
  for (const auto& segment : segments) {
    if (segment->options != options_ || segment->why_dead() != nullptr) continue;
    const auto failure = segment->guards->explain(access_);
    if (!failure) continue;
    missed += 1;
    for (const std::string& source : failure->changed)
      if (dynamic.size() < kMostDynamicSources && std::find(dynamic.begin(), dynamic.end(), source) == dynamic.end())
        dynamic.push_back(source);
    if (!closest || failure->held > closest->held) closest = failure;
  }
  if (missed == 0 && died == nullptr) return;
  if (dynamic.size() > known && options_->dynamic != 0) account_of(site_, options_).outgrown += 1;
  stats().recompiles += 1;
  if (!log::enabled(log::Kind::Recompile)) return;
  const std::string guard = missed == 0   ? died
                            : missed == 1 ? closest->text
                                          : closest->text + " (the closest of " + std::to_string(missed) + " entries)";
  log::emit(log::Kind::Recompile, place(frame_),
            {{"count", count_text(own_entries())}, {"guard", guard}});
}

void Misses::log_limit(EntryLimit limit) {
  if (std::exchange(account_of(site_, options_).limit_is_said, true)) return;
  const bool of_modules = limit == EntryLimit::limit_of_modules;
  const size_t entries = of_modules ? site_.entries.size() : own_entries();
  const std::string detail =
      "plain Python from now on: " + std::to_string(entries) + " entries" + (of_modules ? " of all modules" : "");
  if (log::enabled(log::Kind::Entry))
    log::emit(log::Kind::Entry, place(frame_), {{"action", "limit"}, {"detail", detail}});
  if (!log::enabled(of_modules ? log::Kind::LimitOfModules : log::Kind::Limit)) return;
  const auto newest = std::find_if(site_.entries.begin(), site_.entries.end(),
                                   [&](const auto& entry) { return segment_of(entry).options == options_; });
  const auto failure = newest == site_.entries.end() ? std::nullopt : segment_of(*newest).guards->explain(access_);
  const std::string guard = failure ? failure->text : "none";
  if (!of_modules)
    return log::emit(log::Kind::Limit, place(frame_), {{"count", count_text(entries)}, {"guard", guard}});
  log::emit(log::Kind::LimitOfModules, place(frame_),
            {{"count", count_text(entries, kMostLimits)}, {"limits", std::to_string(kMostLimits)}, {"guard", guard}});
}

std::string Misses::failing_guards() const {
  std::vector<std::string> lines;
  for (const auto& entry : site_.entries) {
    const Segment& segment = segment_of(entry);
    if (segment.options != options_) continue;
    const auto failure = segment.guards->explain(access_);
    const std::string line = failure ? failure->text + (failure->because.empty() ? "" : "  # " + failure->because) : "";
    if (failure && std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  }
  std::string text = "The guards that fail, newest entry first:";
  for (const std::string& line : lines) text += "\n  " + line;
  return text;
}

std::string Misses::limit_error(EntryLimit limit) const {
  const bool of_modules = limit == EntryLimit::limit_of_modules;
  const std::string count = of_modules ? count_text(site_.entries.size(), kMostLimits) + " entries of all modules"
                                       : count_text(own_entries()) + " entries";
  return place(frame_) + ": " + count + " with fullgraph=True, and none fits this call. " +
         failing_guards() +
         "\nhint: pass the values that differ as tensors, or keep them out of the compiled function; FRAMEJIT_ENTRIES "
         "allows more entries";
}

}  // namespace framejit::frame_hook
