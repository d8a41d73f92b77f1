// The requests of a channel over a communicator of MPI.
#pragma once

#include "library.hpp"

#include <collectives/wire.hpp>

#include <cstddef>
#include <unordered_map>

namespace penstock::mpi {

using collectives::Ended;
using collectives::Event;
using collectives::Kind;
using collectives::Ticket;

class Wire : public collectives::Wire {
 public:
  // `native`: what MPI has an operation for is carried by that. MPI's matching is by order then,
  // and sums depend on its choice of algorithm.
  Wire(MPI_Comm communicator, bool native) : communicator_(communicator), native_(native) {}
  // Frees the communicator, with those of the other members.
  void close() { MPI_Comm_free(&communicator_); }

  void send(Ticket& ticket, const Event& event, uint64_t match, const void* data) override;
  void receive(Ticket& ticket, const Event& event, uint64_t match, void* data) override;
  uint32_t carry(Ticket& ticket) override;
  const std::vector<Ended>& test() override;
  [[noreturn]] void fail(const Ended& ended) const override;
  void cancel(const Ticket& ticket) override;
  void cancel_all() override;

 private:
  struct Owner {
    Ticket* ticket;
    Event event;
    bool cancelled;
  };
  // Takes over a request that MPI has just made.
  void add(Ticket& ticket, const Event& event, MPI_Request request);
  void cancel(size_t slot);
  void forget(size_t slot);

  MPI_Comm communicator_;
  const bool native_;
  std::unordered_map<const Ticket*, std::vector<int>> native_counts_;  // MPI goes on reading them
  // Without gaps: what has ended is replaced by the last.
  std::vector<MPI_Request> requests_;
  std::vector<Owner> owners_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::vector<Ended> ended_;
};

}  // namespace penstock::mpi
