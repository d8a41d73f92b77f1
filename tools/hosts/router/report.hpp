// What the router has done since it was asked last: packets, how late it was, and its share of a
// processor.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace router {

// Seconds of a clock that only goes forward.
inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Processor seconds of this process, the kernel's work for it included.
inline double processor_s() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& time) {
    return double(time.tv_sec) + 1e-6 * double(time.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

class Report {
 public:
  uint64_t delivered = 0, lost = 0, dropped = 0;

  // A packet was handed on so much after its time.
  void late(double seconds) {
    const auto place = size_t(std::max(0.0, seconds) / kStep);
    ++late_[std::min(place, late_.size() - 1)];
    ++delivered;
  }

  // One line: delivered, lost on the way, thrown away before a line, milliseconds late at the
  // median and at 99 %, share of a processor. Begins anew.
  std::string line() {
    const double wall = now_s() - since_, processor = processor_s() - before_;
    std::string said = "report " + std::to_string(delivered) + " " + std::to_string(lost) + " " +
                       std::to_string(dropped) + " " + std::to_string(late_ms(0.5)) + " " +
                       std::to_string(late_ms(0.99)) + " " +
                       std::to_string(wall > 0 ? processor / wall : 0.0);
    *this = Report();
    return said;
  }

 private:
  static constexpr double kStep = 20e-6;

  double late_ms(double share) const {
    if (delivered == 0) return 0;
    uint64_t left = uint64_t(share * double(delivered));
    size_t place = 0;
    while (place + 1 < late_.size() && left >= late_[place]) left -= late_[place++];
    return 1e3 * kStep * double(place + 1);
  }

  double since_ = now_s(), before_ = processor_s();
  std::array<uint64_t, 5000> late_{};  // up to 100 ms
};

}  // namespace router
