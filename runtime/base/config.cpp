// runtime/base/config.cpp — parsing of knobs; see config.def for the rows.
#include "runtime/base/config.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <regex>
#include <string_view>

#include "runtime/base/closest_name.h"

namespace framejit {
namespace {

Error bad_value(const KnobRow& row, const std::string& value, const std::string& accepted) {
  return {Reason::bad_setting, std::string(row.environment) + "='" + value + "' is not accepted: expected " + accepted +
                                   " (" + row.doc + ")"};
}

Result<void> assign(bool& field, const KnobRow& row, const std::string& value) {
  std::string word = value;
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (word == "1" || word == "true") field = true;
  else if (word == "0" || word == "false") field = false;
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

// libstdc++ reports three mistakes as a parenthesis that does not match. This finds which one it is.
const char* cause_at_parentheses(std::string_view expression) {
  bool may_repeat = false;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i], next = i + 1 < expression.size() ? expression[i + 1] : '\0';
    if (!may_repeat && std::string_view("*+?{").find(c) != std::string_view::npos)
      return "a *, +, ? or { has nothing before it";
    may_repeat = c != '(' && c != '|';
    if (c == '\\') ++i;
    if (c == '[') i = std::min(expression.find(']', i + 2), expression.size());
    if (c != '(' || next != '?') continue;
    const char kind = i + 2 < expression.size() ? expression[i + 2] : '\0';
    if (kind != ':' && kind != '=' && kind != '!') return "after (? only :, = and ! are known";
    i += 2;
  }
  return "a parenthesis does not match";
}

const char* cause_of(const std::regex_error& e, const std::string& expression) {
  namespace codes = std::regex_constants;
  switch (e.code()) {
    case codes::error_paren: return cause_at_parentheses(expression);
    case codes::error_brack: return "a [ is not closed";
    case codes::error_brace: case codes::error_badbrace: return "{ and } do not hold a count";
    case codes::error_badrepeat: return "a *, +, ? or { has nothing before it";
    case codes::error_range: return "a range of characters ends before it begins";
    case codes::error_ctype: case codes::error_collate: return "a class of characters is unknown";
    case codes::error_escape: return "an escape with \\ is not complete";
    case codes::error_backref: return "it refers to a group that does not exist";
    default: return "it is too complex";
  }
}

Result<void> assign_pattern(std::string& field, const KnobRow& row, const std::string& value) {
  try {
    const std::regex compiled(value);
  } catch (const std::regex_error& e) {
    return bad_value(row, value, std::string("a regular expression in ECMAScript's syntax; ") + cause_of(e, value));
  }
  field = value;
  return {};
}

Result<void> assign(std::string& field, const KnobRow& row, const std::string& value) {
  if (row.type == std::string_view("pattern")) return assign_pattern(field, row, value);
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
#define KNOB(field, type, environment, default_value, choices, doc) {#field, #type, environment, choices, doc},
#include "runtime/base/config.def"
#undef KNOB
  };
  return rows;
}

Result<void> set_knob(Config& config, const std::string& environment, const std::string& value) {
  size_t row = 0;
#define KNOB(field, type, name, default_value, choices, doc)                                                  \
  if (environment == name) return value.empty() ? Result<void>() : assign(config.field, knobs()[row], value); \
  ++row;
#include "runtime/base/config.def"
#undef KNOB
  std::vector<std::string> known;
  for (const KnobRow& knob : knobs()) known.emplace_back(knob.environment);
  return Error{Reason::bad_setting, "unknown setting " + environment + "; " + advice_for(environment, known)};
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
