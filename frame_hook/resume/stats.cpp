#include "frame_hook/resume/stats.h"

#include <algorithm>
#include <iterator>

#include "frame_hook/resume/entries.h"
#include "runtime/base/log.h"
#include "runtime/base/warn_once.h"

namespace framejit::frame_hook {

namespace {

constexpr struct {
  Reason reason;
  log::OnceFor once_for;
} kWarned[] = {
#define WARNED(reason, once_for) {Reason::reason, log::OnceFor::once_for},
#include "frame_hook/resume/warned_reasons.def"
#undef WARNED
};

void warn_if_listed(Reason reason, const std::string& detail, const std::string& where, log::Extent extent) {
  const auto* row = std::ranges::find(kWarned, reason, [](const auto& r) { return r.reason; });
  const bool is_listed = row != std::end(kWarned);
  if (!is_listed && !is_failure(reason)) return;
  log::warn_reason(reason, detail, where, extent, is_listed ? row->once_for : log::OnceFor::detail);
}

bool is_logged(Reason reason) {
  return reason != Reason::entry_limit && reason != Reason::does_not_pay && log::enabled(log::Kind::Fallback);
}

void count_and_log(Reason reason, const std::string& where, const std::string& detail) {
  const ReasonRow& row = row_of(reason);
  stats().fallbacks += 1;
  stats().fallback_reasons[row.name] += 1;
  if (!is_logged(reason)) return;
  log::emit(log::Kind::Fallback, where,
            {{"reason", row.name}, {"detail", detail.empty() ? row.what : detail}, {"hint", row.hint}});
}

}  // namespace

Stats& stats() {
  static Stats totals;
  return totals;
}

std::map<std::string, uint64_t> plain_hit_reasons() {
  std::map<std::string, uint64_t> counts;
  uint64_t rest = stats().plain_hits;
  for (size_t i = 0; i < kReasons; ++i) {
    const uint64_t count = stats().breaks_of_plain_hits[i];
    if (count > 0) counts[name_of(static_cast<Reason>(i))] = count;
    rest -= count;
  }
  if (rest > 0) counts["no_tensor_work"] = rest;
  return counts;
}

bool is_failure(Reason reason) {
  const ReasonKind kind = row_of(reason).kind;
  return kind == ReasonKind::refusal || kind == ReasonKind::defect;
}

void count_break(Reason reason, const std::string& detail, const std::string& where, const std::string& caret,
                 bool raises) {
  const ReasonRow& row = row_of(reason);
  stats().graph_breaks += 1;
  stats().break_reasons[row.name] += 1;
  if (!raises) warn_if_listed(reason, detail, where, log::Extent::instruction);
  if (log::enabled(log::Kind::Break))
    log::emit(log::Kind::Break, where,
              {{"reason", row.name}, {"detail", sentence(reason, detail)}, {"hint", row.hint}}, caret);
}

void count_interrupted(const std::string& what, const std::string& where) {
  stats().interrupted += 1;
  if (log::enabled(log::Kind::Interrupted))
    log::emit(log::Kind::Interrupted, where,
              {{"detail", sentence(Reason::interrupted, what)}, {"hint", row_of(Reason::interrupted).hint}});
}

void count_fallback(Reason reason, const std::string& where, const std::string& detail) {
  warn_if_listed(reason, detail, where, log::Extent::call);
  count_and_log(reason, where, detail);
}

void count_raised(Reason reason, const std::string& where, const std::string& detail) {
  count_and_log(reason, where, detail);
}

void count_again(Reason reason, const LiveFrame& frame) {
  count_and_log(reason, is_logged(reason) ? place(frame) : "", "as before");
}

}  // namespace framejit::frame_hook
