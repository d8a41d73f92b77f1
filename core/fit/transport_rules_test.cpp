#include "core/fit/transport_rules.hpp"
#include "core/fit/offers_testing.hpp"

#include <gtest/gtest.h>

namespace penstock::transport_rules_test {
namespace {

constexpr uint64_t kCpu = uint64_t{1} << PENSTOCK_DEVICE_CPU;
constexpr uint64_t kCuda = uint64_t{1} << PENSTOCK_DEVICE_CUDA;

CollectiveFacts nccl() {
  return {
      "nccl",
      PENSTOCK_COLLECTIVE_TRANSPORT | PENSTOCK_COLLECTIVE_ORDERED | PENSTOCK_COLLECTIVE_SAME_BITS,
      ~uint64_t{0}, kCuda, ~uint64_t{0}};
}
CollectiveFacts mpi() {
  return {"mpi", PENSTOCK_COLLECTIVE_TRANSPORT | PENSTOCK_COLLECTIVE_RANK_ORDER, ~uint64_t{0}, kCpu,
          ~uint64_t{0}};
}
// A transport that copies data on devices, but does not add there.
CollectiveFacts ucx() {
  return {"ucx", PENSTOCK_COLLECTIVE_TRANSPORT | PENSTOCK_COLLECTIVE_TAKES_FINISHED, ~uint64_t{0},
          kCpu | kCuda, PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_GATHER)};
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
  for (const bool has_joined : {false, true}) {
    EXPECT_TRUE(check_device_transport(nccl(), has_joined).ok());
    EXPECT_TRUE(check_device_transport(ucx(), has_joined).ok());
  }
  EXPECT_TRUE(
      says(check_device_transport(mpi(), false),
           "transport.device = \"mpi\" does not carry memory of CUDA devices; use a collective "
           "that does, or remove that key: then messages go through pinned host memory"));
  test::PlainOffers offers;
  offers.all_collectives = {mpi(), nccl()};
  EXPECT_TRUE(says(check_device_transport(mpi(), false, &offers), "devices; use \"nccl\", or"));
  EXPECT_TRUE(says(check_device_transport(mpi(), true),
                   "devices: its library was asked, and does not say that it takes any (if the "
                   "library cannot be asked, set the option device_memory = \"yes\" of this "
                   "collective); use"));
}

TEST(TransportRules, WhatIsAskedOfSumsIsNotAskedOfOneThatCarriesNone) {
  FitAdvice advice;
  FitInput input = over_both();
  input.between_devices = ucx();
  input.deterministic = true;
  input.groups.emplace_back().compressor.name = "powersgd";
  input.groups[0].compressor.same_bits = input.groups[0].compressor.sums = true;
  EXPECT_TRUE(check_between_devices(input, advice).ok());
  ASSERT_EQ(advice.warnings.size(), 1u);
  EXPECT_NE(advice.warnings[0].find("\"ucx\" carries no message of this scheme: it carries no "
                                    "sums, and the other payloads are codes"),
            std::string::npos);
  input.groups[0].compressor.gathers_pairs = true;
  advice = {};
  EXPECT_TRUE(check_between_devices(input, advice).ok());
  EXPECT_TRUE(advice.warnings.empty());
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
  EXPECT_NE(warning().find("\"nccl\" carries no message of this scheme: its payloads are codes"),
            std::string::npos);
  input.groups[0].compressor.gathers_pairs = true;
  EXPECT_EQ(warning(), "");
  input.route = PENSTOCK_ROUTE_SHARD;
  EXPECT_NE(warning().find("the messages to the owners go through host memory"), std::string::npos);
  input.route = PENSTOCK_ROUTE_SPLIT;
  EXPECT_NE(warning().find("route \"split\" has legs in host memory"), std::string::npos);
  input.groups[0].compressor.gathers_sparse = false;
  input.route = PENSTOCK_ROUTE_HIERARCHICAL;  // uncompressed gradients are summed within each host
  EXPECT_EQ(warning(), "");
}

// The headers of sums within a host use the transport of that level.
TEST(TransportRules, SumsInHostsAreToldOverTheTransportOfHosts) {
  FitInput input = over_both();
  input.route = PENSTOCK_ROUTE_HIERARCHICAL;
  CollectiveFacts silent = input.collective;
  silent.name = "silent";
  silent.patterns = PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_GATHER);
  input.of_level[PENSTOCK_LEVEL_LOCAL] = silent;
  input.world = 2;
  FitAdvice advice;
  EXPECT_TRUE(says(check_between_devices(input, advice),
                   "\"silent\" has no broadcast; use transport.local"));
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
