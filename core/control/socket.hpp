// Sockets of the control connections: owning handles, non-blocking links that carry frames,
// listening and connecting.
#pragma once

#include "core/base/status.hpp"
#include "core/control/protocol.hpp"

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::control {

// Owns a file descriptor.
class Handle {
 public:
  Handle() = default;
  explicit Handle(int descriptor) : descriptor_(descriptor) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Handle& operator=(Handle&& other) noexcept;
  int get() const { return descriptor_; }
  bool valid() const { return descriptor_ >= 0; }
  void reset();

 private:
  int descriptor_ = -1;
};

// Wakes a thread out of poll.
class Wakeup {
 public:
  Status open();
  void signal();  // [any]
  void clear();   // by the thread that polls
  int descriptor() const { return handle_.get(); }

 private:
  Handle handle_;
};

// One non-blocking connection: bytes to frames, frames to bytes. One thread.
class Link {
 public:
  Link(Handle socket, uint64_t limit_bytes) : socket_(std::move(socket)), in_(limit_bytes) {}

  // Reads what has arrived, at most about a megabyte, so that one peer cannot keep the thread for
  // itself. Success while the connection is open; otherwise how it ended.
  Status receive();
  // The next whole frame that was received; an error when the bytes are no frames.
  Result<std::optional<std::string>> next() { return in_.next(); }
  void set_limit(uint64_t limit_bytes) { in_.set_limit(limit_bytes); }

  void send(std::string_view frame) { out_.append(frame); }
  // Writes as much as the kernel takes. An error when the connection has ended.
  Status flush();
  bool wants_to_write() const { return out_begin_ < out_.size(); }
  // Nothing more will be sent: the peer sees the end behind everything that was flushed.
  void end_sending();

  int descriptor() const { return socket_.get(); }

 private:
  Handle socket_;
  FrameBuffer in_;
  std::string out_;
  size_t out_begin_ = 0;
};

struct Listener {
  Handle socket;
  uint16_t port = 0;
};
// On that address of this host, or on every one of it; port 0: one that the system chooses.
constexpr std::string_view kEveryAddress = "";
Result<Listener> listen_on(std::string_view address, uint16_t port = 0);
// A connection that waits at the listener; not valid when there is none.
Handle accept_one(const Handle& listener);

// Waits at most timeout_us.
Result<Handle> connect_to(const std::string& address, uint16_t port, uint64_t timeout_us);

// After an outage the connection comes back soon, not as late as TCP's doubling timer says; what
// nobody acknowledges for three deadlines breaks it. How soon is up to the kernel: a second from
// Linux 6.15 on.
void limit_retransmission(int descriptor, uint64_t deadline_us);

// Waits until `descriptor` can be read (or written), at most timeout_us. False on timeout.
bool wait_for(int descriptor, bool to_write, uint64_t timeout_us);

// poll's unit, rounded up so that a loop does not spin before a deadline.
int poll_milliseconds(uint64_t timeout_us);

}  // namespace penstock::control
