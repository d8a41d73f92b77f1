// What a set and its gradients have on devices. The rest of core/bucket hands it on and does not
// look into it.
#pragma once

#include "core/comm/communication.hpp"
#include "core/device/resident.hpp"
#include "core/device/staging.hpp"

#include <atomic>
#include <string>

namespace penstock {

// `side` is `mirror` if the gradient goes through host memory (`why_staged` says why), or
// `resident` if it is worked on on its device. All are null for a gradient on the CPU.
struct GradientOnDevice {
  DeviceSide* side = nullptr;
  Mirror* mirror = nullptr;
  Resident* resident = nullptr;
  std::string why_staged;
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

struct SetOnDevice {
  Residents* residents = nullptr;  // those that are worked on there; null: none
  BetweenDevices* between = nullptr;
  DirectTraffic traffic;
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

}  // namespace penstock
