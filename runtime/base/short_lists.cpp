#include "runtime/base/short_lists.h"

#include <vector>

namespace framejit::text {

namespace {

constexpr size_t kLongLine = 160;  // shorter lines stay as they are
constexpr size_t kShownItems = 4;  // of a longer list
constexpr size_t kMostArguments = 16;  // of a call: all are shown

constexpr std::string_view kComma = ", ";
constexpr std::string_view kSeparators[] = {" = ", " : ", "   "};  // between the lists of a line

// Reads items up to the bracket that closes the list, or to the end of the line.
class ShortLine final {
 public:
  explicit ShortLine(std::string_view line) : line_(line) {}
  std::string text() { return list(0); }

 private:
  std::string_view rest() const { return line_.substr(at_); }

  std::string list(char bracket) {  // that opened it; 0: none
    std::string out;
    std::vector<std::string> items(1);
    while (at_ < line_.size()) {
      const char c = line_[at_];
      if (bracket != 0 && (c == ']' || c == ')')) break;
      if (rest().starts_with(kComma)) {
        items.emplace_back();
        at_ += kComma.size();
      } else if (c == '[' || c == '(') {
        items.back() += line_[at_++];
        items.back() += list(c);
        if (at_ < line_.size()) items.back() += line_[at_++];
      } else if (const size_t length = bracket != 0 ? 0 : separator(); length > 0) {
        out += joined(items, kShownItems + 1);
        out += line_.substr(at_, length);
        items.assign(1, "");
        at_ += length;
      } else {
        items.back() += line_[at_++];
      }
    }
    return out + joined(items, bracket == '(' ? kMostArguments : kShownItems + 1);
  }

  size_t separator() const {
    for (std::string_view separator : kSeparators)
      if (rest().starts_with(separator)) return separator.size();
    return 0;
  }

  static std::string joined(const std::vector<std::string>& items, size_t most) {  // "... 1 more" would be no shorter
    const bool is_long = items.size() > most;
    std::string out;
    for (size_t i = 0; i < (is_long ? kShownItems : items.size()); ++i) out += (i > 0 ? ", " : "") + items[i];
    return is_long ? out + ", ... " + std::to_string(items.size() - kShownItems) + " more" : out;
  }

  std::string_view line_;
  size_t at_ = 0;
};

}  // namespace

std::string with_short_lists(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    out += line.size() > kLongLine ? ShortLine(line).text() : std::string(line);
    if (end == text.npos) break;
    out += '\n';
    text.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace framejit::text
