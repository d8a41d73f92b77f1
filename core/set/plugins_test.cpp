// Test plugins, each built to check one promise of the runtime to plugins.

#include "core/set/testing.hpp"

#include <filesystem>

namespace penstock::plugins_test {
namespace {

using testing::make_set;
using testing::scheme_text;
using testing::with_ranks;

// A scheme with the test plugin in `folder`; `tables` go on with [runtime].
std::string scheme_with(const std::string& folder, const std::string& keys,
                        const std::string& tables) {
  const std::string program = std::filesystem::canonical("/proc/self/exe").parent_path().string();
  return scheme_text(
      keys, fmt::format("allow_insecure_paths = true\nplugin_path = [\"{}/plugins/{}\"]\n{}",
                        program, folder, tables));
}

// The plugin's compressor is identity-c; all gradients are in one bucket.
std::string scheme_of(const std::string& folder, const std::string& tables = "") {
  return scheme_with(
      folder, "compressor = \"identity-c\"\nmemory = \"none\"\nscheduler = \"fusion\"", tables);
}

// The plugin refuses a call with less scratch than it asked for all items of the call together.
TEST(Plugins, HaveScratchForAllItemsOfACallWhateverMemoriesTheseHave) {
  const std::string rule = "[[rule]]\nmatch = { name = \"b\" }\nmemory = \"residual\"\n";
  with_ranks(2, scheme_of("scratch", rule), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, {{"a", {3000}}, {"b", {2000}}, {"c", {1000}}});
    ASSERT_OK(set.status());
    std::vector<std::vector<float>> gradients;
    for (const size_t numel : {3000, 2000, 1000}) gradients.emplace_back(numel, float(2 * rank));
    ASSERT_OK(testing::run_step(*set.value(), gradients));
    for (const auto& values : gradients)
      for (const float value : values) ASSERT_EQ(value, 1);
  });
}

// Data of an earlier step in a message's buffer must not count again.
TEST(Plugins, ThatSendNothingInASumAddZeros) {
  for (const char* memory : {"none", "residual"}) {
    const std::string keys =
        fmt::format("compressor = \"identity-c\"\nmemory = \"{}\"\nscheduler = \"fusion\"", memory);
    with_ranks(2, scheme_with("silent", keys, ""), [&](Runtime& runtime, uint32_t rank) {
      auto set = make_set(runtime, {{"a", {300}}, {"b", {20}}});
      ASSERT_OK(set.status());
      for (const float mean : {1.5f, 0.5f, 0.5f}) {  // rank 1 is silent from step 1 on
        std::vector<std::vector<float>> gradients;
        for (const size_t numel : {300, 20}) gradients.emplace_back(numel, float(rank + 1));
        ASSERT_OK(testing::run_step(*set.value(), gradients));
        for (const auto& values : gradients)
          for (const float value : values) ASSERT_EQ(value, mean) << memory;
      }
    });
  }
}

// A rank that sends nothing would end with zeros while the other ranks wait for it, or add data
// that does not exist.
TEST(Plugins, ThatPlanOtherRoundsOnAnotherRankAreNamedOnEveryRank) {
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([rank] {
      const std::string scheme = scheme_of(
          "mute",
          fmt::format("[compressor.identity-c]\nlabel = \"{}\"\n", rank == 1 ? "mute" : ""));
      auto runtime = testing::open_rank(testing::rank_config(scheme, "needs-test", rank, 2));
      ASSERT_OK(runtime.status());
      const auto set = make_set(*runtime.value(), {{"a", {3}}, {"b", {2}}});
      ASSERT_FALSE(set.ok());
      EXPECT_EQ(set.status().code(), Code::mismatch);
      const std::string message(set.status().message());
      for (const char* part :
           {"'needs of set model at step 0' must be equal on its ranks but differs in line 1",
            "gradient '", "compressor 'identity-c' sum(", "compressor 'identity-c' no round"})
        EXPECT_NE(message.find(part), std::string::npos) << message;
    });
  for (std::thread& thread : threads) thread.join();
}

