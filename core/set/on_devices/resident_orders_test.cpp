// Streams of a device run in any order that events allow. With a thousand random orders, results
// and kept values are equal. `tools/nightly` runs every order.

#include "core/set/on_devices/resident_testing.hpp"

#include <support/long.hpp>

namespace penstock::resident_orders_test {
namespace {

using namespace testing;  // every name in resident_testing.hpp

constexpr uint32_t kSize = 2;

struct Path {
  const char* name;
  ResidentMethod method;
  std::string tables;
};

// gtest prints a path by its name.
void PrintTo(const Path& way, std::ostream* out) {
  *out << way.name;
}

const Path kWays[] = {
    {"through_mirrors", {"", "memory = \"residual\"\nscheduler = \"wfbp\"", 0, "topk", ""}, ""},
    {"payloads_through_host_memory", {"", kOneByOne}, ""},
    {"from_device_to_device", {"", kOneByOne}, kOverNccl},
    {"sums_from_device_to_device",
     {"", "memory = \"none\"\nscheduler = \"fusion\"", 0, "none-simulated", ""},
     kOverNccl},
    {"sums_of_a_host",
     {"", "memory = \"residual-simulated\"\nscheduler = \"wfbp\"\nroute = \"hierarchical\""},
     kOverNccl},
    {"sums_at_owners",
     {"", "memory = \"residual-simulated\"\nscheduler = \"wfbp\"\nroute = \"shard\""},
     ""},
};

class Orders : public ::testing::TestWithParam<Path> {};
INSTANTIATE_TEST_SUITE_P(Ways, Orders, ::testing::ValuesIn(kWays),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Orders, OfStreamsDoNotShow) {
  const Path& way = GetParam();
  const bool is_staged = way.method.compressor == std::string("topk");
  Script script = resident_script(way.method, kSize);
  script.shapes = {{"first", {24, 16}}, {"bias", {24}}, {"last", {330}}};
  script.steps = 6;
  const auto expected = results_of(script, on_the_cpu);
  script.scheme = resident_scheme(way.method, way.tables);
  for (uint64_t seed = 1; seed <= (test::is_long() ? 1000 : 5) && !HasFailure(); ++seed) {
    const SimulatedDevices devices(seed, double(seed % 4) / 5, kSize);
    ::testing::internal::CaptureStderr();
    const auto got =
        is_staged ? results_of(script, one_each) : outcome_of(script, one_each).results;
    (void)::testing::internal::GetCapturedStderr();
    ASSERT_EQ(difference(got, expected), "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace penstock::resident_orders_test
