// Methods with kernels for the simulated device, loaded from the folder of their plugins, and
// helpers for the tests of these methods.
#pragma once

#include <penstock/fold.h>
#include <penstock/views.hpp>

#include <testing/gtest.hpp>

#include <sstream>

#include "fixture.hpp"

namespace penstock::simulated {

// A test that misuses the device fails.
class WellUsedDevice : public SimulatedDevice {
 protected:
  void TearDown() override {
    for (const Report& report : reports()) ADD_FAILURE() << report.sentence;
    EXPECT_EQ(waits().for_load, 0u) << "first launches of kernels that no plan had loaded";
    SimulatedDevice::TearDown();
  }
};

inline test::LoadedPlugin simulated_plugin(const std::string& kind, const std::string& name) {
  return test::load_plugin(
      sdk::text(PENSTOCK_SIMULATED_PLUGINS, "/", kind, "-", name, "-simulated.so"));
}

// A compressor by its name, with options.
struct Method {
  std::string name;
  test::OptionSettings options = {};
};

// gtest prints a method by this text too.
inline void PrintTo(const Method& method, std::ostream* out) {
  *out << method.name;
  for (const auto& [name, value] : method.options) {
    *out << " " << name << " ";
    std::visit([&](const auto& set) { *out << set; }, value);
  }
}
inline std::string text_of(const Method& method) {
  std::ostringstream out;
  PrintTo(method, &out);
  return out.str();
}

// One instance, for calls in every place.
struct Compressor {
  explicit Compressor(const Method& method)
      : text(text_of(method)),
        plugin(simulated_plugin("compressor", method.name)),
        instance(plugin, method.options) {}

  const penstock_fold_encoder& folding() const {
    return *static_cast<const penstock_fold_encoder*>(
        instance.table().extension(instance.self(), sdk::str(PENSTOCK_FOLD_EXTENSION)));
  }

  std::string text;
  test::LoadedPlugin plugin;
  test::CompressorInstance instance;
};

// The devices in the traits of a compressor.
inline constexpr uint64_t kOnCpu = uint64_t{1} << PENSTOCK_DEVICE_CPU;
inline constexpr uint64_t kOnBoth = kOnCpu | uint64_t{1} << PENSTOCK_DEVICE_CUDA;

inline uint64_t device_types(const Method& method) {
  return Compressor(method).instance.describe().device_types;
}

}  // namespace penstock::simulated
