#include "core/control/socket.hpp"

#include "core/base/clock.hpp"
#include "core/base/system_error.hpp"
#include "core/control/address.hpp"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <limits>

namespace penstock::control {

namespace {

constexpr size_t kReadBytes = 64 << 10;
constexpr int kReadsPerTurn = 16;
constexpr int kBacklog = 512;

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK;
}

// For messages that begin with "rank 2 failed: ".
Status closed() {
  return peer_failed(
      "its control connection was closed without a goodbye (the process ended or was killed)");
}

Status broken(int error) {
  return peer_failed("its control connection broke: {}", std::strerror(error));
}

void without_delay(int descriptor) {
  const int on = 1;
  // Small frames should not wait for each other. A failure of this call costs only time.
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

Handle& Handle::operator=(Handle&& other) noexcept {
  if (this != &other) {
    reset();
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

void Handle::reset() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

Status Wakeup::open() {
  handle_ = Handle(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!handle_.valid()) return not_given("control: no eventfd", errno);
  return {};
}

void Wakeup::signal() {
  const uint64_t one = 1;
  // Fails only if the counter is full. Then the thread is already being woken.
  [[maybe_unused]] const ssize_t written = write(handle_.get(), &one, sizeof(one));
}

void Wakeup::clear() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t taken = read(handle_.get(), &count, sizeof(count));
}

Status Link::receive() {
  char bytes[kReadBytes];
  for (int turn = 0; turn < kReadsPerTurn; ++turn) {
    const ssize_t got = recv(socket_.get(), bytes, sizeof(bytes), 0);
    if (got > 0) {
      in_.append({bytes, static_cast<size_t>(got)});
    } else if (got == 0) {
      return closed();
    } else if (would_block(errno)) {
      return {};
    } else if (errno != EINTR) {
      return broken(errno);
    }
  }
  return {};
}

Status Link::flush() {
  while (wants_to_write()) {
    const ssize_t sent =
        ::send(socket_.get(), out_.data() + out_begin_, out_.size() - out_begin_, MSG_NOSIGNAL);
    if (sent >= 0) {
      out_begin_ += static_cast<size_t>(sent);
    } else if (would_block(errno)) {
      return {};
    } else if (errno != EINTR) {
      return broken(errno);
    }
  }
  out_.clear();
  out_begin_ = 0;
  return {};
}

void Link::end_sending() {
  shutdown(socket_.get(), SHUT_WR);
}

namespace {

uint16_t port_of(const Endpoint& endpoint) {
  // Both families have the port at one offset.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  return ntohs(reinterpret_cast<const sockaddr_in*>(&endpoint.bytes)->sin_port);
}

Status cannot_listen(uint16_t port, int error) {
  const std::string what = fmt::format("control: rank 0 cannot listen on TCP port {}",
                                       port == 0 ? "of the system's choice" : fmt::to_string(port));
  if (error == EADDRINUSE && port != 0)
    return failed_precondition(
        "{}: another program has it, perhaps another run on this host; give all ranks another "
        "PENSTOCK_PORT, or without that variable another MASTER_PORT, to which Penstock adds 1",
        what);
  if (error == EACCES)
    return failed_precondition(
        "{}: ports below 1024 are for root; give all ranks a MASTER_PORT or PENSTOCK_PORT above it",
        what);
  return not_given(what, error);
}

}  // namespace

Result<Listener> listen_on(std::string_view address, uint16_t port) {
  const bool everywhere = address == kEveryAddress;
  PENSTOCK_ASSIGN(const Endpoint wanted,
                  endpoint_of(everywhere ? "::" : std::string(address), port));
  Listener listener;
  listener.socket =
      Handle(socket(wanted.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  // The system may have no IPv6.
  if (!listener.socket.valid() && everywhere) return listen_on("0.0.0.0", port);
  const int descriptor = listener.socket.get();
  const int on = 1, off = 0;
  // The next run may use the port of the last run at once.
  if (port != 0) setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // Also accepts IPv4.
  if (everywhere) setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  Endpoint got;
  got.size = sizeof(got.bytes);
  if (!listener.socket.valid() || bind(descriptor, wanted.get(), wanted.size) != 0 ||
      listen(descriptor, kBacklog) != 0 ||
      getsockname(descriptor, reinterpret_cast<sockaddr*>(&got.bytes), &got.size) != 0) {
    return cannot_listen(port, errno);
  }
  listener.port = port_of(got);
  return listener;
}

Handle accept_one(const Handle& listener) {
  Handle socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.valid()) without_delay(socket.get());
  return socket;
}

Result<Handle> connect_to(const std::string& address, uint16_t port, uint64_t timeout_us) {
  PENSTOCK_ASSIGN(const Endpoint target, endpoint_of(address, port));
  Handle socket(::socket(target.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return not_given("control: no socket", errno);
  int error = 0;
  if (connect(socket.get(), target.get(), target.size) != 0) {
    error = errno;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof(error);
      if (!wait_for(socket.get(), true, timeout_us)) {
        error = ETIMEDOUT;
      } else if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        error = errno;
      }
    }
  }
  if (error != 0) return peer_failed("{}: {}", with_port(address, port), std::strerror(error));
  without_delay(socket.get());
  return socket;
}

void limit_retransmission(int descriptor, uint64_t deadline_us) {
  // The number is equal on all kernels with this option. Headers may be older.
  constexpr int kRtoMaxMs = 44;
  constexpr int kLongestMs = 1'000;
  constexpr uint64_t kDeadlines = 3;  // for an outage, for the recovery of TCP, and a reserve
  const int on = 1;
  const auto broken_ms = static_cast<int>(std::clamp<uint64_t>(
      kDeadlines * (deadline_us / 1000), 3'000, std::numeric_limits<int>::max()));
  // With such short timers the limit of attempts would break the connection after seconds, so the
  // limit must be a time.
  if (setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &broken_ms, sizeof(broken_ms)) != 0)
    return;
  setsockopt(descriptor, IPPROTO_TCP, kRtoMaxMs, &kLongestMs, sizeof(kLongestMs));
  setsockopt(descriptor, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof(on));
}

bool wait_for(int descriptor, bool to_write, uint64_t timeout_us) {
  const uint64_t until_us = now_us() + timeout_us;
  while (true) {
    pollfd entry{descriptor, static_cast<short>(to_write ? POLLOUT : POLLIN), 0};
    const uint64_t now = now_us();
    const int ready = poll(&entry, 1, poll_milliseconds(until_us > now ? until_us - now : 0));
    if (ready > 0) return true;
    if (ready == 0 && now_us() >= until_us) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

int poll_milliseconds(uint64_t timeout_us) {
  constexpr uint64_t kLongest = 60'000;  // one wake-up per minute is cheap
  return static_cast<int>(std::min((timeout_us + 999) / 1000, kLongest));
}

}  // namespace penstock::control
