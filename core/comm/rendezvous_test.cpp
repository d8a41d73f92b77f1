#include "core/comm/rendezvous.hpp"

#include "core/control/socket.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <thread>

namespace penstock::rendezvous_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr uint64_t kLongUs = 20'000'000;

using Variables = std::map<std::string, std::string>;

Result<std::optional<Rendezvous>> read(Variables variables) {
  return rendezvous_of([variables = std::move(variables)](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

Rendezvous place(Variables variables) {
  return read(std::move(variables)).value().value();
}

std::string refusal(Variables variables) {
  return std::string(read(std::move(variables)).status().message());
}

Variables torchrun(uint32_t rank, uint32_t size) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(size)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", "29500"}};
}

Variables with(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

TEST(Rendezvous, TorchrunSaysEverything) {
  const Rendezvous found = place(torchrun(1, 4));
  EXPECT_EQ(found.rank, 1u);
  EXPECT_EQ(found.size, 4u);
  EXPECT_EQ(found.host, "127.0.0.1");
  EXPECT_EQ(found.port, 29501);  // the launcher itself may use MASTER_PORT
  EXPECT_EQ(found.said, "RANK=1, WORLD_SIZE=4, the store at 127.0.0.1:29501");
}

TEST(Rendezvous, OtherLaunchersSayTheirsAndTheMasterIsAdded) {
  const Variables master{{"MASTER_ADDR", "a"}, {"MASTER_PORT", "7000"}};
  for (const auto& [rank, size] : Variables{{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                            {"PMI_RANK", "PMI_SIZE"},
                                            {"HOROVOD_RANK", "HOROVOD_SIZE"}}) {
    const Rendezvous found = place(with(master, {{rank, "2"}, {size, "3"}}));
    EXPECT_EQ(found.rank, 2u) << rank;
    EXPECT_EQ(found.size, 3u) << rank;
    EXPECT_EQ(found.port, 7001) << rank;
  }
}

TEST(Rendezvous, ASlurmStepIsEnough) {
  const Variables step{{"SLURM_PROCID", "5"},
                       {"SLURM_STEP_NUM_TASKS", "8"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_JOB_ID", "1234"},
                       {"SLURM_STEP_NODELIST", "node[03-07,9],other"}};
  const Rendezvous found = place(step);
  EXPECT_EQ(found.rank, 5u);
  EXPECT_EQ(found.size, 8u);
  EXPECT_EQ(found.host, "node03");
  EXPECT_GE(found.port, 20000);
  EXPECT_LT(found.port, 30000);
  EXPECT_NE(place(with(step, {{"SLURM_STEP_ID", "1"}})).token, found.token);
  EXPECT_EQ(place(with(step, {{"SLURM_STEP_NODELIST", "alone"}})).host, "alone");
  EXPECT_EQ(place(with(step, {{"SLURM_STEP_NODELIST", "a,b"}})).host, "a");
  EXPECT_EQ(place(with(step, {{"MASTER_ADDR", "b"}, {"PENSTOCK_PORT", "99"}})).host, "b");
  EXPECT_EQ(place(with(step, {{"MASTER_ADDR", "b"}, {"PENSTOCK_PORT", "99"}})).port, 99);
}

TEST(Rendezvous, ATokenIsTakenAsItIsAndElseMadeForThisRun) {
  EXPECT_EQ(place(with(torchrun(1, 4), {{"PENSTOCK_TOKEN", "secret"}})).token, "secret");
  const std::string made = place(torchrun(1, 4)).token;
  EXPECT_EQ(place(torchrun(2, 4)).token, made);
  EXPECT_NE(place(with(torchrun(1, 4), {{"TORCHELASTIC_RUN_ID", "7"}})).token, made);
  EXPECT_THAT(refusal(with(torchrun(1, 4), {{"PENSTOCK_TOKEN", std::string(201, 'x')}})),
              HasSubstr("PENSTOCK_TOKEN has 201 bytes, expected at most 200"));
}

TEST(Rendezvous, OneProcessNeedsNone) {
  EXPECT_FALSE(read({}).value().has_value());
  EXPECT_FALSE(read({{"WORLD_SIZE", "1"}, {"RANK", "0"}}).value().has_value());
}

TEST(Rendezvous, NonsenseIsRefusedByName) {
  EXPECT_EQ(refusal(with(torchrun(1, 4), {{"RANK", "4"}})),
            "environment variable RANK is \"4\", expected an integer from 0 to 3");
  EXPECT_EQ(refusal(with(torchrun(1, 4), {{"WORLD_SIZE", "four"}})),
            "environment variable WORLD_SIZE is \"four\", expected an integer from 1 to 16777216");
  EXPECT_THAT(refusal(with(torchrun(1, 4), {{"MASTER_PORT", "65535"}})),
              HasSubstr("MASTER_PORT is \"65535\", expected an integer from 1 to 65534"));
  EXPECT_THAT(refusal(with(torchrun(1, 4), {{"PENSTOCK_PORT", "0"}})), HasSubstr("PENSTOCK_PORT"));
}

TEST(Rendezvous, WhatIsMissingIsNamed) {
  Variables variables = torchrun(1, 4);
  variables.erase("MASTER_ADDR");
  EXPECT_THAT(refusal(variables), AllOf(HasSubstr("MASTER_ADDR is not set"), HasSubstr("RANK=1")));
  variables = torchrun(1, 4);
  variables.erase("MASTER_PORT");
  EXPECT_THAT(refusal(variables), HasSubstr("MASTER_PORT is not set"));
  variables = torchrun(1, 4);
  variables.erase("RANK");
  EXPECT_THAT(refusal(variables), AllOf(HasSubstr("WORLD_SIZE=4"), HasSubstr("RANK is not set")));
}

TEST(Rendezvous, TorchrunBelowSrunOrMpirunSpeaksForItsProcesses) {
  const Variables mark = {{"TORCHELASTIC_RUN_ID", "7"}};
  const Variables step = {{"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "1"}};
  const Variables mpirun = {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  for (const Variables& outer : {step, mpirun}) {
    const Rendezvous found = place(with(with(torchrun(5, 8), outer), mark));
    EXPECT_EQ(found.rank, 5u);
    EXPECT_EQ(found.size, 8u);
  }
}

TEST(Rendezvous, SrunLiesAroundAllOthersAndSpeaksWhereTheySayHalfAWord) {
  const Variables step = {{"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "1"}};
  EXPECT_EQ(place(with(torchrun(5, 8), step)).rank, 5u);
  Variables half = with(torchrun(5, 8), step);
  half.erase("RANK");
  EXPECT_EQ(place(half).rank, 1u);
  EXPECT_EQ(place(half).size, 2u);
}

TEST(Rendezvous, AStoreThatIsNamedIsForWhoKnowsItsRankToo) {
  const auto store = [](Variables variables) {
    return named_store(3, 8,
                       [variables = std::move(variables)](const char* name) {
                         const auto found = variables.find(name);
                         return found == variables.end() ? nullptr : found->second.c_str();
                       })
        .value();
  };
  EXPECT_FALSE(store(torchrun(1, 4)).has_value());
  const auto named = store(with(torchrun(1, 4), {{"PENSTOCK_PORT", "4711"}}));
  ASSERT_TRUE(named.has_value());
  EXPECT_EQ(named->rank, 3u);
  EXPECT_EQ(named->size, 8u);
  EXPECT_EQ(named->port, 4711);
}

TEST(Rendezvous, TwoLaunchersMustSayTheSame) {
  const Variables both =
      with(torchrun(1, 4), {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_EQ(place(both).rank, 1u);
  EXPECT_EQ(refusal(with(both, {{"OMPI_COMM_WORLD_SIZE", "2"}})),
            "two launchers contradict each other: OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=2, "
            "but RANK=1, WORLD_SIZE=4; unset the variables of the launcher that did not start this "
            "process");
}

// ---- JoinedRanks, with ranks as threads ----

uint16_t free_port() {
  return control::listen_on("127.0.0.1").value().port;
}

Rendezvous rendezvous(uint32_t rank, uint32_t size, uint16_t port) {
  return place(with(torchrun(rank, size), {{"PENSTOCK_PORT", std::to_string(port)}}));
}

Control::Options within(uint64_t deadline_us) {
  Control::Options options;
  options.deadline_us = deadline_us;
  options.heartbeat_us = 20'000;
  return options;
}

void run_ranks(const std::vector<Rendezvous>& places, uint64_t deadline_us,
               const std::function<void(uint32_t rank, Result<JoinedRanks> joined)>& body) {
  std::vector<std::thread> threads;
  for (const Rendezvous& each : places)
    threads.emplace_back([&] { body(each.rank, meet_at(each, within(deadline_us))); });
  for (std::thread& thread : threads) thread.join();
}

class RendezvousOf : public ::testing::TestWithParam<uint32_t> {};

TEST_P(RendezvousOf, RanksAgreeOnWhoTheyAreAndUseTheStore) {
  const uint32_t size = GetParam();
  const uint16_t port = free_port();
  std::vector<Rendezvous> places;
  for (uint32_t rank = 0; rank < size; ++rank) places.push_back(rendezvous(rank, size, port));
  run_ranks(places, kLongUs, [&](uint32_t rank, Result<JoinedRanks> joined) {
    ASSERT_TRUE(joined.ok()) << joined.status().message();
    EXPECT_EQ(joined->world.rank(), rank);
    EXPECT_EQ(joined->world.size(), size);
    EXPECT_EQ(joined->world.n_hosts(), 1u);
    Control& control = *joined->control;
    EXPECT_TRUE(control.put(fmt::format("of rank {}", rank), fmt::format("{}", rank * 3)).ok());
    const uint32_t next = (rank + 1) % size;
    EXPECT_EQ(control.get(fmt::format("of rank {}", next), kLongUs).value(),
              fmt::format("{}", next * 3));
    EXPECT_TRUE(control.agree("end of test", "", {}, kLongUs).ok());
    control.stop();
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, RendezvousOf, ::testing::Values(2u, 3u, 5u));

TEST(JoinedRanks, ARankThatDoesNotComeIsNamedToAllWithinTheDeadline) {
  const uint16_t port = free_port();
  run_ranks({rendezvous(0, 3, port), rendezvous(2, 3, port)}, 5'000'000,
            [&](uint32_t rank, const Result<JoinedRanks>& joined) {
              EXPECT_THAT(std::string(joined.status().message()),
                          AllOf(HasSubstr("rank 1"), HasSubstr("WORLD_SIZE=3")))
                  << rank;
            });
}

TEST(JoinedRanks, AnAddressWithoutRank0IsSaid) {
  const auto joined = meet_at(rendezvous(1, 2, free_port()), within(300'000));
  EXPECT_EQ(joined.status().code(), Code::deadline_exceeded);
  EXPECT_THAT(std::string(joined.status().message()),
              AllOf(HasSubstr("the store at 127.0.0.1:"), HasSubstr("Connection refused")));
}

TEST(JoinedRanks, AHostThatIsNoneIsSaid) {
  Rendezvous wrong = rendezvous(1, 2, 29501);
  wrong.host = "256.1.1.1.invalid";
  EXPECT_THAT(std::string(meet_at(wrong, within(300'000)).status().message()),
              HasSubstr("'256.1.1.1.invalid' is no host that this one can find"));
}

TEST(JoinedRanks, APortThatIsTakenIsSaid) {
  const Result<control::Listener> other = control::listen_on("127.0.0.1");
  const Status status = meet_at(rendezvous(0, 2, other.value().port), within(300'000)).status();
  EXPECT_EQ(status.code(), Code::failed_precondition) << "not a fault of Penstock";
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(fmt::format("cannot listen on TCP port {}", other.value().port)),
                    HasSubstr("give all ranks another PENSTOCK_PORT")));
}

TEST(JoinedRanks, RanksOfAnotherRunAreNotLetIn) {
  const uint16_t port = free_port();
  Rendezvous stranger = rendezvous(1, 2, port);
  stranger.token = "another run's";
  run_ranks(
      {rendezvous(0, 2, port), stranger}, 600'000,
      [&](uint32_t rank, const Result<JoinedRanks>& joined) { EXPECT_FALSE(joined.ok()) << rank; });
}

}  // namespace
}  // namespace penstock::rendezvous_test
