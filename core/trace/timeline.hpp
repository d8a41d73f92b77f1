// A Chrome trace of named stages per bucket; opens in Perfetto and in chrome://tracing.
//
// Off until start; then every span costs one lock and one append. All functions may be called from
// any thread.
#pragma once

#include "core/base/status.hpp"

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <vector>

namespace penstock {

// Microseconds on the steady clock.
inline uint64_t now_us() {
  using namespace std::chrono;
  return uint64_t(duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count());
}

class Timeline {
 public:
  explicit Timeline(uint32_t rank = 0) : rank_(rank) {}
  ~Timeline();

  // Collects from now on, to be written to `path` at stop. A running trace is written first.
  Status start(const std::string& path);
  Status stop();  // success when none is running
  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }
  void set_rank(uint32_t rank) { rank_ = rank; }

  // One span. `stage`: negotiate, compensate, encode, exchange, decode, record, finish or wait.
  // `lane` groups spans in rows: a bucket's label, or "application".
  void add(std::string_view stage, std::string_view lane, uint64_t start_us, uint64_t end_us,
           uint64_t step);

 private:
  struct Span {
    std::string stage;
    std::string lane;
    uint64_t start_us;
    uint64_t end_us;
    uint64_t step;
  };
  std::atomic<bool> enabled_{false};
  uint32_t rank_;
  std::mutex mutex_;
  std::string path_;
  std::vector<Span> spans_;
};

// Adds a span from its making to its end, when the timeline is on.
class Stage {
 public:
  Stage(Timeline* timeline, std::string_view stage, std::string_view lane, uint64_t step)
      : timeline_(timeline != nullptr && timeline->enabled() ? timeline : nullptr),
        stage_(stage),
        lane_(lane),
        step_(step) {
    if (timeline_ != nullptr) start_us_ = now_us();
  }
  ~Stage() {
    if (timeline_ != nullptr) timeline_->add(stage_, lane_, start_us_, now_us(), step_);
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

 private:
  Timeline* timeline_;
  std::string_view stage_;
  std::string_view lane_;
  uint64_t step_;
  uint64_t start_us_ = 0;
};

}  // namespace penstock
