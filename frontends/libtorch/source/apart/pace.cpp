// The pace of ranks that train apart.

#include "pace.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace penstock::torch {
namespace {

constexpr std::size_t kSteps = 64;     // of which the median counts
constexpr std::size_t kExchanges = 8;  // of which the longest counts

void keep(std::deque<double>& last, double value, std::size_t most) {
  last.push_back(value);
  if (last.size() > most) last.pop_front();
}

double median(const std::deque<double>& values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

}  // namespace

void Pace::step_ends(double now) {
  if (began_) keep(steps_, now - *began_, kSteps);
}

void Pace::waited(double seconds) {
  if (plans_ > 0)
    --plans_;
  else
    keep(waits_, seconds, kExchanges);
}

std::optional<Pace::Report> Pace::report() const {
  if (waits_.empty() || steps_.empty()) return {};
  Report report{median(steps_), *std::max_element(waits_.begin(), waits_.end()), delay_};
  if (report.wait > 0.1 * report.step) {
    const auto steps = static_cast<std::int64_t>(std::ceil(report.wait / report.step));
    report.delay_that_hides += steps + (delay_ == 0 ? 1 : 0);
  }
  return report;
}

}  // namespace penstock::torch
