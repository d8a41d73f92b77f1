// The interface that the algorithms need of a transport: it moves bytes from one rank of a channel
// to another, matched by a number.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock::collectives {

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
  kWhole  // the whole message, carried by the transport itself
};

inline bool is_receive(Kind kind) {
  return kind == Kind::kOpeningIn || kind == Kind::kIn || kind == Kind::kResultIn ||
         kind == Kind::kGrantIn;
}

// The purpose of a request.
struct Event {
  Kind kind;
  uint32_t peer;  // rank in the group
  uint64_t segment;
  uint64_t bytes;          // of a receive: expected bytes, which is also the room
  bool on_device = false;  // the bytes lie in memory of a device
};

// A request that has ended.
struct Ended {
  Ticket* ticket;
  Event event;
  uint64_t bytes;  // received
  int code;        // of the transport; 0: no error
};

// The requests of a channel. `test` asks for all messages at once: a call without a result drives
// the transport's progress and may yield the core, so a call per message would cost both once per
// message. Only the communication thread may use it.
class Wire {
 public:
  virtual ~Wire() = default;

  // Begin to move `event.bytes` bytes to or from `event.peer`; must not wait. Data that one rank
  // sends to another under one `match` (below 2^23) are received in the order of sending. The
  // memory stays in use until the request has ended. Throw the errors of the transport.
  virtual void send(Ticket& ticket, const Event& event, uint64_t match, const void* data) = 0;
  virtual void receive(Ticket& ticket, const Event& event, uint64_t match, void* data) = 0;

  // Starts the message with a collective operation of the transport, under Kind::kWhole, and
  // returns its number of requests; 0 if the transport has no suitable operation. Every rank must
  // decide alike.
  virtual uint32_t carry(Ticket&) { return 0; }

  // The requests that have ended since the last call. The result is valid until the next call; the
  // caller may begin new requests while it handles the result.
  virtual const std::vector<Ended>& test() = 0;

  // Throws the error of a code other than 0.
  [[noreturn]] virtual void fail(const Ended& ended) const = 0;

  // Cancel the receives of `ticket`, or of all tickets, for which no data have come. Cancelled
  // receives also end.
  virtual void cancel(const Ticket& ticket) = 0;
  virtual void cancel_all() = 0;
};

}  // namespace penstock::collectives
