// Changes of a set during the run. A change that cannot work is refused before the first step.

#include "core/set/testing.hpp"

namespace penstock::change_test {
namespace {

using testing::make_set;
using testing::open_rank;
using testing::run_step;
using testing::scheme_text;
using testing::view_of;
using testing::with_ranks;

const std::string kTopK = "compressor = \"topk\"\nmemory = \"residual\"\n";
const std::vector<testing::GradientShape> kShapes{{"weight", {8, 4}}, {"bias", {8}}};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string switch_to(const std::string& changes) {
  return "[[switch]]\nat_step = 2\nset = { " + changes + " }\n";
}

TEST(Switches, ThatChangeTheCollectiveOrItsTransportAreRefusedAtTheStart) {
  const std::string text = scheme_text(
      kTopK, switch_to("scheme.collective = \"oktopk\", scheme.transport = \"loopback\""));
  const auto runtime = open_rank(testing::rank_config(text, "change-test", 0, 1));
  ASSERT_FALSE(runtime.ok());
  EXPECT_EQ(runtime.status().code(), Code::unimplemented);
  EXPECT_TRUE(contains(runtime.status().message(),
                       "the switch at step 2 changes scheme.collective from \"loopback\" to "
                       "\"oktopk\""))
      << runtime.status().message();
}

TEST(Switches, ThatChangeOptionsOfTheCollectiveOrItsTransportAreRefusedAtTheStart) {
  struct Change {
    const char *scheme, *option;
  };
  for (const Change& change :
       {Change{"collective = \"loopback\"\n", "collective.loopback.size = 2"},
        Change{"collective = \"oktopk\"\ntransport = \"loopback\"\n",
               "collective.loopback.size = 2"},
        Change{"collective = \"oktopk\"\ntransport = \"loopback\"\n",
               "collective.oktopk.threshold_period = 7"}}) {
    const std::string text =
        std::string("[scheme]\n") + change.scheme + kTopK + switch_to(change.option);
    const auto runtime = open_rank(testing::rank_config(text, "change-test", 0, 1));
    ASSERT_FALSE(runtime.ok()) << change.option;
    EXPECT_TRUE(contains(runtime.status().message(), "the switch at step 2 changes collective."))
        << runtime.status().message();
  }
}

TEST(Switches, ThatRepeatAnOptionOfTheCollectivePass) {
  const std::string text = scheme_text(kTopK, switch_to("collective.loopback.size = 1"));
  ASSERT_OK(open_rank(testing::rank_config(text, "change-test", 0, 1)).status());
}

TEST(SchemesOfASet, CannotGiveTheTransportOtherOptionsThanTheRunJoinedWith) {
  with_ranks(2, scheme_text(kTopK), [&](Runtime& runtime, uint32_t) {
    const std::string scheme = "[scheme]\ncollective = \"loopback\"\n";
    ASSERT_OK(make_set(runtime, kShapes, 0, "plain", scheme).status());
    ASSERT_OK(make_set(runtime, kShapes, 0, "same", scheme + "[collective.loopback]\nsize = 2\n")
                  .status());
    const auto other =
        make_set(runtime, kShapes, 0, "other", scheme + "[collective.loopback]\nsize = 3\n");
    ASSERT_FALSE(other.ok());
    EXPECT_TRUE(
        contains(other.status().message(), "collective.loopback.size differs from the value"))
        << other.status().message();
  });
}

struct Misfit {
  const char* keys;
  const char* changes;
  const char* reason;
};

TEST(Switches, ToWhatDoesNotFitAreRefusedWhenTheSetIsMade) {
  for (const Misfit& misfit :
       {Misfit{"compressor = \"none\"\nscheduler = \"dear\"",
               "scheme.compressor = \"topk\", scheme.memory = \"residual\"",
               "route \"split\" reduces and scatters one summed round"},
        Misfit{"compressor = \"none\"", "scheme.route = \"split\"", "cannot produce route"},
        Misfit{"compressor = \"none\"", "scheme.memory = \"dgc\", scheme.compressor = \"dgc\"",
               "applies momentum, and so does the optimizer"}})
    with_ranks(
        2, scheme_text(misfit.keys, switch_to(misfit.changes)), [&](Runtime& runtime, uint32_t) {
          const auto set = make_set(runtime, kShapes,
                                    PENSTOCK_SET_DEFERRED_UPDATE | PENSTOCK_SET_OPTIMIZER_MOMENTUM);
          ASSERT_FALSE(set.ok()) << misfit.changes;
          EXPECT_TRUE(contains(set.status().message(), "from step 2 on")) << misfit.changes;
          EXPECT_TRUE(contains(set.status().message(), misfit.reason)) << set.status().message();
        });
}

}  // namespace
}  // namespace penstock::change_test
