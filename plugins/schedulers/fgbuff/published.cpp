// FGBuff's planner as coded, in its three steps.
#include "published.hpp"

#include <algorithm>
#include <cmath>

namespace fgbuff {

namespace {

struct Knot {
  double kilobytes;
  double seconds;
};

// The authors' measurements on eight hosts: the time to send a sparse message, by payload size, and
// the time to compress with top-k, by gradient size.
constexpr Knot kExchange[] = {{0.1, 0.005115}, {1, 0.005463},   {10, 0.005578},  {100, 0.005976},
                              {1e3, 0.019652}, {1e4, 0.112364}, {1e5, 1.005709}, {1.5e5, 1.516060}};
constexpr Knot kCompress[] = {{10, 7.68e-5},  {1e2, 1.76e-4}, {1e3, 3.17e-4},
                              {1e4, 2.41e-4}, {1e5, 3.45e-4}, {1e6, 1.60e-3}};

// Interpolates linearly between knots; constant below the first knot. Beyond the last knot it
// continues the last slope, while the original stops with an error.
double interpolate(std::span<const Knot> knots, double kilobytes) {
  if (!(kilobytes > knots.front().kilobytes)) return knots.front().seconds;
  size_t upper = 1;
  while (upper + 1 < knots.size() && kilobytes > knots[upper].kilobytes) ++upper;
  const Knot& a = knots[upper - 1];
  const Knot& b = knots[upper];
  return a.seconds +
         (b.seconds - a.seconds) * (kilobytes - a.kilobytes) / (b.kilobytes - a.kilobytes);
}

double exchange_s(double elements, double density) {
  return interpolate(kExchange, std::floor(elements * density * 4 / 1024));
}

double compress_s(double elements) {
  return interpolate(kCompress, std::max(1.0, std::floor(4 * elements / 1024)));
}

// A group of the first step, or several joined groups.
struct Group {
  uint64_t count = 0;
  double exchange = 0;  // M: exchange and compression, summed over its parts
  double collect = 0;   // W + C: backward and compression that fill the group
};

// Step 1: a group closes as soon as the start-ups it saves exceed the backward time it waits for.
std::vector<Group> step_one(std::span<const uint64_t> sizes, const PublishedConstants& constants,
                            double total) {
  std::vector<Group> groups;
  double elements = 0;
  uint64_t count = 0;
  const auto close = [&] {
    const double compress = compress_s(elements);
    const double backward = constants.backward_s * elements / total;
    groups.push_back(
        {count, exchange_s(elements, constants.density) + compress, backward + compress});
    elements = 0;
    count = 0;
  };
  for (uint64_t size : sizes) {
    elements += static_cast<double>(size);
    ++count;
    const double backward = constants.backward_s * elements / total;
    const double saved = static_cast<double>(count - 1) * constants.startup_s;
    if (backward - saved < constants.slack_s) close();
  }
  if (count > 0) close();
  return groups;
}

// Step 2: a buffer collects groups for as long as the buffer before it is sent. As coded, the time
// spent collecting is never reset: once it has passed the time of a buffer, later buffers hardly
// grow.
std::vector<uint64_t> step_two(const std::vector<Group>& groups, bool reset) {
  std::vector<uint64_t> counts = {groups[0].count};
  double current = groups[0].exchange;
  double collected = 0;
  size_t first = 1;  // the first of the groups collected so far
  size_t next = 1;
  while (next < groups.size()) {
    const double with_next = collected + groups[next].collect;
    const bool fits = with_next <= current;
    collected = fits || !reset ? with_next : 0;
    if (fits) {
      ++next;
      continue;
    }
    if (next == first) ++next;  // the first group alone takes too long: it is a buffer of its own
    Group buffer;
    for (; first < next; ++first) {
      buffer.count += groups[first].count;
      buffer.exchange += groups[first].exchange;
    }
    counts.push_back(buffer.count);
    current = buffer.exchange;
  }
  for (; first < next; ++first) counts.push_back(groups[first].count);  // the tail: one by one
  return counts;
}

}  // namespace

// Step 3 cuts the tail that backward cannot hide. It uses at most the first three buffers of step
// 2, then repeats the last length.
std::vector<uint64_t> published_counts(std::span<const uint64_t> sizes,
                                       const PublishedConstants& constants) {
  if (sizes.empty()) return {};
  std::vector<double> prefix = {0};
  for (uint64_t size : sizes) prefix.push_back(prefix.back() + static_cast<double>(size));
  const std::vector<Group> groups = step_one(sizes, constants, std::max(prefix.back(), 1.0));
  double hidden = 0;  // H: time of backward and compression after the first group
  for (size_t i = 1; i < groups.size(); ++i) hidden += groups[i].collect;

  std::vector<uint64_t> result;
  uint64_t left = sizes.size();
  const auto emit = [&](uint64_t count) {
    count = std::min(count, left);
    if (count > 0) result.push_back(count);
    left -= count;
  };
  const std::vector<uint64_t> counts = step_two(groups, constants.accumulator_reset);
  for (size_t i = 0; i < counts.size() && left > 0; ++i) {
    emit(counts[i]);
    const uint64_t done = sizes.size() - left;
    if (exchange_s(prefix[done], constants.density) > hidden) break;
    if (constants.density >= 1 || i <= 1) continue;
    uint64_t length = counts[i];
    if (left <= length) break;
    if (length < 3) {
      length = left / 3;
      emit(length);
    }
    // This loop ends: three buffers are made already, so with at most two remaining gradients
    // nothing is repeated, and with more the length is positive.
    while (left > sizes.size() - left) emit(length);
    break;
  }
  emit(left);
  return result;
}

}  // namespace fgbuff
