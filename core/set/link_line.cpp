#include "core/set/link_line.hpp"

#include "core/base/buffer.hpp"
#include "core/trace/timeline.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>

namespace penstock {
namespace {

constexpr uint64_t kSmall = 16, kLarge = 1u << 17;  // elements
constexpr size_t kSmallTogether = 9, kLargeTogether = 2;
constexpr int kRepeats = 4;

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

struct Probe final : Transfer {
  Together* together = nullptr;
  Buffer data;
  void finished(Status status) override { together->end(std::move(status)); }
};

struct Probes {
  Together together;
  std::deque<Probe> probes;
};

class Measurement {
 public:
  Measurement(Communication& communication, Channel& channel, uint64_t limit_us, uint64_t tag)
      : communication_(communication), channel_(channel), limit_us_(limit_us), tag_(tag) {}

  // The least time that `n` sums of `count` elements take together.
  Result<double> least_us(uint64_t count, size_t n) {
    double least = 0;
    for (int i = 0; i < kRepeats; ++i) {
      PENSTOCK_ASSIGN(const double time, once_us(count, n));
      least = i == 0 ? time : std::min(least, time);
    }
    return least;
  }

 private:
  Result<double> once_us(uint64_t count, size_t n) {
    auto probes_owner = std::make_unique<Probes>();
    Together& together = probes_owner->together;
    std::deque<Probe>& probes = probes_owner->probes;
    together.expect(n);
    probes.resize(n);
    for (size_t i = 0; i < n; ++i) {
      probes[i].data = Buffer(count * sizeof(float));
      std::memset(probes[i].data.data(), 0, probes[i].data.bytes());
      probes[i].together = &together;
      probes[i].sequence = Transfer::kAtOnce;
      probes[i].limit_us = limit_us_;
      penstock_message& message = probes[i].message;
      message.struct_size = sizeof message;
      message.pattern = PENSTOCK_ALL_REDUCE;
      message.reduction = PENSTOCK_REDUCE_SUM;
      message.dtype = PENSTOCK_FLOAT32;
      message.send = message.receive = probes[i].data.data();
      message.count = count;
      message.deadline_us = limit_us_;
      message.tag = tag_ - i;
    }
    const uint64_t start = now_us();
    for (Probe& probe : probes) communication_.submit(&channel_, &probe);
    together.wait();
    const auto time = double(now_us() - start);
    if (together.status().ok()) return time;
    // The transport may still write to their buffers: they are left behind, not freed.
    return probes_owner.release()->together.status();
  }

  Communication& communication_;
  Channel& channel_;
  uint64_t limit_us_;
  uint64_t tag_;
};

}  // namespace

Result<planning::LinkEntry> measure_link(Communication& communication, Channel& channel,
                                         uint64_t limit_us, uint64_t tag) {
  constexpr double kLargeBytes = double(kLarge * sizeof(float));
  Measurement measurement(communication, channel, limit_us, tag);
  // On an ordered channel messages wait for each other anyway, and only one may go out of turn.
  const bool ordered = (channel.traits.flags & PENSTOCK_COLLECTIVE_ORDERED) != 0;
  PENSTOCK_ASSIGN(const double small, measurement.least_us(kSmall, 1));
  PENSTOCK_ASSIGN(const double large, measurement.least_us(kLarge, 1));
  planning::LinkEntry link;
  if (ordered) {
    link.alpha_us = small;
    link.beta_us_per_byte = std::max(0.0, (large - small) / kLargeBytes);
    return link;
  }
  PENSTOCK_ASSIGN(const double many, measurement.least_us(kSmall, kSmallTogether));
  PENSTOCK_ASSIGN(const double two, measurement.least_us(kLarge, kLargeTogether));
  link.alpha_us = std::max(0.0, (many - small) / double(kSmallTogether - 1));
  link.beta_us_per_byte = std::max(0.0, (two - large - link.alpha_us) / kLargeBytes);
  return link;
}

}  // namespace penstock
