#include "core/set/link_line.hpp"

#include "core/base/buffer.hpp"
#include "core/base/left_behind.hpp"
#include "core/trace/timeline.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

namespace penstock {
namespace {

// Elements that a message brings to all ranks together: alpha, the two classes' border, and beta.
constexpr uint64_t kSizes[] = {16, 1u << 13, 1u << 17};
constexpr size_t kTogether[] = {9, 5, 2};
constexpr int kRepeats = 3;
constexpr uint32_t kPatterns[] = {PENSTOCK_ALL_REDUCE, PENSTOCK_REDUCE_SCATTER,
                                  PENSTOCK_ALL_GATHER};

// Several messages under way at a time.
class Together {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return left_ == 0; });
  }
  void expect(size_t n) { left_ = n; }
  void end(Status status) {
    std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = std::move(status);
    if (--left_ == 0) ended_.notify_one();
  }
  const Status& status() const { return status_; }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  size_t left_ = 0;
  Status status_;
};

// What all messages of a measurement send, zeros, and where they receive, each in a place of its
// own: taken once, for fresh pages cost more than small messages do.
struct Space {
  Buffer send, receive;
};

struct Probe final : Transfer {
  Together* together = nullptr;
  std::vector<uint64_t> counts, offsets;
  void finished(Status status) override { together->end(std::move(status)); }

  // Of `count` elements of this rank; an all-gather brings as many of each other rank. Returns how
  // many elements it receives.
  uint64_t shape(uint32_t pattern, uint64_t count, uint32_t size, const Space& space,
                 uint64_t received_before) {
    const uint64_t parts = pattern == PENSTOCK_ALL_GATHER ? size : 1;
    for (uint32_t r = 0; r < size; ++r) {
      const bool gathers = pattern == PENSTOCK_ALL_GATHER;
      counts.push_back(gathers ? count : count / size + (r < count % size ? 1 : 0));
      offsets.push_back(r * count);
    }
    message.struct_size = sizeof message;
    message.pattern = pattern;
    message.reduction = PENSTOCK_REDUCE_SUM;
    message.dtype = PENSTOCK_FLOAT32;
    message.flags = pattern == PENSTOCK_ALL_GATHER ? uint32_t{PENSTOCK_MESSAGE_EXACT_COUNTS} : 0;
    message.send = space.send.data();
    message.receive = space.receive.as<float>() + received_before;
    message.count = count;
    message.receive_counts = counts.data();
    message.receive_offsets = offsets.data();
    return count * parts;
  }
};

struct Probes {
  std::shared_ptr<const Space> space;
  Together together;
  std::deque<Probe> probes;
};

class Measurement {
 public:
  Measurement(Communication& communication, Channel& channel, uint64_t limit_us, uint64_t tag)
      : communication_(communication), channel_(channel), limit_us_(limit_us), tag_(tag) {
    uint64_t most_sent = 0, most_received = 0;
    for (size_t i = 0; i < std::size(kSizes); ++i) {
      // An all-gather brings at least an element of every rank.
      const uint64_t count = std::max<uint64_t>(kSizes[i], channel.members.size());
      most_sent = std::max(most_sent, count);
      most_received = std::max(most_received, kTogether[i] * count);
    }
    space_ = std::make_shared<const Space>(
        Space{Buffer(most_sent * sizeof(float)), Buffer(most_received * sizeof(float))});
  }

  // What a message of `bytes` takes among others, for each of kSizes.
  struct Point {
    double bytes = 0, us = 0;
  };
  using Points = std::array<Point, std::size(kSizes)>;
  Result<Points> points(uint32_t pattern) {
    Points points;
    for (size_t i = 0; i < points.size(); ++i) {
      const uint64_t share = pattern == PENSTOCK_ALL_GATHER ? channel_.members.size() : 1;
      const uint64_t count = std::max<uint64_t>(kSizes[i] / share, 1);
      points[i].bytes = double(count * sizeof(float));
      PENSTOCK_ASSIGN(points[i].us, least_us(pattern, count, 1));
      // On an ordered channel messages wait for each other anyway, and only one may go out of turn.
      if ((channel_.traits.flags & PENSTOCK_COLLECTIVE_ORDERED) != 0) continue;
      PENSTOCK_ASSIGN(const double many, least_us(pattern, count, kTogether[i]));
      points[i].us = std::max(0.0, (many - points[i].us) / double(kTogether[i] - 1));
    }
    return points;
  }

 private:
  // The least time that `n` messages take together.
  Result<double> least_us(uint32_t pattern, uint64_t count, size_t n) {
    double least = 0;
    for (int i = 0; i < kRepeats; ++i) {
      PENSTOCK_ASSIGN(const double time, once_us(pattern, count, n));
      least = i == 0 ? time : std::min(least, time);
    }
    return least;
  }

  Result<double> once_us(uint32_t pattern, uint64_t count, size_t n) {
    auto probes_owner = std::make_unique<Probes>();
    Together& together = probes_owner->together;
    std::deque<Probe>& probes = probes_owner->probes;
    together.expect(n);
    probes.resize(n);
    probes_owner->space = space_;
    uint64_t received = 0;
    for (size_t i = 0; i < n; ++i) {
      received += probes[i].shape(pattern, count, channel_.members.size(), *space_, received);
      probes[i].together = &together;
      probes[i].sequence = Transfer::kAtOnce;
      probes[i].limit_us = probes[i].message.deadline_us = limit_us_;
      probes[i].message.tag = tag_ - i;
    }
    const uint64_t start = now_us();
    for (Probe& probe : probes) communication_.submit(&channel_, &probe);
    together.wait();
    const auto time = double(now_us() - start);
    if (together.status().ok()) return time;
    // The transport may still write to their buffers: they are left behind, not freed.
    return leave_behind(std::move(probes_owner))->together.status();
  }

  Communication& communication_;
  Channel& channel_;
  uint64_t limit_us_;
  uint64_t tag_;
  std::shared_ptr<const Space> space_;
};

using Point = Measurement::Point;

// The line through two points, from the first of them on.
planning::LinkEntry line_through(const Point& from, const Point& to) {
  planning::LinkEntry line;
  const double bytes = to.bytes - from.bytes;
  line.beta_us_per_byte = bytes > 0 ? std::max(0.0, (to.us - from.us) / bytes) : 0;
  line.alpha_us = std::max(0.0, from.us - line.beta_us_per_byte * from.bytes);
  line.bytes_from = static_cast<uint64_t>(from.bytes);
  return line;
}

}  // namespace

Result<LinkLines> measure_lines(Communication& communication, Channel& channel, uint64_t limit_us,
                                uint64_t tag) {
  Measurement measurement(communication, channel, limit_us, tag);
  const uint64_t can = channel.traits.patterns;
  LinkLines lines;
  for (const uint32_t pattern : kPatterns) {
    if ((can & PENSTOCK_PATTERN_BIT(pattern)) == 0) continue;
    PENSTOCK_ASSIGN(const auto points, measurement.points(pattern));
    for (size_t i = 0; i + 1 < points.size(); ++i) {
      planning::LinkEntry line = line_through(points[i], points[i + 1]);
      if (i == 0) line.bytes_from = 0;
      line.pattern = pattern;
      line.level = channel.members.level();
      lines.by_size.push_back(line);
    }
    if (pattern != PENSTOCK_ALL_REDUCE) continue;
    lines.whole = line_through(points.front(), points.back());
    lines.whole.bytes_from = 0;
    lines.whole.level = channel.members.level();
  }
  return lines;
}

}  // namespace penstock
