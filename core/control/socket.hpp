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
  void clear();   // called by the thread that polls
  int descriptor() const { return handle_.get(); }

 private:
  Handle handle_;
};

// One non-blocking connection: converts bytes to frames and frames to bytes. For one thread.
class Link {
 public:
  Link(Handle socket, uint64_t limit_bytes) : socket_(std::move(socket)), in_(limit_bytes) {}

  // Reads the bytes that have arrived, at most about a megabyte, so that one peer cannot occupy the
  // thread. Success while the connection is open; otherwise an error that says how it ended.
  Status receive();
  // The next whole received frame; an error if the bytes are not a frame.
  Result<std::optional<std::string>> next() { return in_.next(); }
  void set_limit(uint64_t limit_bytes) { in_.set_limit(limit_bytes); }

  void send(std::string_view frame) { out_.append(frame); }
  // Writes as much as the kernel takes. An error when the connection has ended.
  Status flush();
  bool wants_to_write() const { return out_begin_ < out_.size(); }
  // Announces that nothing more will be sent: the peer reads the end after everything that was
  // flushed.
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
// Listens at `address` of this host; kEveryAddress: at every address. Port 0: the system chooses a
// port.
constexpr std::string_view kEveryAddress = "";
Result<Listener> listen_on(std::string_view address, uint16_t port = 0);
// Accepts a connection that waits at the listener; not valid if no connection waits.
Handle accept_one(const Handle& listener);

// Waits at most timeout_us.
Result<Handle> connect_to(const std::string& address, uint16_t port, uint64_t timeout_us);

// Limits TCP's doubling timer, so that the connection works soon after an outage. Bytes that stay
// unacknowledged for three deadlines break the connection. The kernel decides how soon: within a
// second from Linux 6.15 on.
void limit_retransmission(int descriptor, uint64_t deadline_us);

// Waits until `descriptor` can be read (or written), at most timeout_us. False on timeout.
bool wait_for(int descriptor, bool to_write, uint64_t timeout_us);

// Converts to milliseconds, the unit of poll. Rounds up so that a loop does not spin before a
// deadline.
int poll_milliseconds(uint64_t timeout_us);

}  // namespace penstock::control
