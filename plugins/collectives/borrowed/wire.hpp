// The requests of a channel over frames. A send copies its data into a frame at once; received data
// stays in its frame until a receive takes it.
#pragma once

#include "world.hpp"

#include <collectives/wire.hpp>

#include <deque>

namespace penstock::borrowed {

using collectives::Ended;
using collectives::Event;
using collectives::Ticket;

class Wire : public collectives::Wire {
 public:
  // `members`: the channel's ranks as ranks of the world, ascending.
  Wire(std::shared_ptr<World> world, uint64_t group, std::vector<uint32_t> members);
  ~Wire() override { world_->remove(group_); }

  // Waits until all members have opened the group. DEADLINE_EXCEEDED or PEER_FAILED name a rank
  // that did not open it.
  void meet(uint64_t timeout_us);

  void send(Ticket& ticket, const Event& event, uint64_t match, const void* data) override;
  void receive(Ticket& ticket, const Event& event, uint64_t match, void* data) override;
  const std::vector<Ended>& test() override;
  [[noreturn]] void fail(const Ended& ended) const override;
  void cancel(const Ticket& ticket) override { take_back(&ticket); }
  void cancel_all() override { take_back(nullptr); }

  // Called by the world. `from` is a rank of the world.
  void came(uint32_t from, Frame frame);
  void sent(size_t request);
  void give_up_on_gone();

 private:
  struct Request {
    Ticket* ticket;  // null: free
    Event event;
    uint64_t match;
    void* data;  // the buffer of a receive; null for a send
  };
  // Receives and frames of one member under one match number, in order. One vector is always empty.
  struct Queue {
    std::vector<size_t> posted;  // requests
    std::vector<Frame> came;
  };
  Queue& queue(uint32_t peer, uint64_t match) { return queues_[match << 32 | peer]; }
  size_t take_request(const Request& request);
  void end(size_t request, uint64_t bytes, int code);
  void deliver(size_t request, Frame frame);
  void take_back(const Ticket* ticket);  // null: of all tickets
  void refuse_gone(uint32_t peer) const;

  const std::shared_ptr<World> world_;
  const uint64_t group_;
  const std::vector<uint32_t> members_;
  std::vector<bool> said_hello_;  // by member
  std::deque<Request> requests_;
  std::vector<size_t> free_;
  std::unordered_map<uint64_t, Queue> queues_;
  std::vector<Ended> ended_;  // ended since the last test; tests of other channels add to it
  std::vector<Ended> tested_;
};

}  // namespace penstock::borrowed
