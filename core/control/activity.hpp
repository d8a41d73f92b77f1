// The current activity of this rank. The control messages carry it to the ranks that wait for this
// rank, and the watch thread reads it to warn about plugin calls that do not return.
//
// Nothing here allocates on the step path: a text is made only when a reader asks for it.
#pragma once

#include "core/base/mutex.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

// The plugin calls that are being executed, the youngest first. Calls of several threads may end in
// any order.
class CallSlot {
 public:
  // Views stay valid until the call ends.
  struct Call {
    std::string_view kind;   // "compressor"
    std::string_view name;   // of the instance, or empty
    std::string_view stage;  // "encode"
    std::string_view where;  // "bucket 3", or empty
    std::string_view set;    // name, or empty
    uint64_t step = 0;
    uint64_t since_us = 0;
    Call* older = nullptr;  // the next call of the slot
  };
  // [any] The youngest call: "encode of compressor 'topk' for bucket 3 of set 'model', step 12" and
  // how long it has lasted; none when no call lasts for at least this long.
  struct Long {
    std::string text;
    uint64_t lasted_us = 0;
    uint64_t since_us = 0;
  };
  std::optional<Long> lasting(uint64_t at_least_us) const;

 private:
  friend class PluginCall;
  mutable Mutex mutex_;  // between the calling threads and a reader; hardly ever contended
  Call* youngest_ PENSTOCK_GUARDED_BY(mutex_) = nullptr;
};

// Marks a plugin call from construction to destruction. If a plugin ends the process during the
// call, the run would end silently with the plugin's exit status. Therefore this class then names
// the call on standard error and makes the exit status 1.
class PluginCall {
 public:
  PluginCall(CallSlot* slot, std::string_view kind, std::string_view name, std::string_view stage,
             std::string_view where = {}, std::string_view set = {}, uint64_t step = 0);
  ~PluginCall();
  PluginCall(const PluginCall&) = delete;
  PluginCall& operator=(const PluginCall&) = delete;

  // "encode of compressor 'topk' for bucket 3 of set 'model', step 12".
  static std::string text_of(const CallSlot::Call& call);

 private:
  CallSlot* slot_;
  CallSlot::Call call_;
  const CallSlot::Call* outer_here_ = nullptr;  // of this thread
};

class Activity {
 public:
  enum class Phase : uint32_t { rests, computes, waits, ended };

  // The steps of one set. Written by the set's threads, read by the watch thread.
  struct Steps {
    explicit Steps(std::string name) : set(std::move(name)) {}
    void at(Phase now, uint64_t step);
    // Every message of the steps below `count` has ended on this rank.
    void done(uint64_t count) { steps_done.store(count, std::memory_order_release); }

    const std::string set;
    std::atomic<uint64_t> steps_done{0};
    std::atomic<uint64_t> step{0};
    std::atomic<Phase> phase{Phase::rests};
    std::atomic<uint64_t> since_us{0};
  };

  // [any] Records something outside steps, in the past tense: "asked for operation 'x'".
  void did(std::string_view text);
  // [control] The entry is kept to the end of the run; a new set with an equal name replaces it.
  std::shared_ptr<Steps> add_set(std::string name);

  // [any] The current or last activity of this rank, and since when.
  std::string text() const;
  // [any] For every set, the number of finished steps on this rank.
  std::vector<std::pair<std::string, uint64_t>> steps_done() const;

  CallSlot engine;     // compressors and memories, in steps
  CallSlot transport;  // collectives
  CallSlot planning;   // plugin calls while a set is made or changed
  std::array<const CallSlot*, 3> slots() const { return {&engine, &transport, &planning}; }

 private:
  mutable Mutex mutex_;
  std::string did_ PENSTOCK_GUARDED_BY(mutex_);
  uint64_t did_us_ PENSTOCK_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<Steps>> sets_ PENSTOCK_GUARDED_BY(mutex_);
};

}  // namespace penstock
