// A wire whose ranks are threads of one process, for tests of the algorithms over it. Nothing is
// copied before both ends have come: who uses a buffer too early or too long is seen by a
// sanitizer.
#pragma once

#include <collectives/ticket.hpp>

#include <cstring>
#include <list>
#include <mutex>
#include <stdexcept>

namespace penstock::collectives {

class ThreadWire;

// Where requests that have not met lie; shared by all wires of a group.
struct Board {
  struct Request {
    ThreadWire* owner;
    Ticket* ticket;
    Event event;
    uint64_t match;
    uint32_t from, to;
    char* data;
  };
  std::mutex mutex;  // guards all that follows, and what has ended on every wire
  std::list<Request> sends, receives;
};

class ThreadWire : public Wire {
 public:
  ThreadWire(Board& board, uint32_t rank) : board_(board), rank_(rank) {}

  void send(Ticket& ticket, const Event& event, uint64_t match, const void* data) override {
    // Only read.
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

}  // namespace penstock::collectives
