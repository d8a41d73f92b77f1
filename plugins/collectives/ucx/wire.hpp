// The requests of a channel over UCX: tagged messages on the workers that all channels share.
#pragma once

#include "world.hpp"

#include <collectives/wire.hpp>

#include <deque>

namespace penstock::ucx {

using collectives::Ended;
using collectives::Event;
using collectives::Kind;
using collectives::Ticket;

class Wire : public collectives::Wire {
 public:
  // `members`: the channel's ranks as ranks of the world. The world must outlive the wire.
  Wire(World& world, uint64_t number, std::vector<uint32_t> members)
      : world_(world), number_(number), members_(std::move(members)) {}

  void send(Ticket& ticket, const Event& event, uint64_t match, const void* data) override;
  void receive(Ticket& ticket, const Event& event, uint64_t match, void* data) override;
  const std::vector<Ended>& test() override;
  [[noreturn]] void fail(const Ended& ended) const override;
  void cancel(const Ticket& ticket) override;
  void cancel_all() override;

  // Whether UCX still has requests of this channel, and so may use the memory of its messages.
  bool is_used() const;

 private:
  struct Slot {
    Wire* wire;
    Ticket* ticket;  // null: free, or given up while UCX still holds the request
    Event event;
    void* request;
  };
  void tell_memory(const Event& event, ucp_request_param_t& param) const;
  Slot& take_slot(Ticket& ticket, const Event& event);
  void begun(Slot& slot, void* request);
  void end(Slot& slot, ucs_status_t status, uint64_t bytes);
  void cancel(const Slot& slot);
  void give_up_on_failed();

  World& world_;
  const uint64_t number_;
  const std::vector<uint32_t> members_;
  std::deque<Slot> slots_;  // UCX holds the slots' addresses
  std::vector<Slot*> free_;
  uint32_t n_failed_ = 0;     // ranks that are known to be gone
  std::vector<Ended> ended_;  // ended since the last test; tests of other channels add to it
  std::vector<Ended> tested_;
};

}  // namespace penstock::ucx
