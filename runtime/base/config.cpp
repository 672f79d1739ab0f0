// runtime/base/config.cpp — parsing of knobs; see config.def for the rows.
#include "runtime/base/config.h"

#include <unistd.h>

#include <charconv>
#include <optional>
#include <string_view>

namespace framejit {
namespace {

Error bad_value(const KnobRow& row, const std::string& value, const std::string& accepted) {
  return {Reason::bad_setting, std::string(row.environment) + "='" + value + "' is not accepted: expected " + accepted +
                                   " (" + row.doc + ")"};
}

Result<void> assign(bool& field, const KnobRow& row, const std::string& value) {
  if (value == "1" || value == "true") field = true;
  else if (value == "0" || value == "false" || value.empty()) field = false;
  else return bad_value(row, value, "0 or 1");
  return {};
}

std::optional<int64_t> number(std::string_view text) {
  int64_t result = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), result);
  return failed == std::errc() && end == text.data() + text.size() ? std::optional(result) : std::nullopt;
}

Result<void> assign(int64_t& field, const KnobRow& row, const std::string& value) {
  const std::string_view range(row.choices);
  const int64_t least = number(range.substr(0, range.find(".."))).value(),
                most = number(range.substr(range.find("..") + 2)).value();
  const std::optional<int64_t> given = number(value);
  if (!given || *given < least || *given > most)
    return bad_value(row, value, "an integer from " + std::to_string(least) + " to " + std::to_string(most));
  field = *given;
  return {};
}

Result<void> assign(std::string& field, const KnobRow& row, const std::string& value) {
  const std::string_view choices(row.choices);
  bool accepted = choices.empty();
  for (size_t at = 0; at < choices.size();) {
    const size_t bar = std::min(choices.find('|', at), choices.size());
    accepted = accepted || choices.substr(at, bar - at) == value;
    at = bar + 1;
  }
  if (!accepted) return bad_value(row, value, "one of " + std::string(choices));
  field = value;
  return {};
}

}  // namespace

const std::vector<KnobRow>& knobs() {
  static const std::vector<KnobRow> rows = {
#define KNOB(field, type, environment, default_value, choices, doc) \
  {#field, #type, environment, #default_value, choices, doc},
#include "runtime/base/config.def"
#undef KNOB
  };
  return rows;
}

Result<void> set_knob(Config& config, const std::string& environment, const std::string& value) {
  size_t row = 0;
#define KNOB(field, type, name, default_value, choices, doc) \
  if (environment == name) return assign(config.field, knobs()[row], value); \
  ++row;
#include "runtime/base/config.def"
#undef KNOB
  std::string known;
  for (const KnobRow& knob : knobs()) known += (known.empty() ? "" : ", ") + std::string(knob.environment);
  return Error{Reason::bad_setting, "unknown setting " + environment + "; known: " + known};
}

Result<Config> read_config(const char* const* environment) {
  Config result;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry(*environment);
    const size_t equals = entry.find('=');
    const std::string name(entry.substr(0, equals));
    if (equals == std::string_view::npos || (name != "FRAMEJIT" && !name.starts_with("FRAMEJIT_"))) continue;
    FJ_TRY_VOID(set_knob(result, name, std::string(entry.substr(equals + 1))));
  }
  return result;
}

const Config& config() {
  static const Config* loaded = [] {
    Result<Config> result = read_config(::environ);
    return new Config(result.ok() ? result.take() : Config{});
  }();
  return *loaded;
}

}  // namespace framejit
