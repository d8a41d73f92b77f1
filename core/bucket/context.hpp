// The facts that all buckets of a set share.
#pragma once

#include "core/bucket/host_place.hpp"
#include "core/bucket/on_device/sides.hpp"
#include "core/comm/communication.hpp"
#include "core/trace/timeline.hpp"

#include <kernels/code_path.hpp>

#include <array>
#include <atomic>
#include <string>

namespace penstock {

class BucketRun;
class Engine;
struct Gradient;

// [engine] Receives a call when a job ends, when its backward part ends, and when messages of its
// forward part arrive.
struct BucketListener {
  virtual void bucket_ended(BucketRun& bucket, const Status& status) = 0;
  virtual void backward_part_ended(BucketRun& bucket) = 0;
  virtual void forward_part_arrived(BucketRun& bucket) = 0;  // once a round

 protected:
  ~BucketListener() = default;
};

// A channel as the buckets of a set use it. The messages of a step have numbers in sequence.
// Announced messages (announcement.hpp) are ordered by tickets instead; their kinds, counts and
// flags travel in the header alone and have been checked there.
struct Link {
  Channel* channel = nullptr;
  uint64_t sequence_base = 0;  // ORDERED channels: number of the step's first message
  bool is_announced = false;
};

// The ranks of one level of a set, and the links between these ranks. The links of a level are not
// open until a plan uses the level.
struct LevelLinks {
  Group group;
  Link transport;
  Link composite;  // of the composite collective, if the scheme has one
  // From device to device, if the run has a transport for that at this level.
  Link direct{.is_announced = true};
};

struct SetContext {
  static constexpr uint64_t kTagBetweenSteps = (uint64_t{1} << 20) - 1;  // above tags of steps

  BucketListener* listener = nullptr;
  Communication* communication = nullptr;
  Engine* engine = nullptr;
  Timeline* timeline = nullptr;
  std::array<LevelLinks, 3> levels;    // see at()
  uint64_t limit_us = 0;               // of each message
  CallSlot* calls = nullptr;           // where the engine's plugin calls are noted
  CallSlot* planning_calls = nullptr;  // where plugin calls outside a step are noted
  uint32_t rank = 0;
  uint32_t world = 1;
  uint32_t n_hosts = 1;
  uint32_t owners_per_host = 1;  // the least number of ranks on a host
  bool result_is_sum = false;    // the frontend wants sums, not means
  bool has_devices = false;      // some gradients lie on devices
  SetOnDevice on_device;
  HostPlace host;                        // the host as a place of work
  std::unique_ptr<WorkPlace> elsewhere;  // the device; null: no gradient is device-resident
  bool echoes = false;  // a trial without other ranks: sent data arrives as if from every rank
  bool results_are_notified = false;  // jobs wait for results on the device; set between steps only
  bool forgets = false;               // states are kept twice, so that a step can be forgotten
  bool nonfinite_is_strict =
      false;  // ranks agree whether gradients are finite before memories take any
  // For coding indices. Ranks may differ, because every path writes and reads equal bytes.
  kernels::CodePath coding_path = kernels::widest_code_path();
  std::string name;                            // of the set
  std::string composite_id;                    // plugin id of the composite collective
  std::string composite_name, transport_name;  // names in the scheme, for error messages
  uint64_t tags_per_step = 1;  // the largest number of messages on one link in a phase
  penstock_step step{};        // of the current step; written between steps only
  uint64_t attempt = 0;        // earlier steps, forgotten steps too; messages are numbered by it
  uint32_t past = 0;  // 16 bits: a digest of the steps forgotten so far, equal on all ranks
  bool last_was_applied = true;  // completely
  std::atomic<uint64_t> void_buckets{0};
  uint64_t arena_limit_bytes = 0;      // of payloads; 0: no limit
  bool measures_norm = false;          // of this step's gradients, as far as the host sees them
  std::atomic<double> square_norm{0};  // in true units
  // The first gradient of this rank that was found not to be finite in the current step.
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
  // PENSTOCK_LEVEL_WORLD: all ranks of the set. LOCAL and CROSS: the ranks in the local and the
  // cross group of this rank.
  LevelLinks& at(uint32_t level) { return levels[level - PENSTOCK_LEVEL_WORLD]; }
  // The place where a gradient is compressed.
  WorkPlace& place_of(const Gradient& gradient);
  const LevelLinks& at(uint32_t level) const { return levels[level - PENSTOCK_LEVEL_WORLD]; }
  Channel* channel() const { return at(PENSTOCK_LEVEL_WORLD).transport.channel; }
  // Messages between all ranks of the set can go from device to device.
  bool connects_devices() const { return at(PENSTOCK_LEVEL_WORLD).direct.channel != nullptr; }
};

}  // namespace penstock
