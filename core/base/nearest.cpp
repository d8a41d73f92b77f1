#include "core/base/nearest.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace penstock {

namespace {
constexpr size_t kMostListed = 12;

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
}  // namespace

// Optimal string alignment distance with three rolling rows.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
          lower(a[i - 2]) == lower(b[j - 1])) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string nearest_name(std::string_view wanted, const std::vector<std::string>& known) {
  // Input from a file may be very long, but a name is not.
  if (wanted.empty() || wanted.size() > 128) return {};
  const size_t limit = std::max<size_t>(1, (wanted.size() + 1) / 3);
  size_t best_distance = limit + 1;
  std::string best;
  for (const std::string& name : known) {
    const size_t distance = edit_distance(wanted, name);
    if (distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  }
  // Names of one letter are near to every name, so a suggestion must share at least one letter.
  return best_distance < std::max(wanted.size(), best.size()) ? best : std::string();
}

std::string did_you_mean(std::string_view wanted, const std::vector<std::string>& known) {
  if (const std::string name = nearest_name(wanted, known); !name.empty()) {
    return fmt::format("; did you mean \"{}\"?", name);
  }
  if (known.empty()) return {};
  const size_t shown = std::min(known.size(), kMostListed);
  return fmt::format("; known are: {}{}",
                     fmt::join(known.begin(), known.begin() + static_cast<ptrdiff_t>(shown), ", "),
                     shown < known.size() ? ", ..." : "");
}

}  // namespace penstock
