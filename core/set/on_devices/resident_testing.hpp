// For tests of device-resident gradients: top-k with the plugins' simulated kernels, from a
// separate folder.
#pragma once

#include "core/set/on_devices/device_testing.hpp"

#include <nlohmann/json.hpp>

#include <optional>

namespace penstock::testing {

inline constexpr double kDensity = 0.05;

// Tables for the end of a scheme: eligible payloads go from device to device.
inline const char* const kOverNccl =
    "[transport]\ndevice = \"nccl-simulated\"\n"
    "[collective.nccl-simulated]\nlibrary = \"libpenstock_device_simulated.so\"\n";

// Other compressors refuse float64.
inline const char* const kDoublesAsTheyAre =
    "[[rule]]\nmatch = { dtype = \"float64\" }\ncompressor = \"none\"\n";

struct ResidentMethod {
  const char* name;
  const char* keys;  // of [scheme], without compressor and collective
  uint32_t flags = 0;
  const char* compressor = "topk-simulated";
  // The tables after the options may follow. Values are float32, because devices send only such
  // pairs to each other.
  const char* options = "density = 0.05\nvalue_type = \"fp32\"\n";
  const char* runtime = "";
};
// Memory and scheduler of a method.
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

// gtest prints a method by its name.
inline void PrintTo(const ResidentMethod& method, std::ostream* out) {
  *out << method.name;
}

inline std::string resident_scheme(const ResidentMethod& method, const std::string& tables = "") {
  return fmt::format(
      "[scheme]\ncollective = \"loopback\"\ncompressor = \"{0}\"\n{1}\n"
      "[runtime]\ndeadline_s = 20\n{2}{3}[compressor.{0}]\n{4}{5}",
      method.compressor, method.keys, method.runtime,
      test_plugins({"on_device", "witness", "random_plan"}), method.options, tables);
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
  script.steps = scripted_steps();
  script.flags = method.flags;
  return script;
}

// The gradients have three types by turns, so that buckets contain several types.
inline Script of_three_types(Script script) {
  constexpr uint32_t kTypes[] = {PENSTOCK_FLOAT16, PENSTOCK_BFLOAT16, PENSTOCK_FLOAT32};
  for (size_t i = 0; i < script.shapes.size(); ++i) script.shapes[i].dtype = kTypes[i % 3];
  return script;
}

// The ranks use two devices by turns.
inline Place by_rank(uint32_t rank, size_t) {
  return on_cuda(int32_t(rank % 2));
}

// With NCCL each rank needs its own device.
inline constexpr int kDevices = 4;
inline Place one_each(uint32_t rank, size_t) {
  return on_cuda(int32_t(rank));
}
class DevicesForAll : public SimulatedDevices {
 public:
  explicit DevicesForAll(uint64_t seed = 1, double early = 0, bool sums_by_rank = true)
      : SimulatedDevices(seed, early, kDevices, sums_by_rank) {}
};

inline nlohmann::json report_of(Set& set) {
  const auto text = set.report();
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? nlohmann::json::parse(text.value()) : nlohmann::json();
}

// Calls body(item) for each item of the report.
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

// The outcome of a script on each rank: the results of every step and the saved state at the end.
// Nothing may be staged.
struct ResidentOutcome {
  std::vector<std::vector<Bytes>> results;
  std::vector<std::string> saved;
};

// The outcome of one rank.
inline void leave_outcome(Runtime& runtime, const Script& script, const Places& places,
                          uint32_t rank, std::vector<Bytes>& results, std::string& saved) {
  const auto shapes = placed(script, places, rank);
  std::vector<Storage> storage = storage_of(shapes);
  auto set = make_set(runtime, shapes, script.flags);
  ASSERT_OK(set.status());
  for (uint64_t step = 0; step < script.steps; ++step) {
    ASSERT_OK(take_step(script, **set, storage, rank, step));
    Bytes& read = results.emplace_back();
    for (const Storage& one : storage) read.push_back(one.read());
  }
  ASSERT_OK(set.value()->save(saved));
  each_item(report_of(**set), [&](const nlohmann::json& item) {
    EXPECT_EQ(item["worked_on"], item["lies_on"]) << item["why_staged"];
  });
}

inline ResidentOutcome outcome_of(const Script& script, const Places& places) {
  ResidentOutcome outcome;
  outcome.results.resize(script.size);
  outcome.saved.resize(script.size);
  with_device_ranks(script.size, script.scheme, [&](Runtime& runtime, uint32_t rank) {
    leave_outcome(runtime, script, places, rank, outcome.results[rank], outcome.saved[rank]);
  });
  return outcome;
}

// Seeds for the order in which the streams of the simulated device run.
struct Seeds {
  uint64_t first = 1, last = 1;
};

// For each seed, `script` on devices and `of_the_cpu` on the CPU have equal outcomes.
inline void expect_bits_of_the_cpu(const Script& script, const Places& places,
                                   const Script& of_the_cpu, Seeds seeds) {
  const ResidentOutcome expected = outcome_of(of_the_cpu, on_the_cpu);
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    const DevicesForAll devices(seed, seed % 2 == 0 ? 0.2 : 0);
    const ResidentOutcome got = outcome_of(script, places);
    ASSERT_EQ(difference(got.results, expected.results), "") << "seed " << seed;
    ASSERT_TRUE(got.saved == expected.saved) << "seed " << seed;
  }
}

