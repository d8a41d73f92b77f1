// Rules, switches, derived instances, agreement.
#include "core/config/agreement.hpp"
#include "core/config/glob.hpp"
#include "core/config/load.hpp"
#include "core/tensor/dtype.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>

namespace penstock::scheme_test {
namespace {

Config load(std::string_view text) {
  Result<Config> config = load_config_text(text, "run.toml", "", {nullptr, true});
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? config.value() : Config();
}

using Names = std::vector<std::string>;

TEST(Glob, StarsQuestionMarksAndSets) {
  EXPECT_TRUE(glob_fits("layer*.weight", "layer12.weight"));
  EXPECT_TRUE(glob_fits("*", ""));
  EXPECT_TRUE(glob_fits("**a*", "bbab"));
  EXPECT_TRUE(glob_fits("h.?.w", "h.3.w"));
  EXPECT_FALSE(glob_fits("h.?.w", "h.33.w"));
  EXPECT_TRUE(glob_fits("h[0-4]", "h3"));
  EXPECT_FALSE(glob_fits("h[0-4]", "h5"));
  EXPECT_TRUE(glob_fits("h[!0-4]", "h5"));
  EXPECT_TRUE(glob_fits("a[]]b", "a]b"));
  EXPECT_TRUE(glob_fits("a\\*b", "a*b"));
  EXPECT_FALSE(glob_fits("a\\*b", "axb"));
  EXPECT_FALSE(glob_fits("", "a"));
  EXPECT_TRUE(glob_fits("", ""));
  EXPECT_FALSE(glob_fits("abc", "ab"));
}

TEST(Glob, HostilePatternsTakeBoundedTime) {
  std::string pattern;
  for (int i = 0; i < 60; ++i) pattern += "*a";
  EXPECT_FALSE(glob_fits(pattern + "b", std::string(4000, 'a')));
}

TEST(Glob, RefusesWhatCannotBeMeant) {
  EXPECT_FALSE(check_glob("").ok());
  EXPECT_FALSE(check_glob("a[b").ok());
  EXPECT_FALSE(check_glob("a\\").ok());
  EXPECT_FALSE(check_glob("\\\\[").ok());
  EXPECT_TRUE(check_glob("a\\[b").ok());
  EXPECT_TRUE(check_glob("a[]]*").ok());
}

TEST(Choice, TheFirstRuleThatMatchesWinsAndTheRestComesFromTheScheme) {
  const Scheme scheme = load(R"(
    [scheme]
    compressor = "dgc"
    memory = "dgc"
    [[rule]]
    match = { dims = 1 }
    compressor = "none"
    [[rule]]
    match = { name = ["*.bias", "norm*"], dims = { max = 2 } }
    memory = "residual"
    [[rule]]
    match = { elements = { min = 1000000 }, dtype = "bfloat16" }
    candidates = ["topk", "dgc", "none"]
  )")
                            .at_step(0);
  const Choice one = scheme.choose({"layer.bias", 1, 64, PENSTOCK_FLOAT32});
  EXPECT_EQ(one.rule, 1u);
  EXPECT_EQ(one.compressor, "none");
  EXPECT_EQ(one.memory, "dgc");
  EXPECT_EQ(one.candidates, Names{"none"});
  const Choice two = scheme.choose({"norm.w", 2, 64, PENSTOCK_FLOAT32});
  EXPECT_EQ(two.rule, 2u);
  EXPECT_EQ(two.compressor, "dgc");
  EXPECT_EQ(two.memory, "residual");
  const Choice three = scheme.choose({"w", 2, 1000000, PENSTOCK_BFLOAT16});
  EXPECT_EQ(three.rule, 3u);
  EXPECT_EQ(three.candidates, (Names{"dgc", "topk", "none"}));
  const Choice rest = scheme.choose({"w", 2, 999999, PENSTOCK_BFLOAT16});
  EXPECT_EQ(rest.rule, 0u);
  EXPECT_EQ(rest.compressor, "dgc");
  EXPECT_EQ(scheme.choose({"w", 2, 1000000, PENSTOCK_FLOAT32}).rule, 0u);
}

TEST(Choice, CandidatesWithoutTheSchemesCompressorBeginWithTheirFirst) {
  const Scheme scheme = load("[[rule]]\nmatch = {}\ncandidates = [\"topk\", \"dgc\"]\n").at_step(0);
  const Choice choice = scheme.choose({"w", 2, 10, PENSTOCK_FLOAT32});
  EXPECT_EQ(choice.compressor, "topk");
  EXPECT_EQ(choice.candidates, (Names{"topk", "dgc"}));
}

TEST(Choice, OptionsOfARuleMakeADerivedInstance) {
  const Scheme scheme = load(R"(
    [scheme]
    compressor = "dgc"
    [compressor.dgc]
    density = 0.001
    sample = 0.5
    [[rule]]
    match = { dims = 1 }
    compressor = "none"
    [[rule]]
    match = { name = "head*" }
    options = { compressor.dgc.density = 0.01 }
  )")
                            .at_step(0);
  const Choice choice = scheme.choose({"head.w", 2, 10, PENSTOCK_FLOAT32});
  EXPECT_EQ(choice.compressor, "dgc@rule2");
  EXPECT_EQ(choice.candidates, Names{"dgc@rule2"});
  const InstanceConfig* derived = scheme.find(Kind::compressor, "dgc@rule2");
  ASSERT_NE(derived, nullptr);
  EXPECT_EQ(derived->plugin, "dgc");
  EXPECT_EQ(derived->options.at("density").text(), "0.01");
  EXPECT_EQ(derived->options.at("sample").text(), "0.5");
  EXPECT_EQ(scheme.find(Kind::compressor, "dgc")->options.at("density").text(), "0.001");
}

constexpr const char* kWarmUp = R"(
    [scheme]
    compressor = "dgc"
    memory = "residual"
    [compressor.dgc]
    density = 0.001
    [[rule]]
    match = { name = "head*" }
    options = { compressor.dgc.sample = 1.0 }
    [[switch]]
    at_step = 500
    set = { compressor.dgc.density = 0.0625, scheme.memory = "dgc" }
    [[switch]]
    at_step = 0
    set = { compressor.dgc.density = 0.25 }
    [[switch]]
    at_step = 500
    set = { scheme.route = "split" }
)";

TEST(Switch, StagesBeginWhereSomethingChanges) {
  const Config config = load(kWarmUp);
  EXPECT_EQ(config.stages(), (std::vector<uint64_t>{0, 500}));
  EXPECT_EQ(config.next_switch_after(0), 500u);
  EXPECT_EQ(config.next_switch_after(499), 500u);
  EXPECT_FALSE(config.next_switch_after(500).has_value());
}

TEST(Switch, ReplacesTheKeysItNamesAndKeepsTheRest) {
  const Config config = load(kWarmUp);
  const Scheme first = config.at_step(499), second = config.at_step(UINT64_MAX);
  EXPECT_EQ(first.find(Kind::compressor, "dgc")->options.at("density").text(), "0.25");
  EXPECT_EQ(first.memory, "residual");
  EXPECT_EQ(first.route, uint32_t{PENSTOCK_ROUTE_FLAT});
  EXPECT_EQ(second.find(Kind::compressor, "dgc")->options.at("density").text(), "0.0625");
  EXPECT_EQ(second.compressor, "dgc");
  EXPECT_EQ(second.memory, "dgc");
  EXPECT_EQ(second.route, uint32_t{PENSTOCK_ROUTE_SPLIT});
}

TEST(Switch, ReachesInstancesThatRulesDerive) {
  const Config config = load(kWarmUp);
  EXPECT_EQ(config.at_step(500).find(Kind::compressor, "dgc@rule1")->options.at("density").text(),
            "0.0625");
}

// Processor time of this thread, which depends less on other programs.
double seconds_to_load(size_t n_switches) {
  std::string text = "[scheme]\ncompressor = \"dgc\"\n[compressor.dgc]\ndensity = 0.5\n";
  for (size_t i = 0; i < n_switches; ++i)
    text += fmt::format("[[switch]]\nat_step = {}\nset = {{ compressor.dgc.density = {} }}\n", i,
                        1.0 / static_cast<double>(i + 2));
  double best = HUGE_VAL;
  for (int repeat = 0; repeat < 3; ++repeat) {
    timespec from{}, to{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    const Config config = load(text);
    for (const uint64_t stage : config.stages()) {
      EXPECT_EQ(config.next_switch_after(stage).has_value(), stage + 1 < n_switches);
      EXPECT_EQ(config.at_step(stage).find(Kind::compressor, "dgc")->options.size(), 1u);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    best = std::min(best, static_cast<double>(to.tv_sec - from.tv_sec) +
                              1e-9 * static_cast<double>(to.tv_nsec - from.tv_nsec));
  }
  return best;
}

// A density for each step of a warm-up. 16 times as many switches take 16 times as long. If each
// switch looked at all switches, they would take 256 times as long.
TEST(Switch, ManyTakeTimeInProportion) {
  EXPECT_LT(seconds_to_load(8000), 60 * seconds_to_load(500));
}

TEST(Switch, MayBringInstancesThatWereNotThere) {
  const Config config = load(
      "[[switch]]\nat_step = 5\nset = { scheme.compressor = \"topk\", compressor.topk.density = "
      "0.5 }\n");
  EXPECT_EQ(config.at_step(4).find(Kind::compressor, "topk"), nullptr);
  EXPECT_EQ(config.at_step(5).find(Kind::compressor, "topk")->options.at("density").text(), "0.5");
}

Result<std::vector<std::string>> describe_as_written(const InstanceConfig& instance) {
  std::vector<std::string> lines;
  for (const auto& [key, value] : instance.options) lines.push_back(key + " = " + value.text());
  return lines;
}

std::string agreement(std::string_view text) {
  Result<std::string> result = agreement_text(load(text), describe_as_written);
  EXPECT_TRUE(result.ok());
  return result.value();
}

TEST(Agreement, DoesNotDependOnTheOrderOfTheFileNorOnWhatIsRankLocal) {
  const std::string a = agreement(
      "[compressor.topk]\ndensity = 0.5\nscope = \"item\"\n[scheme]\ncompressor = \"topk\"\n"
      "[runtime]\nlog_level = \"debug\"\n");
  const std::string b = agreement(
      "[scheme]\ncompressor = \"topk\"\n[compressor.topk]\nscope = \"item\"\ndensity = 0.5\n"
      "[runtime]\ntimeline = \"t.json\"\n");
  EXPECT_EQ(a, b);
  EXPECT_EQ(first_difference(a, b), "");
}

TEST(Agreement, TheFirstLineThatDiffersSaysWhat) {
  const std::string a = agreement(kWarmUp);
  std::string changed = kWarmUp;
  changed.replace(changed.find("0.0625"), 6, "0.0624");
  EXPECT_EQ(first_difference(a, agreement(changed)),
            "here \"from step 500: compressor.dgc density = 0.0625\", "
            "there \"from step 500: compressor.dgc density = 0.0624\"");
}

TEST(Agreement, SeedDeterminismRulesAndRoutesCount) {
  const std::string plain = agreement("");
  for (const char* other :
       {"[runtime]\nseed = 2\n", "[runtime]\ndeterministic = true\n",
        "[runtime]\nnonfinite = \"strict\"\n", "[runtime]\nhash_replicated_every = 10\n",
        "[runtime]\ncheck_parameters_every = 10\n", "[runtime]\ncode_path = \"portable\"\n",
        "[scheme]\nroute = \"split\"\n", "[scheme]\napply = \"previous\"\n",
        "[scheme]\ntransport = \"loopback\"\n", "[scheme]\ncandidates = [\"none\", \"topk\"]\n",
        "[[rule]]\nmatch = { dims = 1 }\nmemory = \"dgc\"\n",
        "[[switch]]\nat_step = 3\nset = { scheme.memory = \"dgc\" }\n"}) {
    EXPECT_NE(first_difference(plain, agreement(other)), "") << other;
  }
}

TEST(Agreement, HowManyThreadsARankHasIsItsOwnBusiness) {
  EXPECT_EQ(agreement("[runtime]\nworker_threads = 4\n"), agreement(""));
}

TEST(Agreement, AMissingLineIsADifferenceToo) {
  EXPECT_EQ(first_difference("a\nb\n", "a\n"), "here \"b\", there \"nothing\"");
  EXPECT_EQ(first_difference("a\n", "a\nb\n"), "here \"nothing\", there \"b\"");
}

TEST(Agreement, ErrorsOfTheDescriptionArePassedOn) {
  const Result<std::string> text =
      agreement_text(load(""), [](const InstanceConfig&) -> Result<std::vector<std::string>> {
        return not_found("no such plugin");
      });
  EXPECT_EQ(text.status().code(), Code::not_found);
}

TEST(Text, RealsKeepAllTheirDigitsAndStringsAreEscaped) {
  EXPECT_EQ((Setting{0.1 + 0.2, {}}).text(), "0.30000000000000004");
  EXPECT_EQ(quoted_text("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000A\"");
}

TEST(Dtype, NamesGoBothWays) {
  for (uint32_t dtype = PENSTOCK_FLOAT32; dtype <= PENSTOCK_BOOL; ++dtype) {
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(dtype_from_name("unknown"), 0u);
  EXPECT_EQ(dtype_name(99), "unknown");
  EXPECT_EQ(route_name(99), "unknown");
}

}  // namespace
}  // namespace penstock::scheme_test
