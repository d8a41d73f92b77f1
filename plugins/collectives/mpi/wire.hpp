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
  // `native`: a message for which MPI has a collective operation is carried by this operation. MPI
  // then matches by order, and sums depend on its choice of algorithm.
  Wire(MPI_Comm communicator, bool native) : communicator_(communicator), native_(native) {}
  // Frees the communicator. Collective: the other members must call it too.
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
  // Takes ownership of a request that MPI has just made.
  void add(Ticket& ticket, const Event& event, MPI_Request request);
  void cancel(size_t slot);
  void forget(size_t slot);

  MPI_Comm communicator_;
  const bool native_;
  // MPI reads the counts until the message ends
  std::unordered_map<const Ticket*, std::vector<int>> native_counts_;
  // These arrays have no gaps: the last request takes the place of a request that ended.
  std::vector<MPI_Request> requests_;
  std::vector<Owner> owners_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::vector<Ended> ended_;
};

}  // namespace penstock::mpi
