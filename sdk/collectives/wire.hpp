// What the algorithms need of a transport: bytes from one rank of a channel to another, matched by
// a number.
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

// What a request is for.
struct Event {
  Kind kind;
  uint32_t peer;  // rank in the group
  uint64_t segment;
  uint64_t bytes;          // of a receive: how many are expected, and room for
  bool on_device = false;  // the bytes lie in memory of a device
};

// A request that has ended.
struct Ended {
  Ticket* ticket;
  Event event;
  uint64_t bytes;  // received
  int code;        // of the transport; 0: well
};

// The requests of a channel, which ask after all messages at once: a call that finds nothing drives
// the transport's progress and may yield the core, so asking for each message apart would cost both
// times the number of messages. Used by the communication thread only.
class Wire {
 public:
  virtual ~Wire() = default;

  // Begin to move `event.bytes` bytes to or from `event.peer`; never wait for it. What one rank
  // sends to another under one `match`, below 2^23, is received in that order. Memory stays in use
  // until the request has ended. They throw what the transport says.
  virtual void send(Ticket& ticket, const Event& event, uint64_t match, const void* data) = 0;
  virtual void receive(Ticket& ticket, const Event& event, uint64_t match, void* data) = 0;

  // Starts the message with an operation of the transport's own, under Kind::kWhole, and returns
  // how many requests that took; 0 where it has none that fits. Every rank decides alike.
  virtual uint32_t carry(Ticket&) { return 0; }

  // What has ended since the last call, each once. The result is valid until the next call;
  // handling it may begin new requests.
  virtual const std::vector<Ended>& test() = 0;

  // Throws what a code other than 0 means.
  [[noreturn]] virtual void fail(const Ended& ended) const = 0;

  // Takes back the receives of `ticket`, or of all tickets, that nothing has come for. They end
  // too.
  virtual void cancel(const Ticket& ticket) = 0;
  virtual void cancel_all() = 0;
};

}  // namespace penstock::collectives
