// A Chrome trace of named stages per bucket and of named operations; opens in Perfetto and in
// chrome://tracing.
//
// Off until start; then every span costs one lock and one append. A separate thread writes the file
// during the run. All functions may be called from any thread.
#pragma once

#include "core/base/clock.hpp"
#include "core/base/mutex.hpp"
#include "core/base/status.hpp"
#include "core/trace/timeline_file.hpp"

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace penstock {

// One span of a trace.
struct Span {
  // negotiate, backward, compensate, encode, exchange, decode, record, finish or wait; for an
  // operation, its pattern.
  std::string stage;
  std::string lane;  // groups spans in rows: a bucket with its gradients, or "application"
  uint64_t start_us = 0;
  uint64_t end_us = 0;
  uint64_t step = 0;
  std::string scheme;      // compressor and memory; empty: the span has none
  uint64_t bytes = 0;      // bytes handed over; 0: not shown
  uint64_t operation = 0;  // number of a named operation, whose spans may overlap; 0: none
};

class Timeline {
 public:
  explicit Timeline(uint32_t rank = 0) : rank_(rank) {}
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Writes to `path` from now on. A running trace is ended first.
  Status start(const std::string& path);
  // Success if no trace is running. An error that `warn` has received is not returned again.
  Status stop();
  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }
  void set_rank(uint32_t rank) { rank_ = rank; }
  // Called before start. `warn` receives one line when writing fails; the trace ends then.
  void set_warning(std::function<void(std::string_view)> warn) { warn_ = std::move(warn); }

  void add(Span span);
  // Adds an operation with this name: the times of its submission, its sending and its end.
  void add_operation(std::string_view pattern, std::string_view name, uint64_t asked_us,
                     uint64_t sent_us, uint64_t end_us, uint64_t bytes);
  // Returns when all added spans are in the file, or writing has failed.
  void flush();

 private:
  void loop();
  void write(const std::vector<Span>& spans);  // on the writing thread
  int lane_number(const std::string& lane, std::string& events);

  std::atomic<bool> enabled_{false};
  uint32_t rank_;
  std::function<void(std::string_view)> warn_;
  Mutex control_;  // of start and stop
  Mutex mutex_;
  Condition wake_, written_;
  std::vector<Span> spans_ PENSTOCK_GUARDED_BY(mutex_);
  bool stopping_ PENSTOCK_GUARDED_BY(mutex_) = false;
  bool flushing_ PENSTOCK_GUARDED_BY(mutex_) = false;
  uint64_t next_operation_ PENSTOCK_GUARDED_BY(mutex_) = 1;
  std::thread writer_ PENSTOCK_GUARDED_BY(control_);
  // Used by the writing thread only.
  TimelineFile file_;
  std::map<std::string, int> lanes_;
};

// Adds a span from its construction to its destruction if the timeline is on.
class TimedSpan {
 public:
  TimedSpan(Timeline* timeline, std::string_view stage, std::string_view lane, uint64_t step,
            std::string_view scheme = {})
      : timeline_(timeline != nullptr && timeline->enabled() ? timeline : nullptr),
        stage_(stage),
        lane_(lane),
        scheme_(scheme),
        step_(step) {
    if (timeline_ != nullptr) start_us_ = now_us();
  }
  ~TimedSpan() {
    if (timeline_ == nullptr) return;
    timeline_->add({std::string(stage_), std::string(lane_), start_us_, now_us(), step_,
                    std::string(scheme_), 0, 0});
  }
  TimedSpan(const TimedSpan&) = delete;
  TimedSpan& operator=(const TimedSpan&) = delete;

 private:
  Timeline* timeline_;
  std::string_view stage_;
  std::string_view lane_;
  std::string_view scheme_;
  uint64_t step_;
  uint64_t start_us_ = 0;
};

}  // namespace penstock
