#include "core/control/launcher.hpp"

#include <gmock/gmock.h>

#include <map>
#include <string>

namespace penstock::launcher_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

GetEnvironment with(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

std::string said(uint32_t rank, uint32_t size, std::map<std::string, std::string> variables) {
  return std::string(check_launcher(rank, size, "mpi", with(std::move(variables))).message());
}

TEST(Launcher, WorldOfOneAmongSeveralNamesTheVariableBothNumbersAndTheRemedy) {
  for (const std::string name :
       {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "WORLD_SIZE", "HOROVOD_SIZE"})
    EXPECT_THAT(said(0, 1, {{name, "4"}}),
                AllOf(HasSubstr("this process is alone over 'mpi'"), HasSubstr(name + "=4"),
                      HasSubstr("4 separate models"), HasSubstr("penstock run -np")))
        << name;
}

TEST(Launcher, RanksThatHaveAllMetAreRight) {
  EXPECT_EQ(said(2, 4, {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "2"}}), "");
  EXPECT_EQ(said(0, 1, {}), "");
  EXPECT_EQ(said(0, 1, {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}), "");
}

TEST(Launcher, RanksThatAreMissingAreAnError) {
  EXPECT_THAT(said(0, 2, {{"WORLD_SIZE", "8"}}),
              AllOf(HasSubstr("2 ranks have met"), HasSubstr("WORLD_SIZE=8")));
}

TEST(Launcher, RankThatDiffersIsAnError) {
  EXPECT_THAT(said(0, 4, {{"WORLD_SIZE", "4"}, {"RANK", "3"}}),
              AllOf(HasSubstr("this process is rank 0"), HasSubstr("RANK=3")));
}

TEST(Launcher, SlurmSpeaksOfThisProcessOnlyInsideAStep) {
  EXPECT_EQ(said(0, 1, {{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}), "");
  EXPECT_THAT(said(0, 1, {{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "3"}}),
              HasSubstr("SLURM_NTASKS=4"));
}

TEST(Launcher, OneThatAgreesOutweighsOthersThatAreNestedOrLeftOver) {
  EXPECT_EQ(said(1, 4,
                 {{"OMPI_COMM_WORLD_SIZE", "4"},
                  {"OMPI_COMM_WORLD_RANK", "1"},
                  {"SLURM_STEP_NUM_TASKS", "2"},
                  {"WORLD_SIZE", "16"},
                  {"RANK", "0"}}),
            "");
}

TEST(Launcher, LauncherOfASingleProcessDoesNotForbidRanksAsThreads) {
  EXPECT_EQ(said(3, 4, {{"WORLD_SIZE", "1"}, {"RANK", "0"}}), "");
}

TEST(Launcher, VariablesThatAreNoNumbersSayNothing) {
  EXPECT_EQ(said(0, 1, {{"WORLD_SIZE", "four"}, {"PMI_SIZE", ""}, {"HOROVOD_SIZE", "-2"}}), "");
}

TEST(Launcher, WhatHasLaunchedAProcessIsToldByItsVariables) {
  const auto by = [](std::map<std::string, std::string> variables) {
    return launched_by(with(std::move(variables)));
  };
  EXPECT_EQ(by({}), Launched::single);
  EXPECT_EQ(by({{"WORLD_SIZE", "1"}, {"RANK", "0"}}), Launched::single);
  EXPECT_EQ(by({{"WORLD_SIZE", "4"}, {"RANK", "0"}}), Launched::otherwise);
  EXPECT_EQ(by({{"OMPI_COMM_WORLD_SIZE", "1"}, {"WORLD_SIZE", "4"}}), Launched::by_mpi);
  EXPECT_EQ(by({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}), Launched::single);
  EXPECT_EQ(by({{"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "0"}}), Launched::by_step);
  EXPECT_EQ(by({{"PMI_SIZE", "2"}, {"WORLD_SIZE", "4"}, {"TORCHELASTIC_RUN_ID", "7"}}),
            Launched::otherwise);
}

TEST(Launcher, SlurmsPmiIsNoMpisLauncher) {
  const auto by = [](const std::string& job) {
    return launched_by(with({{"PMI_SIZE", "2"},
                             {"PMI_RANK", "0"},
                             {"PMI_JOBID", job},
                             {"SLURM_JOB_ID", "17"},
                             {"SLURM_STEP_ID", "0"},
                             {"SLURM_STEP_NUM_TASKS", "2"},
                             {"SLURM_PROCID", "0"}}));
  };
  EXPECT_EQ(by("17.0"), Launched::by_step);
  EXPECT_EQ(by("kvs_5"), Launched::by_mpi);
}

TEST(Launcher, SingleProcessOfAStepIsAlone) {
  const std::map<std::string, std::string> step = {
      {"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}};
  EXPECT_EQ(launched_by(with(step)), Launched::single_in_step);
  EXPECT_EQ(launched_as(0, 1, with(step)), Launched::single_in_step);
  auto interactive = step;  // of salloc for two tasks
  interactive["SLURM_NTASKS"] = "2";
  EXPECT_EQ(launched_by(with(interactive)), Launched::single_in_step);
  EXPECT_FALSE(rendezvous_of(with(interactive)).value().has_value());
}

TEST(Launcher, WhoKnowsItsRankGoesByMpiOnlyWhereItsLauncherSaysTheSame) {
  const auto as = [](uint32_t rank, uint32_t size) {
    return launched_as(rank, size,
                       with({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}}));
  };
  EXPECT_EQ(as(1, 2), Launched::by_mpi);
  EXPECT_EQ(as(0, 2), Launched::otherwise);
  EXPECT_EQ(as(3, 4), Launched::otherwise);
  EXPECT_EQ(as(0, 1), Launched::single);
}

TEST(Launcher, TheLaunchersOtherWordIsToldToWhoKnowsItsRank) {
  const auto other = [](uint32_t rank, uint32_t size) {
    return other_word(rank, size, with({{"WORLD_SIZE", "2"}, {"RANK", "1"}}));
  };
  EXPECT_EQ(other(1, 2), "");
  EXPECT_EQ(other(0, 4), "RANK=1, WORLD_SIZE=2");
  EXPECT_EQ(other_word(0, 4, with({})), "");
}

}  // namespace
}  // namespace penstock::launcher_test
