// The place of a tensor in memory: the CPU or a device.
#pragma once

#include <penstock/base.h>

#include <fmt/format.h>

#include <string>

namespace penstock {

struct Place {
  int32_t device_type = PENSTOCK_DEVICE_CPU;
  int32_t device_id = 0;

  bool is_cpu() const { return device_type == PENSTOCK_DEVICE_CPU; }
  // All numbers of the CPU name one place.
  bool operator==(const Place& other) const {
    return device_type == other.device_type && (is_cpu() || device_id == other.device_id);
  }
  // Used in messages: "the CPU", "cuda:1", "device type 7".
  std::string name() const {
    if (is_cpu()) return "the CPU";
    return device_type == PENSTOCK_DEVICE_CUDA ? fmt::format("cuda:{}", device_id)
                                               : fmt::format("device type {}", device_type);
  }
};

inline Place place_of(const penstock_tensor& tensor) {
  return {tensor.device_type, tensor.device_id};
}

}  // namespace penstock
