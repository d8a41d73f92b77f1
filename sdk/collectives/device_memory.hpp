// Whether the library under a transport moves memory of CUDA devices: a user says so, or the
// library, which can be asked only when the ranks have joined.
#pragma once

#include <penstock/collective.h>
#include <penstock/options.hpp>

#include <atomic>

namespace penstock::collectives {

class DeviceMemory {
 public:
  static sdk::Option option();
  explicit DeviceMemory(const sdk::Options& values);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // What the library has answered. [comm]
  void learn(bool library_takes) { is_refused_ = !library_takes; }
  // Until the library was asked: whether it may. [any]
  bool is_taken() const;
  // Whether there is anything to ask the library for. [any]
  bool is_wanted() const { return says_ != Says::no; }

  // Adds to the traits of a transport over a wire what follows: patterns that copy, and no streams.
  // Nothing for a host that does not know of them. [any]
  void describe(penstock_collective_traits& traits) const;

 private:
  enum class Says { no, yes, ask };
  const Says says_;
  std::atomic<bool> is_refused_{false};
};

}  // namespace penstock::collectives
