#include "frame_hook/resume/entries.h"

#include <algorithm>

#include "frame_hook/resume/frame_names.h"
#include "frame_hook/trace/values/library_files.h"
#include "guards/cpython/interrupts.h"
#include "guards/cpython/weak_objects.h"
#include "runtime/base/config.h"
#include "runtime/base/log.h"

namespace framejit::frame_hook {

namespace {

uint64_t g_requests = 0;

SiteNote& note_of(Site& site) {
  if (!site.note) site.note = std::make_unique<SiteNote>();
  return static_cast<SiteNote&>(*site.note);
}

bool is_free(const Options& options) { return options->every_frame; }  // a test of the tracer

void book_gone(Account& account, const Segment& segment) {
  if (segment.call) account.hits_of_gone += segment.hits;
  if (account.request != g_requests) account.request = g_requests, account.losses = 0, account.loss_is_said = false;
  account.losses = segment.call && segment.hits >= kHitsThatPay ? 0 : account.losses + (segment.call ? 1 : kPlainLoss);
}

uint64_t all_hits(const Site& site, const Account& account, const Options& options) {
  uint64_t hits = account.hits_of_gone;
  for (const auto& entry : site.entries)
    if (const Segment& segment = segment_of(entry); segment.options == options && segment.call) hits += segment.hits;
  return hits;
}

bool counts_to_limit(const Segment& segment, const Options& options, PyObject* self) {
  if (segment.options != options) return false;
  PyObject* other = segment.self ? guards::weak_target(segment.self.get()) : nullptr;
  return !other || other == self;
}

EntryLimit limit_reached(const Site& site, const Options& options, PyObject* self) {
  const size_t most = static_cast<size_t>(config().entries);
  if (entries_with(site, options, self) >= most) return EntryLimit::entry_limit;
  return site.entries.size() >= most * kMostLimits ? EntryLimit::limit_of_modules : EntryLimit::none;
}

bool is_left_over(const Segment& segment, const Options& options) {
  return segment.options == options && segment.self && !guards::weak_target(segment.self.get()) &&
         segment.request != g_requests;
}

// The least recently used of the entries that `is_wanted`; null if there is none.
template <typename IsWanted>
std::unique_ptr<EntryBase> take_longest_unused(Site& site, const IsWanted& is_wanted) {
  auto longest = site.entries.end();
  for (auto entry = site.entries.begin(); entry != site.entries.end(); ++entry)
    if (is_wanted(segment_of(*entry)) &&
        (longest == site.entries.end() || segment_of(*entry).last_use < segment_of(*longest).last_use))
      longest = entry;
  if (longest == site.entries.end()) return nullptr;
  auto taken = std::move(*longest);
  site.entries.erase(longest);
  return taken;
}

std::unique_ptr<EntryBase> take_left_over(Site& site, const Options& options) {
  return take_longest_unused(site, [&](const Segment& segment) { return is_left_over(segment, options); });
}

std::unique_ptr<EntryBase> take_evicted(Site& site, const Options& options, PyObject* self) {
  const bool own = entries_with(site, options, self) > 0;
  return take_longest_unused(site, [&](const Segment& segment) {
    return own ? counts_to_limit(segment, options, self) : segment.options == options;
  });
}

}  // namespace

CodeNote& note_of(CodeState& state) {
  if (!state.note) state.note = std::make_unique<CodeNote>();
  return static_cast<CodeNote&>(*state.note);
}

std::string next_id(CodeNote& note) {
  static uint64_t count = 0;
  if (note.number == 0) note.number = ++count;
  return std::to_string(note.number) + "." + std::to_string(++note.compiles);
}

Account& account_of(Site& site, const Options& options) {
  std::vector<Account>& accounts = note_of(site).accounts;
  const auto known = std::find_if(accounts.begin(), accounts.end(),
                                  [&](const Account& account) { return account.options.lock() == options; });
  if (known != accounts.end()) return *known;
  std::erase_if(accounts, [](const Account& account) { return account.options.expired(); });
  Account& account = accounts.emplace_back();
  account.options = options;
  account.request = g_requests;
  return account;
}

bool has_failed(const Site& site, const Options& options) {
  if (!site.note) return false;
  const std::vector<Account>& accounts = static_cast<const SiteNote&>(*site.note).accounts;
  return std::any_of(accounts.begin(), accounts.end(),
                     [&](const Account& account) { return account.failed && account.options.lock() == options; });
}

size_t entries_with(const Site& site, const Options& options, PyObject* self) {
  return static_cast<size_t>(std::count_if(site.entries.begin(), site.entries.end(), [&](const auto& entry) {
    return counts_to_limit(segment_of(entry), options, self);
  }));
}

std::vector<std::unique_ptr<EntryBase>> take_dead_entries(Site& site, const Options& options, const char*& why) {
  std::vector<std::unique_ptr<EntryBase>> taken;
  for (auto& entry : site.entries) {
    const Segment& segment = segment_of(entry);
    const char* const death = segment.why_dead();
    if (death == nullptr) continue;
    if (segment.options == options) {
      why = death;
      book_gone(account_of(site, options), segment);
    }
    taken.push_back(std::move(entry));
  }
  std::erase(site.entries, nullptr);
  return taken;
}

EntryLimit ask_account(Site& site, const Options& options, PyObject* self,
                       std::vector<std::unique_ptr<EntryBase>>& evicted) {
  Account& account = account_of(site, options);
  const EntryLimit limit = limit_reached(site, options, self);
  const bool full = limit != EntryLimit::none;
  // fullgraph promises that nothing runs plainly: entries that die are made again whenever they are needed.
  const bool loses =
      account.losses >= kMostLosses && account.request == g_requests && !options->fullgraph && !is_free(options);
  if (!full && !loses) return EntryLimit::none;
  if (!loses)
    if (auto entry = take_left_over(site, options)) {
      book_gone(account, segment_of(entry));
      evicted.push_back(std::move(entry));
      return EntryLimit::none;
    }
  const uint64_t hits = all_hits(site, account, options);
  if (hits >= account.hits_spent + kHitsToEarn && !is_free(options)) account.hits_spent = hits;
  else if (!loses && account.outgrown > 0 && !is_free(options)) account.outgrown -= 1;
  else return loses ? EntryLimit::does_not_pay : limit;
  if (full) {
    auto entry = take_evicted(site, options, self);
    if (!entry) return limit;  // FRAMEJIT_ENTRIES=0
    book_gone(account, segment_of(entry));
    evicted.push_back(std::move(entry));
  }
  return EntryLimit::none;
}

PyObject* self_of(const LiveFrame& frame) {
  PyObject* first = frame.code()->co_argcount > 0 ? frame.locals()[0] : nullptr;
  if (first && PyCell_Check(first)) first = PyCell_GET(first);  // a closure holds it in a cell
  return first && is_torch_module(first) ? first : nullptr;
}

std::string place_itself(const LiveFrame& frame) {
  PyCodeObject* const of = frame.code();
  if (PyCodeObject* own = forward_of(frame)) return place_of(own, own->co_firstlineno);
  const std::shared_ptr<const Code>& code = frame.decoded();
  if (!code) drop_error();
  const int line = code ? code->instructions[code->position_at(frame.next_index())].line : 0;
  return place_of(of, line > 0 ? line : of->co_firstlineno);
}

std::string place(const LiveFrame& frame) {
  PyCodeObject* const forward = forward_of(frame);
  const PyCodeObject* const of = forward ? forward : frame.code();
  return (is_library_file(of->co_filename) ? place_of_caller() : "") + place_itself(frame);
}

void count_request() { ++g_requests; }

uint64_t requests() { return g_requests; }

}  // namespace framejit::frame_hook
