// The content of a timeline file during the run, after a kill, and with a full disk.

#include "core/trace/timeline.hpp"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace penstock::timeline_test {
namespace {

std::string file_in(const std::string& folder) {
  return folder + "/timeline.json";
}

std::string make_folder() {
  std::string name = ::testing::TempDir() + "penstock-timeline-XXXXXX";
  EXPECT_NE(mkdtemp(name.data()), nullptr);
  return name;
}

nlohmann::json read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const auto trace = nlohmann::json::parse(text.str(), nullptr, false);
  EXPECT_FALSE(trace.is_discarded()) << text.str();
  return trace;
}

std::vector<nlohmann::json> events_of(const std::string& path, const std::string& name) {
  std::vector<nlohmann::json> found;
  const nlohmann::json trace = read(path);
  for (const auto& event : trace["traceEvents"])
    if (event["name"] == name) found.push_back(event);
  return found;
}

Span span(const std::string& stage, const std::string& lane, uint64_t step = 0) {
  return {stage, lane, 100 * step + 5, 100 * step + 25, step, {}, 0, 0};
}

TEST(Timeline, IsInTheFileWhileTheRunGoes) {
  const std::string path = file_in(make_folder());
  Timeline timeline(3);
  ASSERT_TRUE(timeline.start(path).ok());
  EXPECT_EQ(events_of(path, "process_name")[0]["args"]["name"], "rank 3");
  for (uint64_t step = 0; step < 3; ++step) {
    timeline.add(span("encode", "bucket 0", step));
    timeline.flush();
    EXPECT_EQ(events_of(path, "encode").size(), step + 1);
  }
  timeline.add(span("decode", "bucket 1"));
  ASSERT_TRUE(timeline.stop().ok());
  EXPECT_EQ(events_of(path, "decode").size(), 1u);
  const auto lanes = events_of(path, "thread_name");
  ASSERT_EQ(lanes.size(), 2u);
  EXPECT_EQ(lanes[1]["args"]["name"], "bucket 1");
  EXPECT_EQ(lanes[1]["tid"], events_of(path, "decode")[0]["tid"]);
}

TEST(Timeline, SpansCarryStepSchemeAndBytes) {
  const std::string path = file_in(make_folder());
  Timeline timeline;
  ASSERT_TRUE(timeline.start(path).ok());
  timeline.add({"exchange", "bucket 0", 7, 19, 4, "topk, residual", 4096, 0});
  ASSERT_TRUE(timeline.stop().ok());
  const auto event = events_of(path, "exchange").at(0);
  EXPECT_EQ(event["args"],
            (nlohmann::json{{"step", 4}, {"scheme", "topk, residual"}, {"bytes", 4096}}));
  EXPECT_EQ(event["ts"], 7);
  EXPECT_EQ(event["dur"], 12);
}

TEST(Timeline, OperationsThatOverlapHaveTracksOfTheirOwn) {
  const std::string path = file_in(make_folder());
  Timeline timeline;
  ASSERT_TRUE(timeline.start(path).ok());
  timeline.add_operation("all_reduce", "loss", 10, 20, 90, 4);
  timeline.add_operation("broadcast", "weights", 15, 40, 60, 400);
  ASSERT_TRUE(timeline.stop().ok());
  const auto loss = events_of(path, "all_reduce loss"),
             weights = events_of(path, "broadcast weights");
  ASSERT_EQ(loss.size(), 2u);
  ASSERT_EQ(weights.size(), 2u);
  EXPECT_EQ(loss[0]["ph"], "b");
  EXPECT_EQ(loss[1]["ph"], "e");
  EXPECT_EQ(loss[1]["ts"], 90);
  EXPECT_EQ(loss[0]["args"]["bytes"], 4);
  EXPECT_NE(loss[0]["id"], weights[0]["id"]);
  EXPECT_EQ(events_of(path, "negotiate").size(), 4u);
}

TEST(Timeline, OfAProcessThatIsKilledIsWhole) {
  const std::string path = file_in(make_folder());
  const pid_t child = fork();
  if (child == 0) {
    Timeline timeline;
    if (!timeline.start(path).ok()) _exit(1);
    for (uint64_t step = 0; step < 500; ++step) timeline.add(span("encode", "bucket 0", step));
    timeline.flush();
    (void)raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(events_of(path, "encode").size(), 500u);
}

TEST(Timeline, OnAFullDiskWarnsOnceAndLeavesAWholeFile) {
  const std::string folder = make_folder();
  if (mount("none", folder.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "a small file system needs the right to mount";
  std::vector<std::string> warnings;
  {
    Timeline timeline;
    timeline.set_warning([&](std::string_view text) { warnings.emplace_back(text); });
    ASSERT_TRUE(timeline.start(file_in(folder)).ok());
    for (uint64_t step = 0; step < 4000; ++step) {
      timeline.add(span("encode", "bucket 0", step));
      if (step % 100 == 0) timeline.flush();
    }
    EXPECT_FALSE(timeline.enabled());
    EXPECT_TRUE(timeline.stop().ok());
  }
  const size_t written = events_of(file_in(folder), "encode").size();
  EXPECT_EQ(umount(folder.c_str()), 0);
  EXPECT_GT(written, 100u);
  EXPECT_LT(written, 4000u);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("No space left on device"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find(folder), std::string::npos) << warnings[0];
}

TEST(Timeline, InAFolderThatIsNotThereIsRefused) {
  Timeline timeline;
  const Status status = timeline.start("/no/such/folder/timeline.json");
  EXPECT_EQ(status.code(), Code::not_found);
  EXPECT_FALSE(timeline.enabled());
}

TEST(Timeline, NamesThatAreNoUtf8AreReplaced) {
  const std::string path = file_in(make_folder());
  Timeline timeline;
  ASSERT_TRUE(timeline.start(path).ok());
  timeline.add(span("encode", "layer \xff\"quoted\""));
  ASSERT_TRUE(timeline.stop().ok());
  EXPECT_EQ(events_of(path, "encode").size(), 1u);
}

TEST(Timeline, StartedAgainWritesTheNextFile) {
  const std::string first = file_in(make_folder()), second = file_in(make_folder());
  Timeline timeline;
  ASSERT_TRUE(timeline.start(first).ok());
  timeline.add(span("encode", "bucket 0"));
  ASSERT_TRUE(timeline.start(second).ok());
  timeline.add(span("decode", "bucket 0"));
  ASSERT_TRUE(timeline.stop().ok());
  timeline.add(span("decode", "bucket 0"));  // off
  EXPECT_EQ(events_of(first, "encode").size(), 1u);
  EXPECT_EQ(events_of(second, "decode").size(), 1u);
  EXPECT_EQ(events_of(second, "thread_name").size(), 1u);
}

}  // namespace
}  // namespace penstock::timeline_test
