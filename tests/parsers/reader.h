// tests/parsers/reader.h — the cursor of runtime/base/text.h, and what only tests read: the package prints these forms.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/text.h"
#include "runtime/dtype.h"

namespace framejit::text {

class Reader : public Cursor {
 public:
  using Cursor::Cursor;

  Result<void> expect(std::string_view token);
  std::string_view dotted_word();         // words joined by '.' or "::"
  Result<std::string> quoted();           // what quoted_text() prints

  size_t position() const { return at_; }
  void rewind(size_t position) { at_ = position; }
};

std::optional<DType> find_dtype(std::string_view text);  // the row with this text

}  // namespace framejit::text
