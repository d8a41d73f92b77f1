// The gradients of a set that lie on devices: decides which gradients are device-resident and
// which are staged through host memory, and waits for the end of their work.
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
  // The arguments must outlive the object.
  Residence(SetContext& set, const Services& services, const Declaration& declaration)
      : set_(set), services_(services), declaration_(declaration) {}

  // Finds the device of each gradient that lies on one.
  Status find_devices();
  // Decides, for the life of the set, whether each gradient is compressed on its device or on the
  // CPU; its states lie there. `stages`: all stages of the configuration.
  Status settle(std::span<const SchemeStage> stages);

  // Waits until all work of the set on its device has ended. Until then the device may read and
  // write the storage of gradients.
  Status drain();
  Status drain_residents();  // only the work that uses compiled plans and their states
  // Runs a call that uses states: on the engine's thread if gradients are device-resident, so that
  // nothing else uses their states meanwhile.
  Status run_on_states(const std::function<Status()>& call);

  // Drains. If that fails, buffers that the device may still use are leaked on purpose. True if
  // the compiled plan may be in use too: the caller must then leak it.
  bool abandons_compiled_plan_at_end();

  uint64_t staged_bytes() const { return staging_ == nullptr ? 0 : staging_->bytes(); }
  // Rank 0 logs which of its own gradients are staged, and why.
  void say_staged() const;

 private:
  ResidenceSite site() const;
  Status make_staging_buffers(const std::vector<Gradient*>& staged);
  Status make_residents(const std::vector<Gradient*>& resident);
  Status settle_device_of_messages(const Device& device);

  SetContext& set_;
  const Services& services_;
  const Declaration& declaration_;
  std::map<uint64_t, Device> devices_;    // by index of the gradient
  std::unique_ptr<Staging> staging_;      // null: no gradient is staged
  std::unique_ptr<Residents> residents_;  // null: no gradient is device-resident
};

}  // namespace penstock
