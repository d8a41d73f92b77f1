// For tests of gradients that are worked on on their device: top-k by the plugins' simulated
// kernels, which lie in a folder of their own.
#pragma once

#include "core/set/on_devices/device_testing.hpp"

#include <nlohmann/json.hpp>

namespace penstock::testing {

inline constexpr double kDensity = 0.05;

// Tables behind a scheme: what can goes from device to device.
inline const char* const kOverNccl =
    "[transport]\ndevice = \"nccl-simulated\"\n"
    "[collective.nccl-simulated]\nlibrary = \"libpenstock_device_simulated.so\"\n";

struct ResidentMethod {
  const char* name;
  const char* keys;  // of [scheme], but compressor and collective
  uint32_t flags = 0;
  const char* compressor = "topk-simulated";
  const char* options = "density = 0.05\n";  // and tables behind it
  const char* runtime = "";
};
// Memory and scheduler of methods.
inline constexpr const char* kWithResidual =
    "memory = \"residual-simulated\"\nscheduler = \"fusion\"";
inline constexpr const char* kOneByOne = "memory = \"residual-simulated\"\nscheduler = \"wfbp\"";
inline constexpr const char* kWithDgc = "memory = \"dgc-simulated\"\nscheduler = \"fusion\"";
inline constexpr const char* kNothingKept = "memory = \"none\"\nscheduler = \"fusion\"";
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

inline std::string resident_scheme(const ResidentMethod& method, const std::string& tables = "") {
  return fmt::format(
      "[scheme]\ncollective = \"loopback\"\ncompressor = \"{0}\"\n{1}\n"
      "[runtime]\ndeadline_s = 20\n{2}{3}[compressor.{0}]\n{4}{5}",
      method.compressor, method.keys, method.runtime, test_plugins({"on_device", "witness"}),
      method.options, tables);
}
inline std::string resident_scheme(const std::string& keys, const std::string& tables = "") {
  return resident_scheme(ResidentMethod{"", keys.c_str()}, tables);
}

inline Script resident_script(const ResidentMethod& method, uint32_t size,
                              const std::string& tables = "") {
  Script script;
  script.shapes = {{"first", {24, 16}}, {"bias", {24}}, {"second", {90, 40}},
                   {"empty", {0}},      {"last", {33}}, {"scalar", {}}};
  script.scheme = resident_scheme(method, tables);
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

// What a script leaves behind on each rank: results after every step, and at the end what is kept.
// Nothing is staged.
struct ResidentOutcome {
  std::vector<std::vector<Bytes>> results;
  std::vector<std::string> saved;
};

inline ResidentOutcome outcome_of(const Script& script, const Places& places) {
  ResidentOutcome outcome;
  outcome.results.resize(script.size);
  outcome.saved.resize(script.size);
  with_device_ranks(script.size, script.scheme, [&](Runtime& runtime, uint32_t rank) {
    const auto shapes = placed(script, places, rank);
    std::vector<Storage> storage = storage_of(shapes);
    auto set = make_set(runtime, shapes, script.flags);
    ASSERT_OK(set.status());
    for (uint64_t step = 0; step < script.steps; ++step) {
      ASSERT_OK(take_step(script, **set, storage, rank, step));
      Bytes& read = outcome.results[rank].emplace_back();
      for (const Storage& one : storage) read.push_back(one.read());
    }
    ASSERT_OK(set.value()->save(outcome.saved[rank]));
    each_item(report_of(**set), [&](const nlohmann::json& item) {
      EXPECT_EQ(item["worked_on"], item["lies_on"]) << item["why_staged"];
    });
  });
  return outcome;
}

// The largest distance of two results, over the largest magnitude.
inline double apart(const std::string& got, const std::string& expected) {
  std::vector<float> a(got.size() / sizeof(float)), b(expected.size() / sizeof(float));
  std::memcpy(a.data(), got.data(), got.size());
  std::memcpy(b.data(), expected.data(), expected.size());
  EXPECT_EQ(a.size(), b.size());
  double most = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::fabs(double{a[i]} - double{b[i]}));
    largest = std::max(largest, std::fabs(double{b[i]}));
  }
  return most == 0 ? 0 : most / largest;
}

// Ranks have equal results where they have on the CPU: who leaves a gradient out finds its own.
inline void expect_alike(const ResidentOutcome& got, const ResidentOutcome& expected) {
  const auto alike = [](const ResidentOutcome& of, size_t rank, size_t step, size_t i) {
    return of.results[rank][step][i] == of.results[0][step][i];
  };
  for (size_t rank = 1; rank < expected.results.size(); ++rank)
    for (size_t step = 0; step < expected.results[rank].size(); ++step)
      for (size_t i = 0; i < expected.results[rank][step].size(); ++i)
        EXPECT_EQ(alike(got, rank, step, i), alike(expected, rank, step, i))
            << "rank " << rank << ", step " << step << ", gradient " << i;
}

// How far results may be apart, over the largest of them.
struct Bound {
  double in_the_first_step, later;
};

inline void expect_near(const ResidentOutcome& got, const ResidentOutcome& expected,
                        const Bound& bound) {
  for (size_t rank = 0; rank < expected.results.size(); ++rank)
    for (size_t step = 0; step < expected.results[rank].size(); ++step)
      for (size_t i = 0; i < expected.results[rank][step].size(); ++i)
        EXPECT_LE(apart(got.results[rank][step][i], expected.results[rank][step][i]),
                  step == 0 ? bound.in_the_first_step : bound.later)
            << "rank " << rank << ", step " << step << ", gradient " << i;
}

}  // namespace penstock::testing
