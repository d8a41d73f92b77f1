// Ranks that meet at a known address: late ranks, and ranks of two runs at one address.
#include "core/control/control.hpp"

#include "core/base/clock.hpp"
#include "core/control/socket.hpp"
#include "core/control/testing.hpp"

#include <latch>
#include <mutex>

namespace penstock::arrival_test {
namespace {

using testing::contains;
using testing::kLongUs;
using testing::quick_options;

Control::Options at_one_place(uint32_t rank, uint16_t port, uint64_t deadline_us) {
  Control::Options options = quick_options(rank, 2);
  options.deadline_us = deadline_us;
  options.place = {"127.0.0.1", port, "token"};
  return options;
}

uint16_t free_port() {
  return control::listen_on("127.0.0.1").value().port;
}

TEST(ControlArrival, ASecondRankZeroIsToldToAllOfAYoungRun) {
  const uint16_t port = free_port();
  std::latch are_there(2);  // otherwise both ranks 0 may end before rank 1 has come
  const auto run = [&](uint32_t rank, bool is_second) {
    Result<std::unique_ptr<Control>> control = Control::start(at_one_place(rank, port, kLongUs));
    if (!is_second) are_there.count_down();
    return control.ok() ? (*control)->get("never", kLongUs).status() : control.status();
  };
  std::vector<std::future<Status>> ranks;
  for (const uint32_t rank : {0u, 1u})
    ranks.push_back(std::async(std::launch::async, run, rank, false));
  are_there.wait();
  ranks.push_back(std::async(std::launch::async, run, 0u, true));
  for (auto& rank : ranks) {
    const Status status = rank.get();
    EXPECT_TRUE(contains(status.message(), "rank 0 is there twice")) << status.message();
    EXPECT_TRUE(contains(status.message(), "PENSTOCK_PORT")) << status.message();
  }
}

TEST(ControlArrival, ARunThatIsOlderThanItsDeadlineOutlivesASecondRankZero) {
  constexpr uint64_t kDeadlineUs = 2'000'000;
  const uint16_t port = free_port();
  std::latch are_there(2);
  std::promise<std::string> warned;
  std::promise<void> over;
  const std::shared_future<void> is_over = over.get_future().share();
  const auto run = [&](uint32_t rank) {
    Control::Options options = at_one_place(rank, port, kDeadlineUs);
    if (rank == 0)
      options.on_warning = [&](std::string text) { warned.set_value(std::move(text)); };
    Result<std::unique_ptr<Control>> control = Control::start(std::move(options));
    are_there.count_down();
    if (!control.ok()) return control.status();
    is_over.wait();
    return (*control)->gather("still there", "", {}, kLongUs).status();
  };
  std::vector<std::future<Status>> ranks;
  for (const uint32_t rank : {0u, 1u}) ranks.push_back(std::async(std::launch::async, run, rank));
  are_there.wait();
  std::this_thread::sleep_for(std::chrono::microseconds(kDeadlineUs + 1'000'000));
  const Status second = Control::start(at_one_place(0, port, kDeadlineUs)).status();
  EXPECT_EQ(second.code(), Code::failed_precondition);
  EXPECT_TRUE(contains(second.message(), "rank 0 is there twice")) << second.message();
  std::future<std::string> warning = warned.get_future();
  const bool has_warned = warning.wait_for(std::chrono::seconds(30)) == std::future_status::ready;
  over.set_value();
  ASSERT_TRUE(has_warned);
  EXPECT_TRUE(contains(warning.get(), "this run goes on"));
  for (auto& rank : ranks) EXPECT_TRUE(rank.get().ok());
}

TEST(ControlArrival, ALateRankIsWaitedForWithWarningsOnBothSides) {
  const uint16_t port = free_port();
  std::mutex mutex;
  std::vector<std::string> warnings[2];
  const auto run = [&](uint32_t rank) {
    Control::Options options = at_one_place(rank, port, 4'000'000);
    options.rendezvous_us = kLongUs;
    options.warning_us = 200'000;
    options.on_warning = [&, rank](std::string text) {
      const std::lock_guard lock(mutex);
      warnings[rank].push_back(std::move(text));
    };
    return Control::start(std::move(options)).status();
  };
  for (const uint32_t late : {0u, 1u}) {
    auto other = std::async(std::launch::async, run, 1 - late);
    const auto has_warned_twice = [&] {
      const std::lock_guard lock(mutex);
      return warnings[1 - late].size() >= 2;
    };
    const uint64_t end_us = now_us() + kLongUs;
    while (!has_warned_twice() && now_us() < end_us)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(run(late).ok());
    EXPECT_TRUE(other.get().ok());
    const std::lock_guard lock(mutex);
    ASSERT_GE(warnings[1 - late].size(), 2u);
    const char* expected = late == 0 ? "rank 1 has waited" : "rank 1 has not come to the run";
    EXPECT_TRUE(contains(warnings[1 - late].front(), expected)) << warnings[1 - late].front();
    for (auto& each : warnings) each.clear();
  }
}

}  // namespace
}  // namespace penstock::arrival_test
