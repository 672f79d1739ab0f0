// runtime/base/text.cpp — scanning and printing, shared by every parser and printer.
#include "runtime/base/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace framejit::text {
namespace {

bool is_word_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_word_start(c) || is_digit(c); }

}  // namespace

void Cursor::skip() {
  while (at_ < source_.size()) {
    const char c = source_[at_];
    if (c == '#') {
      while (at_ < source_.size() && source_[at_] != '\n') ++at_;
    } else if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      ++at_;
    } else {
      return;
    }
  }
}

bool Cursor::at_end() { return skip(), at_ == source_.size(); }
char Cursor::peek() { return at_end() ? '\0' : source_[at_]; }

bool Cursor::peek_is(std::string_view token) {
  skip();
  if (!source_.substr(at_).starts_with(token)) return false;
  const size_t end = at_ + token.size();
  return !is_word_start(token.front()) || end == source_.size() || !is_word(source_[end]);
}

bool Cursor::accept(std::string_view token) {
  if (!peek_is(token)) return false;
  at_ += token.size();
  return true;
}

std::string_view Cursor::word() {
  skip();
  const size_t start = at_;
  if (at_ < source_.size() && is_word_start(source_[at_]))
    while (at_ < source_.size() && is_word(source_[at_])) ++at_;
  return source_.substr(start, at_ - start);
}

size_t Cursor::number_end(bool* is_float) const {
  size_t i = at_;
  *is_float = false;
  if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) ++i;
  for (std::string_view name : {"inf", "nan"}) {
    if (!source_.substr(i).starts_with(name)) continue;
    if (i + 3 < source_.size() && is_word(source_[i + 3])) continue;
    *is_float = true;
    return i + 3;
  }
  const size_t digits = i;
  while (i < source_.size() && is_digit(source_[i])) ++i;
  if (i == digits) return at_;
  if (i + 1 < source_.size() && source_[i] == '.' && is_digit(source_[i + 1])) {
    *is_float = true;
    for (++i; i < source_.size() && is_digit(source_[i]);) ++i;
  }
  if (i < source_.size() && source_[i] == 'e') {
    size_t exponent = i + 1;
    if (exponent < source_.size() && (source_[exponent] == '-' || source_[exponent] == '+')) ++exponent;
    if (exponent < source_.size() && is_digit(source_[exponent])) {
      *is_float = true;
      for (i = exponent; i < source_.size() && is_digit(source_[i]);) ++i;
    }
  }
  return i;
}

Result<int64_t> Cursor::integer() {
  skip();
  bool is_float = false;
  const size_t end = number_end(&is_float);
  int64_t value = 0;
  if (end == at_ || is_float) return error("expected an integer");
  const size_t start = source_[at_] == '+' ? at_ + 1 : at_;
  const auto [stop, failed] = std::from_chars(source_.data() + start, source_.data() + end, value);
  if (failed != std::errc() || stop != source_.data() + end) return error("integer out of range");
  at_ = end;
  return value;
}

bool Cursor::next_is_float() {
  skip();
  bool is_float = false;
  return number_end(&is_float) != at_ && is_float;
}

Result<double> Cursor::floating() {
  skip();
  bool is_float = false;
  const size_t end = number_end(&is_float);
  if (end == at_) return error("expected a number");
  double value = 0;
  const size_t start = source_[at_] == '+' ? at_ + 1 : at_;
  const auto [stop, failed] = std::from_chars(source_.data() + start, source_.data() + end, value);
  if (failed != std::errc() || stop != source_.data() + end) return error("number out of range");
  at_ = end;
  return value;
}

Error Cursor::error(const std::string& message) const {
  size_t line = 1, column = 1;
  for (size_t i = 0; i < at_ && i < source_.size(); ++i) {
    column = source_[i] == '\n' ? 1 : column + 1;
    line += source_[i] == '\n';
  }
  return {Reason::bad_text, "line " + std::to_string(line) + ", column " + std::to_string(column) + ": " + message};
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string quoted_text(std::string_view s) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (char c : s) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\', out += c;
    else if (c == '\n') out += "\\n";
    else if (byte < 0x20) out += "\\x", out += kHex[byte >> 4], out += kHex[byte & 15];
    else out += c;
  }
  return out + '"';
}

std::vector<std::string> parts_of(std::string_view list) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view part = list.substr(0, comma);
    const size_t first = part.find_first_not_of(' ');
    if (first != part.npos) parts.emplace_back(part.substr(first, part.find_last_not_of(' ') + 1 - first));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return parts;
}

std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

}  // namespace framejit::text
