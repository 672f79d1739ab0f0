#include "runtime/base/closest_name.h"

#include <algorithm>
#include <utility>

namespace framejit {
namespace {

constexpr size_t kMostTypos = 2;

// How many characters must be inserted, removed or replaced to turn `a` into `b`.
size_t distance_of(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t k = 0; k <= b.size(); ++k) row[k] = k;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t k = 1; k <= b.size(); ++k) {
      const size_t replaced = diagonal + (a[i - 1] != b[k - 1]);
      diagonal = row[k];
      row[k] = std::min({replaced, row[k] + 1, row[k - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string advice_for(std::string_view name, const std::vector<std::string>& known) {
  std::string listed, meant;
  size_t closest = kMostTypos + 1;
  for (const std::string& one : known) {
    listed += (listed.empty() ? "" : ", ") + one;
    const size_t distance = distance_of(name, one);
    if (distance < closest) closest = distance, meant = one;
  }
  return (meant.empty() ? "known: " : "did you mean " + meant + "? Known: ") + listed;
}

}  // namespace framejit
