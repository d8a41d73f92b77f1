// Control when ranks die, stop, never come, or are not ranks at all. Victims are real processes.
#include "core/control/control.hpp"

#include "core/base/clock.hpp"
#include "core/control/server.hpp"
#include "core/control/socket.hpp"
#include "core/control/testing.hpp"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

namespace penstock::failure_test {
namespace {

using testing::AddressBoard;
using testing::contains;
using testing::kLongUs;
using testing::quick_options;

// Waits for the next frame of a connection.
control::FrameKind next_kind(control::Link& link) {
  while (true) {
    Result<std::optional<std::string>> body = link.next();
    if (!body.ok()) return {};
    const auto kind = static_cast<control::FrameKind>(
        body->has_value() ? control::Reader(**body).u8() : uint8_t{0});
    if (kind == control::FrameKind::datagrams) continue;  // an invitation
    if (body->has_value()) return kind;
    if (!control::wait_for(link.descriptor(), false, kLongUs) || !link.receive().ok()) return {};
  }
}

// A pipe that carries rank 0's address, one line per reader.
struct AddressPipe {
  AddressPipe() { EXPECT_EQ(pipe(ends), 0); }
  ~AddressPipe() {
    close(ends[0]);
    close(ends[1]);
  }
  void write_line(const std::string& text) const {
    const std::string line = text + "\n";
    EXPECT_EQ(write(ends[1], line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  std::string read_line() const {
    std::string line;
    for (char byte = 0; read(ends[0], &byte, 1) == 1 && byte != '\n';) line += byte;
    return line;
  }
  int ends[2];
};

// A rank in a separate process: it joins, makes a note, meets the other ranks and waits to be
// killed. Fork before this process has threads.
pid_t fork_victim(Control::Options options) {
  const pid_t child = fork();
  if (child != 0) return child;
  {
    Result<std::unique_ptr<Control>> control = Control::start(std::move(options));
    if (!control.ok()) _exit(1);
    (*control)->note("backward of step 3");
    (void)(*control)->gather("together", "", {}, kLongUs);
    (void)(*control)->get("never", kLongUs * 100);
  }
  _exit(0);
}

// Ranks 0 and 1 live in this process, and rank 2 is the victim. Returns the errors of ranks 0 and
// 1.
std::vector<Status> outcome_after(int signal, uint64_t deadline_us) {
  AddressPipe pipe;
  const auto adjusted = [&](uint32_t rank) {
    Control::Options options = quick_options(rank, 3);
    options.deadline_us = deadline_us;
    return options;
  };
  Control::Options options = adjusted(2);
  options.exchange_address = [&](std::string) -> Result<std::string> { return pipe.read_line(); };
  const pid_t victim = fork_victim(std::move(options));
  AddressBoard board;
  std::vector<Status> waits(2);
  std::vector<std::promise<Status>> announced(2);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Control::Options options = adjusted(rank);
      options.exchange_address = [&, rank](std::string mine) {
        if (rank == 0) pipe.write_line(mine);
        return board.exchange(rank)(mine);
      };
      options.on_abort = [&, rank](Status reason) { announced[rank].set_value(std::move(reason)); };
      Result<std::unique_ptr<Control>> control = Control::start(std::move(options));
      ASSERT_TRUE(control.ok()) << control.status().message();
      const Status together = (*control)->gather("together", "", {}, kLongUs).status();
      ASSERT_TRUE(together.ok()) << together.message();
      if (rank == 0) {
        EXPECT_EQ(kill(victim, signal), 0);
      }
      waits[rank] = (*control)->gather("forever", "", {}, kLongUs * 100).status();
      EXPECT_EQ(announced[rank].get_future().get().message(), waits[rank].message());
    });
  }
  for (std::thread& thread : threads) thread.join();
  kill(victim, SIGKILL);
  EXPECT_EQ(waitpid(victim, nullptr, 0), victim);
  return waits;
}

TEST(ControlFailure, AKilledRankIsNoticedAtOnceAndNamedWithWhatItLastDid) {
  const uint64_t begin_us = now_us();
  for (const Status& status : outcome_after(SIGKILL, 60'000'000)) {
    EXPECT_EQ(status.code(), Code::peer_failed);
    EXPECT_TRUE(contains(status.message(), "rank 2 failed: its control connection"))
        << status.message();
    EXPECT_TRUE(contains(status.message(), "it last did: backward of step 3")) << status.message();
  }
  // The closed connection shows the failure, long before the deadline of 60 s.
  EXPECT_LT(now_us() - begin_us, 30'000'000u);
}

TEST(ControlFailure, AStoppedRankIsNoticedAfterTheDeadline) {
  for (const Status& status : outcome_after(SIGSTOP, 1'000'000)) {
    EXPECT_EQ(status.code(), Code::peer_failed);
    EXPECT_TRUE(contains(status.message(), "rank 2 failed: it has been silent for 1."))
        << status.message();
    EXPECT_TRUE(contains(status.message(), "it last did: backward of step 3")) << status.message();
  }
}

// Rank 0 is the victim: its server dies or stops with it.
std::vector<Status> outcome_without_server(int signal, uint64_t deadline_us) {
  AddressPipe pipe;
  const auto adjusted = [&](uint32_t rank) {
    Control::Options options = quick_options(rank, 3);
    options.deadline_us = deadline_us;
    return options;
  };
  Control::Options options = adjusted(0);
  options.exchange_address = [&](std::string mine) -> Result<std::string> {
    pipe.write_line(mine);
    pipe.write_line(mine);
    return mine;
  };
  const pid_t victim = fork_victim(std::move(options));
  std::mutex mutex;
  std::vector<Status> waits(2);
  std::vector<std::thread> threads;
  std::atomic<int> together = 0;
  for (uint32_t index = 0; index < 2; ++index) {
    threads.emplace_back([&, index] {
      Control::Options options = adjusted(index + 1);
      options.exchange_address = [&](std::string) -> Result<std::string> {
        const std::lock_guard lock(mutex);
        return pipe.read_line();
      };
      Result<std::unique_ptr<Control>> control = Control::start(std::move(options));
      ASSERT_TRUE(control.ok()) << control.status().message();
      ASSERT_TRUE((*control)->gather("together", "", {}, kLongUs).ok());
      if (++together == 2) {
        EXPECT_EQ(kill(victim, signal), 0);
      }
      waits[index] = (*control)->get("forever", kLongUs * 100).status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  kill(victim, SIGKILL);
  EXPECT_EQ(waitpid(victim, nullptr, 0), victim);
  return waits;
}

TEST(ControlFailure, WhenRankZeroIsKilledTheOthersNameIt) {
  for (const Status& status : outcome_without_server(SIGKILL, 60'000'000)) {
    EXPECT_EQ(status.code(), Code::peer_failed);
    EXPECT_TRUE(contains(status.message(), "rank 0 failed: its control connection"))
        << status.message();
  }
}

TEST(ControlFailure, WhenRankZeroIsStoppedTheOthersNameItAfterTheDeadline) {
  for (const Status& status : outcome_without_server(SIGSTOP, 1'000'000)) {
    EXPECT_EQ(status.code(), Code::peer_failed);
    EXPECT_TRUE(
        contains(status.message(), "rank 0 failed: its control server has been silent for 1."))
        << status.message();
  }
}

// The error may end the process of rank 0, and with it the server. The messages to the other ranks
// must have been sent before.
TEST(ControlFailure, RankZeroHearsOfAFailureAfterAllOthers) {
  for (int round = 0; round < 50; ++round) {
    control::State::Options options{.size = 3, .deadline_us = kLongUs, .pulse_us = kLongUs};
    options.start_us = now_us();
    Result<std::unique_ptr<control::Server>> server =
        control::Server::start(options, {"token", 0, 3}, "127.0.0.1");
    ASSERT_TRUE(server.ok());
    std::vector<control::Link> links;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      Result<control::Handle> socket = control::connect_to("127.0.0.1", (*server)->port(), kLongUs);
      ASSERT_TRUE(socket.ok());
      links.emplace_back(std::move(*socket), control::kMaxFrameBytes);
      links.back().send(control::encode(control::Hello{"token", rank, 3}));
      ASSERT_TRUE(links.back().flush().ok());
      ASSERT_EQ(next_kind(links[rank]), control::FrameKind::welcome);
    }
    for (control::Link& link : links) ASSERT_EQ(next_kind(link), control::FrameKind::ready);
    links[1] = std::move(links[2]);  // ends the connection of rank 1
    links.pop_back();
    ASSERT_EQ(next_kind(links[0]), control::FrameKind::aborted);
    EXPECT_TRUE(control::wait_for(links[1].descriptor(), false, 0)) << "round " << round;
  }
}

TEST(ControlFailure, ARankThatNeverComesIsNamedOnTheOthers) {
  AddressBoard board;
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Control::Options options = quick_options(rank, 4);
      options.deadline_us = 2'000'000;
      options.exchange_address = board.exchange(rank);
      const Status status = Control::start(std::move(options)).status();
      EXPECT_EQ(status.code(), Code::deadline_exceeded);
      EXPECT_TRUE(contains(status.message(), "ranks 2 and 3 did not connect")) << status.message();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ControlFailure, AWrongWorldSizeIsRefusedAndARankTwiceIsToldToAll) {
  AddressBoard board;
  const auto start = [&](uint32_t rank, uint32_t size) {
    Control::Options options = quick_options(rank, size);
    options.deadline_us = kLongUs;
    options.exchange_address = board.exchange(rank);
    return Control::start(std::move(options)).status();
  };
  Status rank_0;
  std::thread first([&] { rank_0 = start(0, 3); });
  const Status size = start(1, 2);
  EXPECT_EQ(size.code(), Code::failed_precondition);
  EXPECT_TRUE(contains(size.message(), "rank 1 counts 2 ranks, rank 0 counts 3")) << size.message();
  // Two processes claim to be rank 1, and either may be the right one.
  std::vector<Status> twice(2);
  std::thread one([&] { twice[0] = start(1, 3); });
  std::thread other([&] { twice[1] = start(1, 3); });
  one.join();
  other.join();
  first.join();
  for (const Status& status : {rank_0, twice[0], twice[1]})
    EXPECT_TRUE(contains(status.message(), "rank 1 is there twice, process ")) << status.message();
}

// A server that refuses a rank sends the reason and closes the connection. Both may have arrived
// when the rank reads.
TEST(ControlFailure, ARefusalIsHeardAlsoWhenTheConnectionEndsWithIt) {
  constexpr int kTrials = 200;
  Result<control::Listener> listener = control::listen_on("127.0.0.1");
  ASSERT_TRUE(listener.ok());
  std::atomic<bool> over = false;
  std::atomic<int> accepted = 0;
  std::thread server([&] {
    std::vector<control::Handle> sockets;
    while (!over) {
      control::Handle socket = control::accept_one(listener->socket);
      if (!socket.valid()) continue;
      const std::string frame =
          control::Writer(control::FrameKind::rejected).text("go away").frame();
      EXPECT_EQ(::send(socket.get(), frame.data(), frame.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(frame.size()));
      ::shutdown(socket.get(), SHUT_WR);
      sockets.push_back(std::move(socket));
      ++accepted;
    }
  });
  for (int trial = 0; trial < kTrials; ++trial) {
    Control::Options options = quick_options(1, 2);
    options.exchange_address = [&](std::string) -> Result<std::string> {
      return fmt::format("{}|127.0.0.1|{}", *control::make_token(), listener->port);
    };
    const Status refused = Control::start(std::move(options)).status();
    EXPECT_EQ(refused.code(), Code::failed_precondition) << refused.message();
    EXPECT_TRUE(contains(refused.message(), "go away")) << refused.message();
  }
  over = true;
  server.join();
  EXPECT_EQ(accepted, kTrials) << "a rank that was sent away came back";
}

TEST(ControlFailure, GarbageOnThePortNeitherCrashesNorDelaysTheServer) {
  AddressBoard board;
  std::vector<std::thread> threads;
  std::vector<control::Link> strangers;
  std::atomic<int> aborts = 0;
  const auto run = [&](uint32_t rank) {
    Control::Options options = quick_options(rank, 2);
    options.exchange_address = board.exchange(rank);
    options.on_abort = [&](Status) { ++aborts; };
    Result<std::unique_ptr<Control>> control = Control::start(std::move(options));
    ASSERT_TRUE(control.ok()) << control.status().message();
    for (int round = 0; round < 10; ++round)
      ASSERT_TRUE((*control)->gather("x", "y", {}, kLongUs).ok());
    (*control)->stop();
  };
  threads.emplace_back([&] { run(0); });
  const std::string address = board.address();
  const auto port = static_cast<uint16_t>(std::stoul(address.substr(address.rfind('|') + 1)));
  std::mt19937 random(7);
  for (int i = 0; i < 40; ++i) {
    Result<control::Handle> socket = control::connect_to("127.0.0.1", port, 5'000'000);
    ASSERT_TRUE(socket.ok()) << socket.status().message();
    std::string bytes;
    if (i % 4 == 1) bytes = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    if (i % 4 == 2)
      bytes = control::encode(control::Hello{std::string(32, '0'), 1, 2});  // wrong token
    if (i % 4 == 3) {
      for (int j = 0; j < 300; ++j) bytes += static_cast<char>(random());
    }
    control::Link link(std::move(*socket), 1024);
    link.send(bytes);
    (void)link.flush();
    if (bytes.empty()) {
      strangers.push_back(std::move(link));  // says nothing and stays
      continue;
    }
    // The server does not answer these connections but closes them.
    ASSERT_TRUE(control::wait_for(link.descriptor(), false, kLongUs));
    EXPECT_FALSE(link.receive().ok());
  }
  threads.emplace_back([&] { run(1); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(aborts, 0);
}

TEST(ControlFailure, AMemberThatSendsGarbageIsAFailedRank) {
  AddressBoard board;
  Status seen;
  std::thread first([&] {
    Control::Options options = quick_options(0, 2);
    options.exchange_address = board.exchange(0);
    Result<std::unique_ptr<Control>> control = Control::start(std::move(options));
    // Rank 1 may fail before the client of rank 0 exists. The client learns of the failure anyway.
    seen = control.ok() ? (*control)->get("never", kLongUs).status() : control.status();
  });
  const std::string address = board.address();
  const auto port = static_cast<uint16_t>(std::stoul(address.substr(address.rfind('|') + 1)));
  control::Link link(std::move(control::connect_to("127.0.0.1", port, 5'000'000).value()), 1024);
  link.send(control::encode(control::Hello{address.substr(0, address.find('|')), 1, 2}));
  link.send(control::Writer(control::FrameKind::meet).u64(1).u64(UINT64_MAX).frame());
  ASSERT_TRUE(link.flush().ok());
  first.join();
  EXPECT_EQ(seen.code(), Code::peer_failed);
  EXPECT_TRUE(contains(seen.message(), "rank 1 failed: control frame of rank 1")) << seen.message();
}

}  // namespace
}  // namespace penstock::failure_test
