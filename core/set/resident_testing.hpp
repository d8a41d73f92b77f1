// For tests of gradients that are worked on on their device: top-k by the plugins' simulated
// kernels, which lie in a folder of their own.
#pragma once

#include "core/set/device_testing.hpp"

#include <nlohmann/json.hpp>

namespace penstock::testing {

inline constexpr double kDensity = 0.05;

struct ResidentMethod {
  const char* name;
  const char* keys;
  uint32_t flags = 0;
};
inline const ResidentMethod kResidentMethods[] = {
    {"residual", "memory = \"residual-simulated\"\nscheduler = \"wfbp\""},
    {"residual_fused", "memory = \"residual-simulated\"\nscheduler = \"fusion\""},
    {"residual_for_sums", "memory = \"residual-simulated\"\nscheduler = \"fusion\"",
     PENSTOCK_SET_SUM},
    {"nothing_kept", "memory = \"none\"\nscheduler = \"fusion\""},
    {"pieces", "memory = \"residual-simulated\"\nscheduler = \"hipress\""},
};

// Printed by gtest.
inline void PrintTo(const ResidentMethod& method, std::ostream* out) {
  *out << method.name;
}

inline std::string resident_scheme(const std::string& keys, const std::string& tables = "") {
  return fmt::format(
      "[scheme]\ncollective = \"loopback\"\ncompressor = \"topk-simulated\"\n{}\n"
      "[runtime]\ndeadline_s = 20\n{}[compressor.topk-simulated]\ndensity = {}\n{}",
      keys, test_plugins({"on_device"}), kDensity, tables);
}

inline Script resident_script(const ResidentMethod& method, uint32_t size,
                              const std::string& tables = "") {
  Script script;
  script.shapes = {{"first", {24, 16}}, {"bias", {24}}, {"second", {90, 40}},
                   {"empty", {0}},      {"last", {33}}, {"scalar", {}}};
  script.scheme = resident_scheme(method.keys, tables);
  script.size = size;
  script.steps = 12;
  script.flags = method.flags;
  return script;
}

// Each rank's on a device of its own, where there is one.
inline Place by_rank(uint32_t rank, size_t) {
  return on_cuda(int32_t(rank % 2));
}

inline nlohmann::json report_of(Set& set) {
  const auto text = set.report();
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? nlohmann::json::parse(text.value()) : nlohmann::json();
}

// Calls body(item of the report) for each.
inline void each_item(const nlohmann::json& report,
                      const std::function<void(const nlohmann::json&)>& body) {
  for (const auto& bucket : report["buckets"])
    for (const auto& item : bucket["items"]) body(item);
}

inline std::vector<Storage> storage_of(const std::vector<GradientShape>& shapes) {
  std::vector<Storage> storage;
  for (const GradientShape& shape : shapes) storage.emplace_back(shape);
  return storage;
}

}  // namespace penstock::testing
