#include "frame_hook/resume/misses.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "frame_hook/resume/frame_names.h"
#include "frame_hook/resume/stats.h"
#include "guards/describe.h"
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

// A number that was known to vary when the segment was compiled, and is a constant there, is one that something fixes.
guards::Symbols Misses::symbols_after(const Segment& segment, const guards::GuardFailure& failure) const {
  if (options_->dynamic == 0) return guards::Symbols::forbidden;
  const std::vector<std::string>& dynamic = note_of(frame_.state()).hints.dynamic_sources;
  const auto known_end = dynamic.begin() + static_cast<std::ptrdiff_t>(std::min(segment.known_symbols, dynamic.size()));
  const bool is_fixed = std::any_of(dynamic.begin(), known_end, [&](const std::string& source) {
    return std::find(failure.changed.begin(), failure.changed.end(), source) != failure.changed.end();
  });
  return is_fixed ? guards::Symbols::refused : guards::Symbols::possible;
}

Misses::Explanation Misses::explanation_of(const Segment& segment, const guards::GuardFailure& failure,
                                           guards::Symbols symbols) const {
  const guards::Change change = segment.guards->change(failure, FrameNames(frame_), symbols);
  const bool is_of_plumbing =
      forward_of(frame_) &&
      failure.because.ends_with(" " + guards::text_of_str(frame_.code()->co_qualname));  // nn.Module's own line
  return {failure.text, change.text, change.hint,
          failure.because.empty() || is_of_plumbing ? place(frame_) : failure.because};
}

void Misses::explain(const char* died) {
  std::vector<std::string>& dynamic = note_of(frame_.state()).hints.dynamic_sources;
  const size_t known = dynamic.size();
  size_t missed = 0;
  std::optional<guards::GuardFailure> closest;
  std::shared_ptr<Segment> closest_segment;
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
    if (closest && failure->held <= closest->held) continue;
    closest = failure;
    closest_segment = segment;
  }
  if (missed == 0 && died == nullptr) return;
  if (dynamic.size() > known && options_->dynamic != 0) account_of(site_, options_).outgrown += 1;
  stats().recompiles += 1;
  if (!log::enabled(log::Kind::Recompile)) return;
  const std::string count = count_text(own_entries()), begins = place_itself(frame_);
  const bool outgrown = dynamic.size() > known;
  Explanation why;
  if (missed > 0) {  // asked again: numbers that guards compute are gone by now
    if (const auto again = closest_segment->guards->explain(access_)) closest = again;
    why = explanation_of(*closest_segment, *closest, symbols_after(*closest_segment, *closest));
  } else why = {died, died, guards::hint_of(guards::ChangeKind::gone), place(frame_)};
  const std::string of = missed > 1 ? " (the closest of " + std::to_string(missed) + " entries)" : "";
  log::emit(log::Kind::Recompile, why.at,
            {{"count", count},
             {"begins", begins},
             {"change", why.change + of},
             {"hint", why.hint},
             {"guard", why.guard + of},
             {"closest", missed > 0 ? closest_segment->id : ""},
             {"symbols", outgrown ? "more" : "same"}});
}

void Misses::count_limit(EntryLimit limit) {
  if (std::exchange(account_of(site_, options_).limit_is_said, true)) return count_again(Reason::entry_limit, frame_);
  const bool of_modules = limit == EntryLimit::limit_of_modules;
  const size_t entries = of_modules ? site_.entries.size() : own_entries();
  const std::string detail =
      "plain Python from now on: " + std::to_string(entries) + " entries" + (of_modules ? " of all modules" : "");
  if (log::enabled(log::Kind::Entry))
    log::emit(log::Kind::Entry, place(frame_),
              {{"action", "limit"}, {"detail", detail}, {"hint", row_of(Reason::entry_limit).hint}});
  const std::string count = count_text(entries, of_modules ? kMostLimits : 1), begins = place_itself(frame_);
  const auto newest = std::find_if(site_.entries.begin(), site_.entries.end(),
                                   [&](const auto& entry) { return segment_of(entry).options == options_; });
  Explanation why{"none", "the limit is 0", row_of(Reason::entry_limit).hint, place(frame_)};
  if (newest != site_.entries.end()) {
    const std::shared_ptr<Segment> segment = static_cast<SegmentEntry&>(**newest).segment;
    if (const auto failure = segment->guards->explain(access_)) {
      const bool forbidden = options_->dynamic == 0;
      why = explanation_of(*segment, *failure, forbidden ? guards::Symbols::forbidden : guards::Symbols::refused);
    }
  }
  log::Fields fields = {
      {"count", count}, {"begins", begins}, {"change", why.change}, {"hint", why.hint}, {"guard", why.guard}};
  if (of_modules) fields.push_back({"limits", std::to_string(kMostLimits)});
  const log::Kind kind = of_modules ? log::Kind::LimitOfModules : log::Kind::Limit;
  if (log::enabled(kind)) log::emit(kind, why.at, std::move(fields));
  count_fallback(Reason::entry_limit, place(frame_), why.change);
}

std::string Misses::failing_guards() const {
  std::vector<std::string> lines;
  std::vector<std::shared_ptr<Segment>> segments;  // source files are read by Python code, which may drop entries
  for (const auto& entry : site_.entries) segments.push_back(static_cast<SegmentEntry&>(*entry).segment);
  for (const auto& segment : segments) {
    if (segment->options != options_) continue;
    const auto failure = segment->guards->explain(access_);
    if (!failure) continue;
    const Explanation why = explanation_of(*segment, *failure, symbols_after(*segment, *failure));
    const std::string line = why.at + ": " + why.change + "; what to do: " + why.hint;
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  }
  std::string text = "What differs from the compiled forms, newest first:";
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
