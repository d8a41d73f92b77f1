// Variables of the environment: the name of the configuration, and the variables of Horovod.
#include "core/config/load.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace penstock::environment_test {
namespace {

GetEnvironment environment_of(std::map<std::string, std::string> variables) {
  return [variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

TEST(Environment, NamesTheConfigurationFile) {
  EXPECT_EQ(config_path_from_environment(environment_of({{"PENSTOCK_CONFIG", "/a/b.toml"}})),
            "/a/b.toml");
  EXPECT_EQ(config_path_from_environment(environment_of({})), "");
}

// The seed of the file that was chosen.
int64_t chosen_seed(bool by_run, bool by_init, bool by_variable, std::string* choice) {
  const std::filesystem::path folder = testing::TempDir();
  std::map<std::string, std::string> variables;
  const auto file = [&](const char* name, int seed) {
    const std::string path = (folder / name).string();
    std::ofstream(path) << "[runtime]\nseed = " << seed << "\n";
    return path;
  };
  if (by_run) variables["PENSTOCK_RUN_CONFIG"] = file("run.toml", 11);
  if (by_variable) variables["PENSTOCK_CONFIG"] = file("variable.toml", 33);
  LoadOptions options;
  options.environment = environment_of(variables);
  Result<RunConfig> loaded = load_run_config(by_init ? file("init.toml", 22) : "", "", options);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  *choice = loaded.ok() ? loaded->choice : "";
  return loaded.ok() ? static_cast<int64_t>(loaded->config.runtime().seed) : 0;
}

TEST(Environment, FileOfPenstockRunComesBeforeInitAndInitBeforeTheVariable) {
  std::string choice;
  EXPECT_EQ(chosen_seed(true, true, true, &choice), 11);
  EXPECT_NE(choice.find("penstock run --config; it wins over"), std::string::npos) << choice;
  EXPECT_NE(choice.find("init.toml"), std::string::npos) << choice;
  EXPECT_EQ(chosen_seed(false, true, true, &choice), 22);
  EXPECT_EQ(chosen_seed(false, false, true, &choice), 33);
  EXPECT_EQ(chosen_seed(false, false, false, &choice), 1);
}

TEST(Environment, HorovodsVariablesFillInWhatTheTomlLeavesOpen) {
  LoadOptions options;
  options.environment = environment_of(
      {{"HOROVOD_FUSION_THRESHOLD", "1048576"}, {"HOROVOD_TIMELINE", "/tmp/t.json"}});
  const Result<Config> config = load_config_text("", "run.toml", "", options);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config.value().runtime().timeline, "/tmp/t.json");
  const Scheme scheme = config.value().at_step(0);
  const Setting& threshold = scheme.find(Kind::scheduler, "fusion")->options.at("threshold_bytes");
  EXPECT_EQ(threshold.text(), "1048576");
  EXPECT_EQ(threshold.where.text(), "environment variable HOROVOD_FUSION_THRESHOLD");
  EXPECT_EQ(config.value().mapped(),
            (std::vector<std::string>{
                "HOROVOD_FUSION_THRESHOLD=1048576: scheduler.fusion.threshold_bytes = 1048576",
                "HOROVOD_TIMELINE=/tmp/t.json: runtime.timeline = \"/tmp/t.json\""}));
}

TEST(Environment, AVariableAsksForAProfileWhereTheTomlLeavesItOpen) {
  LoadOptions options;
  options.environment = environment_of({{"PENSTOCK_PROFILE", "/tmp/mine.csv"}});
  EXPECT_EQ(load_config_text("", "run.toml", "", options).value().runtime().profile,
            "/tmp/mine.csv");
  EXPECT_EQ(load_config_text("[runtime]\nprofile = \"own.csv\"\n", "run.toml", "", options)
                .value()
                .runtime()
                .profile,
            "own.csv");
}

TEST(Environment, AVariableSaysWhatParametersThatDifferAreWhereTheTomlLeavesItOpen) {
  LoadOptions options;
  const auto asked = [&](const char* toml) {
    return load_config_text(toml, "run.toml", "", options).value().runtime().check_parameters;
  };
  EXPECT_EQ(asked(""), "warning");
  options.environment = environment_of({{"PENSTOCK_CHECK_PARAMETERS", "error"}});
  EXPECT_EQ(asked(""), "error");
  EXPECT_EQ(asked("[runtime]\ncheck_parameters = \"off\"\n"), "off");
  options.environment = environment_of({{"PENSTOCK_CHECK_PARAMETERS", "yes"}});
  const Status status = load_config_text("", "run.toml", "", options).status();
  EXPECT_EQ(status.message(),
            "environment variable PENSTOCK_CHECK_PARAMETERS is \"yes\", expected \"warning\", "
            "\"error\" or \"off\"");
}

TEST(Environment, OurLogLevelComesBeforeTheTomlAndHorovodsFillsIn) {
  const std::string text = "[runtime]\nlog_level = \"info\"\n";
  const auto level = [](std::map<std::string, std::string> variables, const std::string& toml) {
    LoadOptions options;
    options.environment = environment_of(std::move(variables));
    const Result<Config> config = load_config_text(toml, "run.toml", "", options);
    return config.ok() ? config.value().runtime().log_level
                       : std::string(config.status().message());
  };
  EXPECT_EQ(level({{"PENSTOCK_LOG_LEVEL", "DEBUG"}}, text), "debug");
  EXPECT_EQ(level({{"HOROVOD_LOG_LEVEL", "trace"}}, text), "info");
  EXPECT_EQ(level({{"HOROVOD_LOG_LEVEL", "fatal"}}, ""), "error");
  EXPECT_EQ(level({{"PENSTOCK_LOG_LEVEL", "info"}, {"HOROVOD_LOG_LEVEL", "debug"}}, ""), "info");
  EXPECT_EQ(level({{"PENSTOCK_LOG_LEVEL", "loud"}}, ""),
            "environment variable PENSTOCK_LOG_LEVEL is \"loud\", expected debug, info, warning or "
            "error");
}

TEST(Environment, TheTomlHasPrecedence) {
  LoadOptions options;
  options.environment =
      environment_of({{"HOROVOD_FUSION_THRESHOLD", "7"}, {"HOROVOD_TIMELINE", "/tmp/t.json"}});
  const Result<Config> config =
      load_config_text("[scheduler.fusion]\nthreshold_bytes = 9\n[runtime]\ntimeline = \"\"\n",
                       "run.toml", "", options);
  ASSERT_TRUE(config.ok());
  const Scheme scheme = config.value().at_step(0);
  EXPECT_EQ(scheme.find(Kind::scheduler, "fusion")->options.at("threshold_bytes").text(), "9");
  EXPECT_EQ(config.value().runtime().timeline, "");
  EXPECT_TRUE(config.value().mapped().empty());
}

TEST(Environment, AnotherSchedulerGetsNoFusionThreshold) {
  LoadOptions options;
  options.environment = environment_of({{"HOROVOD_FUSION_THRESHOLD", "7"}});
  const Result<Config> config =
      load_config_text("[scheme]\nscheduler = \"wfbp\"\n", "run.toml", "", options);
  ASSERT_TRUE(config.ok());
  EXPECT_TRUE(config.value().mapped().empty());
  EXPECT_EQ(config.value().at_step(0).find(Kind::scheduler, "fusion"), nullptr);
}

TEST(Environment, ADynamicTimelineIsNoFile) {
  LoadOptions options;
  options.environment = environment_of({{"HOROVOD_TIMELINE", "DYNAMIC"}});
  const Result<Config> config = load_config_text("", "run.toml", "", options);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config.value().runtime().timeline, "");
  EXPECT_TRUE(config.value().mapped().empty());
}

TEST(Environment, AnEmptyVariableCountsAsNone) {
  LoadOptions options;
  options.environment =
      environment_of({{"HOROVOD_FUSION_THRESHOLD", ""}, {"HOROVOD_TIMELINE", ""}});
  const Result<Config> config = load_config_text("", "run.toml", "", options);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(config.value().mapped().empty());
  EXPECT_TRUE(config.value().at_step(0).find(Kind::scheduler, "fusion")->options.empty());
}

TEST(Environment, HorovodsStallVariablesSetHowLongRanksThatLiveAreWaitedFor) {
  LoadOptions options;
  options.environment = environment_of(
      {{"HOROVOD_STALL_CHECK_TIME_SECONDS", "30"}, {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "90"}});
  const Result<Config> config = load_config_text("", "run.toml", "", options);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config.value().runtime().stall_warning_s, 30);
  EXPECT_EQ(config.value().runtime().busy_limit_s, 90);
  EXPECT_EQ(config.value().mapped().size(), 2u);
  const Result<Config> given = load_config_text(
      "[runtime]\nbusy_limit_s = 7\nstall_warning_s = 0\n", "run.toml", "", options);
  ASSERT_TRUE(given.ok()) << given.status().message();
  EXPECT_EQ(given.value().runtime().stall_warning_s, 0);
  EXPECT_EQ(given.value().runtime().busy_limit_s, 7);
  options.environment = environment_of({{"HOROVOD_STALL_CHECK_DISABLE", "1"}});
  const Result<Config> disabled = load_config_text("", "run.toml", "", options);
  ASSERT_TRUE(disabled.ok());
  EXPECT_EQ(disabled.value().runtime().stall_warning_s, 0);
  EXPECT_EQ(disabled.value().runtime().busy_limit_s, 0);
  options.environment = environment_of({{"HOROVOD_STALL_CHECK_TIME_SECONDS", "soon"}});
  const Result<Config> wrong = load_config_text("", "run.toml", "", options);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("HOROVOD_STALL_CHECK_TIME_SECONDS is \"soon\""),
            std::string::npos);
}

TEST(Environment, AThresholdThatIsNoNumberIsRefusedByName) {
  for (const char* wrong : {" ", "64MB", "-1", "1e6", "99999999999999999999"}) {
    LoadOptions options;
    options.environment = environment_of({{"HOROVOD_FUSION_THRESHOLD", wrong}});
    const Result<Config> config = load_config_text("", "run.toml", "", options);
    ASSERT_FALSE(config.ok()) << wrong;
    EXPECT_NE(config.status().message().find("HOROVOD_FUSION_THRESHOLD"), std::string::npos);
  }
}

}  // namespace
}  // namespace penstock::environment_test
