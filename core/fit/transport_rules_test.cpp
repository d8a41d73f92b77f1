#include "core/fit/rules.hpp"

#include <gtest/gtest.h>

namespace penstock::transport_rules_test {
namespace {

constexpr uint64_t kCpu = uint64_t{1} << PENSTOCK_DEVICE_CPU;
constexpr uint64_t kCuda = uint64_t{1} << PENSTOCK_DEVICE_CUDA;

CollectiveFacts nccl() {
  return {
      "nccl",
      PENSTOCK_COLLECTIVE_TRANSPORT | PENSTOCK_COLLECTIVE_ORDERED | PENSTOCK_COLLECTIVE_SAME_BITS,
      ~uint64_t{0}, kCuda};
}
CollectiveFacts mpi() {
  return {"mpi", PENSTOCK_COLLECTIVE_TRANSPORT | PENSTOCK_COLLECTIVE_RANK_ORDER, ~uint64_t{0},
          kCpu};
}
FitInput over_both() {
  FitInput input;
  input.collective = mpi();
  input.between_devices = nccl();
  input.world = 2;
  return input;
}

bool says(const Status& status, std::string_view part) {
  return status.message().find(part) != std::string_view::npos;
}

TEST(TransportRules, OneForDevicesAloneIsNoCollectiveOfAScheme) {
  EXPECT_TRUE(check_reads_host_memory(mpi()).ok());
  const Status refused = check_reads_host_memory(nccl());
  EXPECT_EQ(refused.code(), Code::failed_precondition);
  EXPECT_TRUE(says(refused, "collective \"nccl\" carries memory of devices only"));
  EXPECT_TRUE(says(refused, "name it in [transport] as device = \"nccl\""));
}

TEST(TransportRules, OneForHostMemoryDoesNotGoBetweenDevices) {
  EXPECT_TRUE(check_device_transport(nccl()).ok());
  EXPECT_TRUE(says(check_device_transport(mpi()), "transport.device = \"mpi\" does not carry"));
  CollectiveFacts tagged = nccl();
  tagged.flags &= ~uint32_t{PENSTOCK_COLLECTIVE_ORDERED};
  EXPECT_TRUE(says(check_device_transport(tagged), "matches messages by tags"));
}

TEST(TransportRules, TheCollectiveBesideItMustLetRanksTellEachOther) {
  FitAdvice advice;
  FitInput input = over_both();
  EXPECT_TRUE(check_between_devices(input, advice).ok());
  input.collective.patterns &= ~PENSTOCK_PATTERN_BIT(PENSTOCK_BROADCAST);
  EXPECT_TRUE(says(check_between_devices(input, advice), "\"mpi\" has no broadcast"));
  input.world = 1;
  EXPECT_TRUE(check_between_devices(input, advice).ok());
  EXPECT_TRUE(advice.warnings.empty());
}

TEST(TransportRules, SumsInAnotherOrderThanThatOfRanksAreNotDeterministic) {
  FitAdvice advice;
  FitInput input = over_both();
  input.deterministic = true;
  EXPECT_TRUE(says(check_between_devices(input, advice), "transport.device = \"nccl\" does not"));
}

TEST(TransportRules, SumsThatFeedReplicatedStateNeedTheSameBits) {
  FitAdvice advice;
  FitInput input = over_both();
  input.groups.emplace_back().compressor.name = "powersgd";
  input.groups[0].compressor.same_bits = input.groups[0].compressor.sums = true;
  EXPECT_TRUE(check_between_devices(input, advice).ok());
  input.between_devices->flags &= ~uint32_t{PENSTOCK_COLLECTIVE_SAME_BITS};
  EXPECT_TRUE(says(check_between_devices(input, advice), "compressor \"powersgd\""));
}

TEST(TransportRules, OneThatCarriesNothingIsWarnedOf) {
  FitInput input = over_both();
  input.groups.emplace_back().compressor.gathers = true;  // codes
  const auto warning = [&] {
    FitAdvice advice;
    EXPECT_TRUE(check_between_devices(input, advice).ok());
    return advice.warnings.empty() ? std::string() : advice.warnings[0];
  };
  EXPECT_NE(warning().find("\"nccl\" carries nothing of this: its payloads are codes"),
            std::string::npos);
  input.groups[0].compressor.gathers_pairs = true;
  EXPECT_EQ(warning(), "");
  input.route = PENSTOCK_ROUTE_SHARD;
  EXPECT_NE(warning().find("route \"shard\" has legs in host memory"), std::string::npos);
}

TEST(TransportRules, OneBesideASchedulerThatMeasuresIsMeasuredToo) {
  FitAdvice advice;
  FitInput input = over_both();
  input.scheduler = {"mgwfbp", 0, PENSTOCK_SCHEDULER_MEASURES};
  ASSERT_TRUE(check_between_devices(input, advice).ok());
  EXPECT_TRUE(advice.warnings.empty());
}

}  // namespace
}  // namespace penstock::transport_rules_test
