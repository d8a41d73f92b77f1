// The device data of a set and its gradients. The rest of core/bucket passes it on and does not
// inspect it.
#pragma once

#include "core/comm/communication.hpp"
#include "core/device/resident.hpp"
#include "core/device/staging.hpp"

#include <atomic>
#include <string>

namespace penstock {

// `side` is `staging_buffer` if the gradient goes through host memory (`why_staged` has the
// reason), or `resident` if it is device-resident. All three pointers are null for a gradient on
// the CPU.
struct GradientOnDevice {
  DeviceSide* side = nullptr;
  StagingBuffer* staging_buffer = nullptr;
  Resident* resident = nullptr;
  std::string why_staged;
};

// The bytes and messages that a set has sent on a channel that it shares with other sets. [any]
struct DirectTraffic {
  std::atomic<uint64_t> handed_over{0}, moved{0}, messages{0};
  void add(uint64_t bytes, uint64_t sent) {
    handed_over += bytes;
    moved += sent;
    ++messages;
  }
};

struct SetOnDevice {
  Residents* residents = nullptr;  // the device-resident gradients; null: none
  BetweenDevices* between = nullptr;
  DirectTraffic traffic;
};

// The exec of plugin calls whose work is queued on the stream of these residents.
inline penstock_exec exec_on(const Residents& residents) {
  penstock_exec exec{};
  exec.struct_size = sizeof exec;
  exec.device_type = PENSTOCK_DEVICE_CUDA;
  exec.device_id = residents.device().id();
  exec.stream = residents.stream().handle();
  return exec;
}

}  // namespace penstock
