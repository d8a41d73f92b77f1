// The gradients of a set that lie on devices: which are worked on there, which go through host
// memory, and the end of what they have under way.
#pragma once

#include "core/device/resident.hpp"
#include "core/device/staging.hpp"
#include "core/fit/residence.hpp"
#include "core/set/declaration.hpp"

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace penstock {

// All functions are [control].
class Residence {
 public:
  // All outlive it.
  Residence(SetContext& set, const Services& services, const Declaration& declaration)
      : set_(set), services_(services), declaration_(declaration) {}

  // The device of each gradient, wherever it lies.
  Status find_devices();
  // Decides, for the life of the set, where each gradient is worked on; its states lie there.
  // `stages`: of the whole configuration.
  Status settle(std::span<const SchemeStage> stages);

  // Waits until all work of the set on its device has ended. Until then it reads from the storage
  // of gradients and writes to it.
  Status drain();
  Status drain_residents();  // what uses works and their states
  // Calls that use states of residents run where nothing else of them does.
  Status run_on_states(const std::function<Status()>& call);

  // Drains. Where that fails, what the device may still use is never freed; true where works may be
  // among that.
  bool abandons_works_at_end();

  uint64_t staged_bytes() const { return staging_ == nullptr ? 0 : staging_->bytes(); }
  // Rank 0's, of its own gradients, a line of the log.
  void say_staged() const;

 private:
  ResidenceSite site() const;
  Status make_mirrors(const std::vector<Gradient*>& staged);
  Status make_residents(const std::vector<Gradient*>& resident);
  Status settle_device_of_messages(const Device& device);

  SetContext& set_;
  const Services& services_;
  const Declaration& declaration_;
  std::map<uint64_t, Device> devices_;    // of gradients that lie on one
  std::unique_ptr<Staging> staging_;      // null: no gradient goes through host memory
  std::unique_ptr<Residents> residents_;  // null: none is worked on on a device
};

}  // namespace penstock