// The data that a step of one gradient of ones moves: over the bus for all ranks, and from device
// to device for rank 0. `not_finite`: a rank whose gradient is not finite.
struct Moved {
  simulated::Copied copied;
  uint64_t direct_messages = 0, direct_bytes = 0;
};

inline Moved moved_in_a_step(const std::string& scheme, uint32_t size, uint64_t numel,
                             std::optional<uint32_t> not_finite = {}) {
  const DevicesForAll devices;
  Moved moved;
  std::atomic<uint32_t> at{0};
  with_device_ranks(size, scheme, [&](Runtime& runtime, uint32_t rank) {
    const auto shapes = lying_on({{"x", {int64_t(numel)}}}, one_each(rank, 0));
    std::vector<Storage> storage = storage_of(shapes);
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    std::vector<float> values(numel, 1);
    if (not_finite == rank) values[3] = std::numeric_limits<float>::quiet_NaN();
    storage[0].write(values);
    storage[0].settle();
    const auto meet = [&](uint32_t round) {
      at.fetch_add(1);
      while (at.load() < (round + 1) * size) std::this_thread::yield();
    };
    meet(0);
    const simulated::Copied before = simulated::copied();
    meet(1);
    ASSERT_OK(set.value()->gradient_ready(0, storage[0].tensor(), storage[0].stream()));
    ASSERT_OK(set.value()->wait_all());
    storage[0].settle();
    meet(2);
    if (rank == 0) {
      const simulated::Copied after = simulated::copied();
      moved.copied.to_host = after.to_host - before.to_host;
      moved.copied.to_device = after.to_device - before.to_device;
      moved.direct_messages = runtime.between_devices().channel->messages_sent;
      moved.direct_bytes = runtime.between_devices().channel->bytes_sent;
    }
    meet(3);
    ASSERT_OK(set.value()->step_end(true));
  });
  return moved;
}

// Steps of two sets. Each rank makes the gradients ready in another order. So two streams of
// messages meet on one device, and every rank must send them in one order. After each step both
// storages must hold the results that each set would have alone.
inline void step_two_sets(Runtime& runtime, const Place& place, uint32_t rank,
                          std::vector<Bytes>& results) {
  const auto shapes = lying_on({{"x", {300}}, {"y", {200}}}, place);
  std::vector<Storage> storages[2] = {storage_of(shapes), storage_of(shapes)};
  std::vector<SetHandle> sets;
  for (const char* name : {"one", "other"}) {
    auto made = make_set(runtime, shapes, 0, name);
    ASSERT_OK(made.status());
    sets.push_back(std::move(made.value()));
  }
  for (uint64_t step = 0; step < 4; ++step) {
    for (uint64_t turn = 0; turn < 4; ++turn) {
      const uint64_t which = (turn + rank + step) % 2, i = turn / 2;
      Storage& storage = storages[which][i];
      storage.write(std::vector<float>(storage.bytes() / sizeof(float), float(rank + 1 + which)));
      ASSERT_OK(sets[which]->gradient_ready(i, storage.tensor(), storage.stream()));
    }
    for (uint64_t which : {(rank + step) % 2, (rank + step + 1) % 2}) {
      ASSERT_OK(sets[which]->wait_all());
      ASSERT_OK(sets[which]->step_end(true));
    }
    Bytes& read = results.emplace_back();
    for (auto& storage : storages)
      for (Storage& one : storage) read.push_back(one.read());
  }
}

// The largest difference between two results, divided by the largest magnitude.
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

// Two ranks have equal results exactly if they do on the CPU. A rank that leaves a gradient out
// finds its own values.
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

// How far results may differ, divided by the largest result.
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
