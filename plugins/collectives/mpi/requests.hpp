// The requests of a channel. One call of MPI asks after all of them, however many messages are in
// flight: a call that finds nothing drives MPI's progress and may yield the core, so asking for
// each message apart costs both times the number of messages.
#pragma once

#include "library.hpp"

#include <cstddef>
#include <vector>

namespace penstock::mpi {

struct Ticket;

enum class Kind : uint8_t {
  kOpeningOut,
  kOpeningIn,
  kOut,
  kIn,
  kResultOut,
  kResultIn,
  kGrantOut,
  kGrantIn,
  kNative
};

// What a request is for.
struct Event {
  Kind kind;
  uint32_t peer;
  uint64_t segment;
  uint64_t bytes;  // expected, for receives
};

// A request that has ended.
struct Ended {
  Ticket* ticket;
  Event event;
  uint64_t bytes;  // received
  int code;        // of MPI
};

class Requests {
 public:
  // Takes over a request that MPI has just made.
  void add(Ticket& ticket, const Event& event, MPI_Request request);
  // Tests all once. The result is valid until the next call; handling it may add requests.
  const std::vector<Ended>& test();
  // Takes back the receives of `ticket` that nothing has come for.
  void cancel(const Ticket& ticket);
  // The same for all tickets.
  void cancel_all();

 private:
  struct Owner {
    Ticket* ticket;
    Event event;
    bool cancelled;
  };
  void cancel(size_t slot);
  void forget(size_t slot);
  // Without gaps: what has ended is replaced by the last.
  std::vector<MPI_Request> requests_;
  std::vector<Owner> owners_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::vector<Ended> ended_;
};

}  // namespace penstock::mpi
