#include "tests/parsers/reader.h"

namespace framejit::text {
namespace {

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= '0' && c <= '9'); }
int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

Result<void> Reader::expect(std::string_view token) {
  if (accept(token)) return {};
  return error("expected '" + std::string(token) + "'");
}

std::string_view Reader::dotted_word() {
  const size_t length = word().size();
  const size_t start = at_ - length;
  if (length == 0) return {};
  while (at_ < source_.size()) {
    const size_t joint = source_[at_] == '.' ? 1 : source_.substr(at_).starts_with("::") ? 2 : 0;
    if (joint == 0 || at_ + joint >= source_.size() || !is_word(source_[at_ + joint])) break;
    at_ += joint;
    while (at_ < source_.size() && is_word(source_[at_])) ++at_;
  }
  return source_.substr(start, at_ - start);
}

Result<std::string> Reader::quoted() {
  FJ_TRY_VOID(expect("\""));
  std::string value;
  while (at_ < source_.size() && source_[at_] != '"') {
    char c = source_[at_++];
    if (c != '\\') {
      value += c;
      continue;
    }
    c = at_ < source_.size() ? source_[at_++] : '\0';
    if (c == 'n') {
      value += '\n';
    } else if (c == '"' || c == '\\') {
      value += c;
    } else if (c == 'x' && at_ + 1 < source_.size() && hex_value(source_[at_]) >= 0 &&
               hex_value(source_[at_ + 1]) >= 0) {
      value += static_cast<char>(hex_value(source_[at_]) * 16 + hex_value(source_[at_ + 1]));
      at_ += 2;
    } else {
      return error("unknown escape in a string");
    }
  }
  FJ_TRY_VOID(expect("\""));
  return value;
}

std::optional<DType> find_dtype(std::string_view text) {
  for (int i = 0; i <= static_cast<int>(DType::kOther); ++i)
    if (text == row_of(static_cast<DType>(i)).text) return static_cast<DType>(i);
  return std::nullopt;
}

}  // namespace framejit::text
