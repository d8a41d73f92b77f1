#include "core/trace/log.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace penstock::log_test {
namespace {

struct Captured {
  std::vector<std::string> lines;
  Log::Sink sink() {
    return [this](LogLevel, std::string_view line) { lines.emplace_back(line); };
  }
};

TEST(Log, LinesCarryLevelRankAndComponent) {
  Captured captured;
  Log log(LogLevel::info, captured.sink());
  log.write(LogLevel::warning, "engine", "bucket 3 is late");
  log.set_rank(1, 4);
  log.write(LogLevel::info, "compressor/topk", "ready");
  EXPECT_EQ(captured.lines, (std::vector<std::string>{"warning engine: bucket 3 is late",
                                                      "info [1/4] compressor/topk: ready"}));
}

TEST(Log, LessUrgentLinesThanTheLevelAreDropped) {
  Captured captured;
  Log log(LogLevel::warning, captured.sink());
  log.write(LogLevel::info, "engine", "hidden");
  EXPECT_FALSE(log.shows(LogLevel::info));
  log.set_level(LogLevel::debug);
  log.write(LogLevel::debug, "engine", "shown");
  EXPECT_EQ(captured.lines, std::vector<std::string>{"debug engine: shown"});
}

TEST(Log, WhatManySayInTheSameWordsIsWrittenOnce) {
  Captured captured;
  Log log(LogLevel::warning, captured.sink());
  for (const char* words : {"too small", "too small", "too large", "too small"})
    log.write_once(LogLevel::warning, "fit", words);
  log.write(LogLevel::warning, "fit", "too small");
  EXPECT_EQ(captured.lines,
            (std::vector<std::string>{"warning fit: too small", "warning fit: too large",
                                      "warning fit: too small"}));
}

TEST(Log, AMessageStaysOneLineWithoutControlCharacters) {
  Captured captured;
  Log log(LogLevel::debug, captured.sink());
  log.write(LogLevel::error, "a\nb", "first\nerror forged: \x1b[31mred {} %v");
  EXPECT_EQ(captured.lines,
            std::vector<std::string>{"error a b: first error forged: \\x1b[31mred {} %v"});
}

TEST(Log, ManyThreadsWriteWholeLines) {
  Captured captured;
  Log log(LogLevel::debug, captured.sink());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&log, t] {
      for (int i = 0; i < 50; ++i) {
        log.set_rank(static_cast<uint32_t>(t), 4);
        log.write(LogLevel::debug, "thread", "line");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(captured.lines.size(), 200u);
}

TEST(Log, LevelsAreKnownByName) {
  EXPECT_EQ(log_level_from_name("debug"), LogLevel::debug);
  EXPECT_EQ(log_level_from_name("info"), LogLevel::info);
  EXPECT_EQ(log_level_from_name("error"), LogLevel::error);
  EXPECT_EQ(log_level_from_name("loud"), LogLevel::warning);
}

}  // namespace
}  // namespace penstock::log_test
