// What all buckets of a set share.
#pragma once

#include "core/comm/communication.hpp"
#include "core/device/resident.hpp"
#include "core/trace/timeline.hpp"

#include <array>
#include <atomic>
#include <string>

namespace penstock {

class BucketRun;
class Engine;

// [engine] Hears at the end of a bucket's job, and before when what is left of it waits for the
// next forward, and when the messages of that have arrived.
struct BucketListener {
  virtual void bucket_ended(BucketRun& bucket, const Status& status) = 0;
  virtual void backward_part_ended(BucketRun& bucket) = 0;
  virtual void forward_part_arrived(BucketRun& bucket) = 0;  // once a round

 protected:
  ~BucketListener() = default;
};

// A channel as the buckets of a set use it, each step its messages in a sequence; between devices
// by turns instead.
struct Link {
  Channel* channel = nullptr;
  uint64_t sequence_base = 0;  // ORDERED channels: of this step's first message
  bool is_direct = false;      // between memories of devices
};

// The ranks of one level of a set, and how they reach each other. Links of levels that no plan has
// used yet are not open.
struct LevelLinks {
  Group group;
  Link transport;
  Link composite;  // of the composite collective, where the scheme has one
  // From device to device, where the run has a transport for that, at this level.
  Link direct{.is_direct = true};
};

// What a set has sent on a channel that it shares with others. [any]
struct DirectTraffic {
  std::atomic<uint64_t> handed_over{0}, moved{0}, messages{0};
  void add(uint64_t bytes, uint64_t sent) {
    handed_over += bytes;
    moved += sent;
    ++messages;
  }
};

// Of plugin calls whose work goes to the stream of these.
inline penstock_exec exec_on(const Residents& residents) {
  penstock_exec exec{};
  exec.struct_size = sizeof exec;
  exec.device_type = PENSTOCK_DEVICE_CUDA;
  exec.device_id = residents.device().id();
  exec.stream = residents.stream().handle();
  return exec;
}

struct SetContext {
  static constexpr uint64_t kTagBetweenSteps = (uint64_t{1} << 20) - 1;  // above those of any step

  BucketListener* listener = nullptr;
  Communication* communication = nullptr;
  Engine* engine = nullptr;
  Timeline* timeline = nullptr;
  std::array<LevelLinks, 3> levels;    // see at()
  uint64_t limit_us = 0;               // of each message
  CallSlot* calls = nullptr;           // where the engine's plugin calls are noted
  CallSlot* planning_calls = nullptr;  // and those outside a step
  uint32_t rank = 0;
  uint32_t world = 1;
  uint32_t n_hosts = 1;
  uint32_t owners_per_host = 1;    // ranks that every host has
  bool result_is_sum = false;      // the frontend wants sums, not means
  bool has_devices = false;        // some gradients lie on devices
  Residents* residents = nullptr;  // those that are worked on there; null: none
  BetweenDevices* between_devices = nullptr;
  DirectTraffic direct_traffic;
  bool echoes = false;  // what this rank sends arrives as that of every rank: a try without them
  bool results_are_told = false;     // somebody is told of each; changes between steps only
  bool forgets = false;              // what a step changes in states can be dropped
  bool nonfinite_is_strict = false;  // a void bucket is known before anything is added to a memory
  std::string name;                  // of the set
  std::string composite_id;          // plugin id of the composite collective
  std::string composite_name, transport_name;  // as the scheme calls them, for messages
  uint64_t tags_per_step = 1;                  // messages of the phase and link that have most
  penstock_exec exec{};                        // of plugin calls on the engine thread
  penstock_exec device_exec{};                 // of those whose items are worked on on a device
  penstock_step step{};                        // of the current step; written between steps only
  uint64_t attempt = 0;  // steps before it, forgotten ones too: numbers what travels
  uint32_t past = 0;     // 16 bits: a digest of what was forgotten so far, equal on all ranks
  bool last_was_applied = true;  // all of it
  std::atomic<uint64_t> void_buckets{0};
  bool measures_norm = false;          // of this step's gradients, as far as the host sees them
  std::atomic<double> square_norm{0};  // in true units
  // Of the step under way: the first gradient of this rank that was seen not to be finite.
  static constexpr uint64_t kNoGradient = UINT64_MAX;
  std::atomic<uint64_t> nonfinite_gradient{kNoGradient};

  // The ranks of the set, as this rank sees them.
  void take_group(const Group& group) {
    rank = group.rank();
    world = group.size();
    n_hosts = group.n_hosts();
    owners_per_host = group.least_per_host();
    at(PENSTOCK_LEVEL_WORLD).group = group;
    at(PENSTOCK_LEVEL_LOCAL).group = group.local();
    at(PENSTOCK_LEVEL_CROSS).group = group.cross();
  }
  // PENSTOCK_LEVEL_WORLD: all ranks of the set; LOCAL and CROSS: those that this rank meets there.
  LevelLinks& at(uint32_t level) { return levels[level - PENSTOCK_LEVEL_WORLD]; }
  const LevelLinks& at(uint32_t level) const { return levels[level - PENSTOCK_LEVEL_WORLD]; }
  const penstock_exec& exec_of(bool on_device) const { return on_device ? device_exec : exec; }
  Channel* channel() const { return at(PENSTOCK_LEVEL_WORLD).transport.channel; }
};

}  // namespace penstock
