// What a packet meets between two hosts: the line of the one that sends, the way, the line of the
// other. Times are seconds of one clock; nothing here reads it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace router {

// One direction of a host's line: packets leave one after the other, and what finds more than
// `limit_bytes` waiting is thrown away.
class Line {
 public:
  double bytes_per_s = 0;
  double limit_bytes = 0;

  // When a packet that comes at `now` has left the line; nothing where it is thrown away.
  std::optional<double> leave(double now, double bytes) {
    const double start = std::max(now, free_at_);
    if ((start - now) * bytes_per_s + bytes > limit_bytes) return std::nullopt;
    return free_at_ = start + bytes / bytes_per_s;
  }

 private:
  double free_at_ = 0;
};

// splitmix64: uniform in [0, 1).
class Dice {
 public:
  explicit Dice(uint64_t seed = 0) : state_(seed) {}

  double roll() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return double((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }

 private:
  uint64_t state_;
};

// From one host to another. Jitter is uniform in [-jitter, jitter], and packets keep their order.
class Way {
 public:
  double delay_s = 0;
  double jitter_s = 0;
  double loss = 0;  // share of the packets
  bool is_cut = false;

  Way() = default;
  explicit Way(uint64_t seed) : dice_(seed) {}

  // When a packet that sets out at `now` is there; nothing where it is lost. Each packet rolls the
  // same number of times, so that which ones are lost depends on the seed and their number alone.
  std::optional<double> arrive(double now) {
    const double luck = dice_.roll();
    const double shift = jitter_s * (2 * dice_.roll() - 1);
    if (is_cut || luck < loss) return std::nullopt;
    return last_ = std::max(last_, now + std::max(0.0, delay_s + shift));
  }

 private:
  Dice dice_;
  double last_ = 0;
};

struct Host {
  int device = -1;  // a TUN device that is open
  Line out, in;
  std::vector<Way> ways;  // to each host
};

}  // namespace router
