// Ranks as threads of one process and a wire between them, for tests of the algorithms. The wire
// copies data only when both requests are posted, so a sanitizer finds a rank that uses a buffer
// too early or too long.
#pragma once

#include <collectives/direct.hpp>
#include <collectives/messages.hpp>
#include <testing/messages.hpp>

#include <penstock/error.hpp>

#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace penstock::collectives {

class ThreadWire;

// The requests without a counterpart. All wires of a group share the board.
struct Board {
  struct Request {
    ThreadWire* owner;
    Ticket* ticket;
    Event event;
    uint64_t match;
    uint32_t from, to;
    char* data;
  };
  std::mutex mutex;  // guards the lists below, and the ended requests of every wire
  std::list<Request> sends, receives;
};

class ThreadWire : public Wire {
 public:
  ThreadWire(Board& board, uint32_t rank) : board_(board), rank_(rank) {}

  void send(Ticket& ticket, const Event& event, uint64_t match, const void* data) override {
    // The wire only reads these bytes.
    char* const bytes = const_cast<char*>(static_cast<const char*>(data));
    const std::lock_guard lock(board_.mutex);
    post({this, &ticket, event, match, rank_, event.peer, bytes}, board_.sends, board_.receives);
  }
  void receive(Ticket& ticket, const Event& event, uint64_t match, void* data) override {
    const std::lock_guard lock(board_.mutex);
    post({this, &ticket, event, match, event.peer, rank_, static_cast<char*>(data)},
         board_.receives, board_.sends);
  }
  const std::vector<Ended>& test() override {
    tested_.clear();
    const std::lock_guard lock(board_.mutex);
    std::swap(tested_, ended_);
    return tested_;
  }
  [[noreturn]] void fail(const Ended& ended) const override {
    throw std::runtime_error(ended.code == kTruncated ? "there was too little room"
                                                      : "it was taken back");
  }
  void cancel(const Ticket& ticket) override {
    take_back([&](const Board::Request& request) { return request.ticket == &ticket; });
  }
  void cancel_all() override {
    take_back([](const Board::Request&) { return true; });
  }

 private:
  static constexpr int kTruncated = 1;
  static constexpr int kTakenBack = 2;

  void post(const Board::Request& mine, std::list<Board::Request>& kept,
            std::list<Board::Request>& others) {
    for (auto other = others.begin(); other != others.end(); ++other) {
      if (other->from != mine.from || other->to != mine.to || other->match != mine.match) continue;
      const bool receives = is_receive(mine.event.kind);
      deliver(receives ? *other : mine, receives ? mine : *other);
      others.erase(other);
      return;
    }
    kept.push_back(mine);
  }
  static void deliver(const Board::Request& sent, const Board::Request& received) {
    const uint64_t bytes = std::min(sent.event.bytes, received.event.bytes);
    if (bytes != 0) std::memcpy(received.data, sent.data, bytes);
    const int code = sent.event.bytes > received.event.bytes ? kTruncated : 0;
    sent.owner->ended_.push_back({sent.ticket, sent.event, 0, 0});
    received.owner->ended_.push_back({received.ticket, received.event, bytes, code});
  }
  template <typename Which>
  void take_back(Which&& which) {
    const std::lock_guard lock(board_.mutex);
    board_.receives.remove_if([&](const Board::Request& request) {
      if (request.owner != this || !which(request)) return false;
      ended_.push_back({request.ticket, request.event, 0, kTakenBack});
      return true;
    });
  }

  Board& board_;
  const uint32_t rank_;
  std::vector<Ended> ended_;
  std::vector<Ended> tested_;
};

inline penstock_message message_of(uint32_t pattern, uint64_t tag,
                                   uint32_t dtype = PENSTOCK_FLOAT32) {
  return test::empty_message(pattern, tag, dtype, 60'000'000);
}

// One rank in its thread.
struct Rank {
  Channel channel;
  uint32_t rank, size;

  // Carries a message to its end. Returns the error as text, or an empty text.
  std::string exchange(const penstock_message& message) {
    Ticket* ticket = nullptr;
    std::string wrong;
    try {
      ticket = submit(channel, message);
      while (!progress(*ticket)) std::this_thread::yield();
    } catch (const sdk::Error& error) {
      wrong = sdk::text(error.code(), ": ", error.what());
    }
    if (ticket != nullptr) release(*ticket);
    return wrong;
  }
};

// Runs `body` as each of `size` ranks of one host.
inline void run_ranks(uint32_t size, const Sizes& sizes,
                      const std::function<std::unique_ptr<Wire>(Board&, uint32_t)>& make_wire,
                      const std::function<void(Rank&)>& body) {
  Board board;
  std::vector<Rank> ranks(size);
  std::vector<std::thread> threads;
  const std::vector<uint32_t> hosts(size);
  for (uint32_t r = 0; r < size; ++r) {
    penstock_group group{};
    group.hosts = hosts.data();
    group.rank = r;
    group.size = size;
    set_up(ranks[r].channel, group, sizes);
    ranks[r].channel.wire = make_wire(board, r);
    ranks[r].rank = r;
    ranks[r].size = size;
  }
  for (Rank& rank : ranks) threads.emplace_back([&] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace penstock::collectives
