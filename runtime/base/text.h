// runtime/base/text.h — text forms: a cursor with tokens on demand and errors with line and column; numbers and strings
// as they are printed.
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
  std::string_view word();                // [A-Za-z_][A-Za-z0-9_]*, empty if none is next
  Result<int64_t> integer();              // optional sign
  bool next_is_float();                   // a number with '.', 'e', or the words inf and nan, signed or not
  Result<double> floating();

  Error error(const std::string& message) const;  // "parse" at the current line and column

 protected:  // tests/parsers/reader.h reads more
  std::string_view source_;
  size_t at_ = 0;

 private:
  void skip();
  size_t number_end(bool* is_float) const;
};

std::string float_text(double value);          // shortest exact; always with '.', 'e', inf or nan
std::string quoted_text(std::string_view s);  // "..." with \\ \" \n \xHH escapes
// The parts of a list that commas separate, without surrounding blanks; empty parts are dropped.
std::vector<std::string> parts_of(std::string_view list);
std::string_view first_line(std::string_view text);

}  // namespace framejit::text
