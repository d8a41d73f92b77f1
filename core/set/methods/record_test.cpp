// The profile of the trained model that a run writes.
#include "core/tuning/record.hpp"

#include "core/set/testing.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace penstock::record_test {
namespace {

std::vector<DeclaredGradient> three() {
  return {{"first, of all", 0, {4, 2}}, {"scale", 1, {}}, {"last", 2, {3}}};
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(ModelRecord, HasARowForEachGradientAsForwardGoesWithTheTimeBetweenTwo) {
  ModelRecord record("unused", "model", three());
  record.add(std::vector<double>{900, 250, 0}, -1);
  record.add(std::vector<double>{1100, 350, 0}, 500);
  record.add(std::vector<double>{1000, 300, 0}, 700);
  EXPECT_EQ(
      record.text(),
      "# about = recorded on rank 0 of set 'model' over 3 steps; forward is the part of the "
      "step outside backward\n# forward_ms = 0.700000\n# backward_ms = "
      "1.000000\nname,shape,work\nfirst_ of all,4x2,700.000\nscale,1,300.000\nlast,3,0.000\n");
}

TEST(ModelRecord, ForgetsTheFirstSteps) {
  ModelRecord record("unused", "model", three());
  for (int step = 0; step < 2; ++step) record.add(std::vector<double>{9e6, 9e6, 9e6}, 9e6);
  int due = 0;
  for (size_t step = 0; step < 2 * ModelRecord::kSteps; ++step) {
    record.add(std::vector<double>{20, 10, 0}, 5);
    due += record.is_due() ? 1 : 0;
  }
  EXPECT_EQ(due, 1);
  EXPECT_NE(record.text().find("# forward_ms = 0.005000\n# backward_ms = 0.020000"),
            std::string::npos)
      << record.text();
}

TEST(ModelRecord, AGradientThatTookNoPartHasNoTimeOfThatStep) {
  ModelRecord record("unused", "model", three());
  record.add(std::vector<double>{20, -1, 0}, 1);
  record.add(std::vector<double>{20, 7, 0}, 1);
  EXPECT_NE(record.text().find("scale,1,7.000"), std::string::npos) << record.text();
}

TEST(ModelRecord, WhatCannotBeWrittenIsNamed) {
  const Status status = ModelRecord("/nowhere/at/all.csv", "model", three()).write();
  EXPECT_NE(status.message().find("'/nowhere/at/all.csv'"), std::string::npos) << status.message();
}

class RecordingRun : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("penstock-record-{}", getpid());
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string scheme() const {
    return testing::scheme_text("compressor = \"none\"\nmemory = \"none\"\nscheduler = \"wfbp\"",
                                fmt::format("profile = \"{}\"\n", (folder_ / "mine.csv").string()));
  }
  std::filesystem::path folder_;
};

TEST_F(RecordingRun, WritesOneFileForEachSetOnRankZero) {
  testing::with_ranks(2, scheme(), [&](Runtime& runtime, uint32_t) {
    for (const char* name : {"one", "two"}) {
      auto set = testing::make_set(runtime, {{"first", {5, 2}}, {"last", {3}}}, 0, name);
      ASSERT_OK(set.status());
      std::vector<std::vector<float>> gradients{std::vector<float>(10, 1), {1, 1, 1}};
      for (int step = 0; step < 3; ++step) ASSERT_OK(testing::run_step(*set.value(), gradients));
    }
  });
  const std::string first = contents(folder_ / "mine.csv");
  EXPECT_NE(first.find("set 'one' over 3 steps"), std::string::npos) << first;
  EXPECT_NE(first.find("first,5x2,"), std::string::npos) << first;
  EXPECT_NE(contents(folder_ / "mine.2.csv").find("set 'two'"), std::string::npos);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2);
}

TEST_F(RecordingRun, AFileThatCannotBeWrittenIsRefusedBeforeTheFirstStep) {
  std::filesystem::create_directory(folder_ / "mine.csv");
  auto runtime = testing::open_rank(testing::rank_config(scheme(), "record", 0, 1));
  EXPECT_FALSE(runtime.ok());
  EXPECT_NE(runtime.status().message().find("mine.csv"), std::string::npos)
      << runtime.status().message();
}

}  // namespace
}  // namespace penstock::record_test
