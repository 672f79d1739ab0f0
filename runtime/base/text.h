// runtime/base/text.h — the cursor under all text forms: tokens on demand, errors with line and column.
//
// Blanks and comments (# to the end of the line) are skipped before every token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace framejit::text {

class Cursor {
 public:
  explicit Cursor(std::string_view source) : source_(source) {}
  explicit Cursor(const char* source) : source_(source) {}
  explicit Cursor(std::string&&) = delete;  // the source must outlive the cursor

  bool at_end();
  char peek();                            // next character after blanks, 0 at the end
  bool peek_is(std::string_view token);   // a word matches only a whole word
  bool accept(std::string_view token);    // consumes it if it is next
  Result<void> expect(std::string_view token);
  std::string_view word();                // [A-Za-z_][A-Za-z0-9_]*, empty if none is next
  std::string_view dotted_word();         // words joined by '.' or "::"
  Result<int64_t> integer();              // optional sign
  bool next_is_float();                   // a number with '.', 'e', or the words inf and nan, signed or not
  Result<double> floating();
  Result<std::string> quoted();           // "..." with \\ \" \n \xHH escapes

  size_t position() const { return at_; }
  void rewind(size_t position) { at_ = position; }
  Error error(const std::string& message) const;  // "parse" at the current line and column

 private:
  void skip();
  size_t number_end(bool* is_float) const;
  std::string_view source_;
  size_t at_ = 0;
};

std::string float_text(double value);          // shortest exact; always with '.', 'e', inf or nan
std::string quoted_text(std::string_view s);   // what Cursor::quoted reads
// The parts of a list that commas separate, without surrounding blanks; empty parts are dropped.
std::vector<std::string> parts_of(std::string_view list);
std::string_view first_line(std::string_view text);

}  // namespace framejit::text