// The C++ layer makes a status from the exception. If the layer is absent, the message has the
// type.
TEST(Plugins, ThatThrowInAStepAreNamedWithTextStageAndGradient) {
  for (const auto& [folder, said] :
       {std::pair("thrower", "no such entry"),
        {"raw_thrower",
         "it threw std::out_of_range: no such entry, where a plugin returns a status"}})
    with_ranks(
        1,
        scheme_with(folder,
                    "compressor = \"thrower\"\nmemory = \"residual\"\nscheduler = "
                    "\"fusion\"",
                    ""),
        [&, said = said](Runtime& runtime, uint32_t) {
          auto set = make_set(runtime, {{"a", {3}}, {"b", {2}}});
          ASSERT_OK(set.status());
          std::vector<std::vector<float>> gradients{{1, 2, 3}, {4, 5}};
          const Status status = testing::run_step(*set.value(), gradients);
          ASSERT_FALSE(status.ok());
          EXPECT_EQ(status.code(), Code::internal);
          const std::string message(status.message());
          for (const std::string& part :
               {std::string("compressor 'thrower' (compressor/thrower): encode of gradient "),
                std::string(" and 1 more of its bucket: ") + said})
            EXPECT_NE(message.find(part), std::string::npos) << message;
        });
}

// A product with 1.0 / 49 is a little less than 1, and integers are truncated.
TEST(Plugins, OfIntegersGetTheMeanOfAsManyRanksAsThereAre) {
  constexpr uint32_t kManyRanks = 49;
  with_ranks(kManyRanks, scheme_of("integers"), [&](Runtime& runtime, uint32_t) {
    auto set = make_set(runtime, {{"a", {3}, PENSTOCK_INT32}});
    ASSERT_OK(set.status());
    std::vector<int32_t> values = {1, 0, -7};
    std::vector<float> none;
    penstock_tensor tensor = testing::view_of(none);
    tensor.data = values.data();
    tensor.numel = values.size();
    tensor.dtype = PENSTOCK_INT32;
    ASSERT_OK(set.value()->gradient_ready(0, tensor));
    ASSERT_OK(set.value()->wait_all());
    ASSERT_OK(set.value()->step_end(true));
    EXPECT_EQ(values, (std::vector<int32_t>{1, 0, -7}));
  });
}

// Top-k keeps the smaller entry. The next plan sends every entry, and the memory has nothing to
// keep.
TEST(Schedulers, ThatChooseAnotherCandidateLoseNothingThatTheMemoryKept) {
  for (const char* lossless : {"none", "all"})
    with_ranks(
        2,
        scheme_with(
            "turns",
            fmt::format(
                "compressor = \"topk\"\ncandidates = [\"topk\", \"{}\"]\nmemory = \"residual\"\n"
                "scheduler = \"turns-c\"",
                lossless),
            std::string("[compressor.topk]\ndensity = 0.5\n") +
                (lossless == std::string_view("all")
                     ? "[compressor.all]\nplugin = \"topk\"\ndensity = 1\n"
                     : "")),
        [&](Runtime& runtime, uint32_t) {
          auto set = make_set(runtime, {{"weight", {2}}});
          ASSERT_OK(set.status());
          std::vector<std::vector<float>> gradients{{8, -3}};
          ASSERT_OK(testing::run_step(*set.value(), gradients));
          EXPECT_EQ(gradients[0], (std::vector<float>{8, 0}));
          gradients[0] = {0.5f, 0.25f};
          ASSERT_OK(testing::run_step(*set.value(), gradients));
          EXPECT_EQ(gradients[0], (std::vector<float>{0.5f, -2.75f}));
          gradients[0] = {1, 2};
          ASSERT_OK(testing::run_step(*set.value(), gradients));
          EXPECT_EQ(gradients[0], (std::vector<float>{0, 2}));
          gradients[0] = {0, 0};
          ASSERT_OK(testing::run_step(*set.value(), gradients));
          EXPECT_EQ(gradients[0], (std::vector<float>{1, 0}));
        });
}

TEST(Options, ThatAreNothingAsAFloatAreRefusedWithTheirPlace) {
  struct Case {
    const char *scheme, *table, *option;
  };
  for (const Case& c :
       {Case{"compressor = \"topk\"\nmemory = \"residual\"", "memory.residual", "gamma"},
        Case{"compressor = \"topk\"\nmemory = \"dgc\"", "memory.dgc", "clip"},
        Case{"compressor = \"tbq\"\nmemory = \"residual\"", "compressor.tbq", "threshold"}}) {
    const std::string text =
        scheme_text(c.scheme, fmt::format("[{}]\n{} = 1e-50\n", c.table, c.option));
    const auto runtime = testing::open_rank(testing::rank_config(text, "options-test", 0, 1));
    ASSERT_FALSE(runtime.ok()) << c.table;
    const std::string message(runtime.status().message());
    EXPECT_NE(message.find(fmt::format(":8:1: {}.{} is", c.table, c.option)), std::string::npos)
        << message;
    EXPECT_NE(message.find("expected a real in [1.17"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace penstock::plugins_test
