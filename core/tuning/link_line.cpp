#include "core/tuning/link_line.hpp"

#include <algorithm>
#include <array>

namespace penstock {
namespace {

// The elements of a message, over all ranks: for alpha, for the border of the two classes, for
// beta.
constexpr uint64_t kSizes[] = {16, 1u << 13, 1u << 17};
constexpr size_t kTogether[] = {9, 5, 2};
constexpr int kRepeats = 3;
constexpr uint32_t kPatterns[] = {PENSTOCK_ALL_REDUCE, PENSTOCK_REDUCE_SCATTER,
                                  PENSTOCK_ALL_GATHER};

TrialElements trial_elements(uint64_t world) {
  TrialElements most;
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    // An all-gather has at least one element of every rank.
    const uint64_t count = std::max(kSizes[i], world);
    most.sent = std::max(most.sent, count);
    most.received = std::max(most.received, kTogether[i] * count);
  }
  return most;
}

// The least time for `n` messages at once.
Result<double> least_us(LinkTrial& trial, uint32_t pattern, uint64_t count, size_t n) {
  double least = 0;
  for (int i = 0; i < kRepeats; ++i) {
    PENSTOCK_ASSIGN(const double time, trial.together_us(pattern, count, n));
    least = i == 0 ? time : std::min(least, time);
  }
  return least;
}

// The time of a message of `bytes` among other messages, for each of kSizes.
struct Point {
  double bytes = 0, us = 0;
};
using Points = std::array<Point, std::size(kSizes)>;

Result<Points> measure_points(LinkTrial& trial, uint32_t pattern) {
  Points points;
  for (size_t i = 0; i < points.size(); ++i) {
    const uint64_t share = pattern == PENSTOCK_ALL_GATHER ? trial.channel().members.size() : 1;
    const uint64_t count = std::max<uint64_t>(kSizes[i] / share, 1);
    points[i].bytes = double(count * sizeof(float));
    PENSTOCK_ASSIGN(points[i].us, least_us(trial, pattern, count, 1));
    if (!trial.goes_side_by_side()) continue;
    PENSTOCK_ASSIGN(const double many, least_us(trial, pattern, count, kTogether[i]));
    points[i].us = std::max(0.0, (many - points[i].us) / double(kTogether[i] - 1));
  }
  return points;
}

// The line through two points. It begins at the first point.
planning::LinkEntry line_through(const Point& from, const Point& to) {
  planning::LinkEntry line;
  const double bytes = to.bytes - from.bytes;
  line.beta_us_per_byte = bytes > 0 ? std::max(0.0, (to.us - from.us) / bytes) : 0;
  line.alpha_us = std::max(0.0, from.us - line.beta_us_per_byte * from.bytes);
  line.bytes_from = static_cast<uint64_t>(from.bytes);
  return line;
}

Result<LinkLines> measure(LinkTrial& trial, uint32_t level) {
  LinkLines lines;
  for (const uint32_t pattern : kPatterns) {
    if ((trial.patterns() & PENSTOCK_PATTERN_BIT(pattern)) == 0) continue;
    PENSTOCK_ASSIGN(const Points points, measure_points(trial, pattern));
    for (size_t i = 0; i + 1 < points.size(); ++i) {
      planning::LinkEntry line = line_through(points[i], points[i + 1]);
      if (i == 0) line.bytes_from = 0;
      line.pattern = pattern;
      line.level = level;
      lines.by_size.push_back(line);
    }
    if (pattern != PENSTOCK_ALL_REDUCE) continue;
    lines.whole = line_through(points.front(), points.back());
    lines.whole.bytes_from = 0;
    lines.whole.level = level;
  }
  return lines;
}

}  // namespace

Result<LinkLines> measure_lines(const HostPath& path) {
  const Group& members = path.channel.members;
  return measure(*make_trial(path, trial_elements(members.size())), members.level());
}

Result<LinkLines> measure_lines(const DirectPath& path) {
  const Group& members = path.tells.channel.members;
  PENSTOCK_ASSIGN(const auto trial, make_trial(path, trial_elements(members.size())));
  return measure(*trial, members.level());
}

}  // namespace penstock
