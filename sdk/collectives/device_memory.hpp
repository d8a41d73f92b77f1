// Whether the library under a transport moves memory of CUDA devices. Either the user sets it, or
// the library is asked, which is possible only after the ranks have joined.
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

  // Stores the answer of the library. [comm]
  void learn(bool library_takes) { is_refused_ = !library_takes; }
  // Whether the library moves device memory; before it was asked, whether it may. [any]
  bool is_taken() const;
  // Whether device memory is to be used if the library moves it: unless the user set "no". [any]
  bool is_wanted() const { return says_ != Says::no; }

  // Adds the resulting traits of a transport over a wire: the patterns that only copy data, and the
  // flag that the transport knows no streams. Adds nothing for a host without these traits. [any]
  void describe(penstock_collective_traits& traits) const;

 private:
  enum class Says { no, yes, ask };
  const Says says_;
  std::atomic<bool> is_refused_{false};
};

}  // namespace penstock::collectives
