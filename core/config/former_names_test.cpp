// Files for earlier versions still work.
#include "core/config/former_names.hpp"

#include "core/config/load.hpp"

#include <gtest/gtest.h>

namespace penstock::former_names_test {
namespace {

Result<Config> load(std::string_view text) {
  return load_config_text(text, "run.toml", "/etc/penstock",
                          {[](const char*) -> const char* { return nullptr; }, true});
}

TEST(FormerNames, TheTransportOfTheProgramIsFoundByItsFormerName) {
  const Result<Config> config = load(
      "[scheme]\ncollective = \"mine\"\n[transport]\ncross = \"lent\"\n[collective.lent]\n"
      "[collective.mine]\nplugin = \"lent\"\n");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const Scheme scheme = config.value().at_step(0);
  EXPECT_EQ(scheme.cross_transport, "borrowed");
  EXPECT_NE(scheme.find(Kind::collective, "borrowed"), nullptr);
  EXPECT_EQ(scheme.find(Kind::collective, "mine")->plugin, "borrowed");
}

TEST(FormerNames, TheTimeForWhichARunWaitsAtItsStartHasAFormerName) {
  const Result<Config> config = load("[runtime]\nmeeting_timeout_s = 3\n");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config.value().runtime().rendezvous_timeout_s, 3);
}

TEST(FormerNames, AnOptionOfASchedulerHasAFormerName) {
  const Result<Config> config =
      load("[scheme]\nscheduler = \"optimal\"\n[scheduler.optimal]\nreplan_looks = 3\n");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const Scheme scheme = config.value().at_step(0);
  const auto& options = scheme.find(Kind::scheduler, "optimal")->options;
  EXPECT_EQ(options.count("replan_looks"), 0u);
  EXPECT_EQ(options.count("replan_observations"), 1u);
}

TEST(FormerNames, BothNamesOfAKeyAreRefusedWithTheLineOfTheFormer) {
  const Result<Config> config =
      load("[runtime]\nrendezvous_timeout_s = 2\nmeeting_timeout_s = 3\n");
  EXPECT_EQ(config.status().message(),
            "run.toml:3:1: runtime.meeting_timeout_s is the former name of "
            "runtime.rendezvous_timeout_s, which the file has too: remove one of them");
}

TEST(FormerNames, AnErrorPointsToTheLineWithTheFormerName) {
  const Result<Config> config = load("[runtime]\nmeeting_timeout_s = \"soon\"\n");
  EXPECT_EQ(config.status().message().substr(0, 15), "run.toml:2:1: r");
}

}  // namespace
}  // namespace penstock::former_names_test
