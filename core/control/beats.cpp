#include "core/control/beats.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace penstock::control {

namespace {

constexpr size_t kTokenBytes = 32;  // make_token's
constexpr std::array<char, 4> kMark = {'p', 'b', 'e', 'a'};

// The bytes on the wire, little-endian. The struct is on the stack, because a run sends heartbeats
// all the time and must not allocate for them.
struct Datagram {
  std::array<char, 4> mark = kMark;
  std::array<char, kTokenBytes> token{};
  uint8_t from_server = 0;
  std::array<uint8_t, 4> rank{};
  std::array<uint8_t, 8> number{};
};
constexpr size_t kDatagramBytes = 4 + kTokenBytes + 1 + 4 + 8;
static_assert(sizeof(Datagram) == kDatagramBytes);

template <size_t N>
void write_number(std::array<uint8_t, N>& bytes, uint64_t value) {
  for (size_t i = 0; i < N; ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
}

template <size_t N>
uint64_t read_number(const std::array<uint8_t, N>& bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < N; ++i) value |= uint64_t{bytes[i]} << (8 * i);
  return value;
}

// The port, in network byte order. Null if the address is of another family.
in_port_t* port_in(sockaddr_storage& address) {
  if (address.ss_family == AF_INET) return &reinterpret_cast<sockaddr_in&>(address).sin_port;
  if (address.ss_family == AF_INET6) return &reinterpret_cast<sockaddr_in6&>(address).sin6_port;
  return nullptr;
}

sockaddr* plain(BeatSocket::Address& address) {
  return reinterpret_cast<sockaddr*>(&address.bytes);
}

BeatSocket::Address own_address(int descriptor) {
  BeatSocket::Address address;
  address.size = sizeof(address.bytes);
  if (getsockname(descriptor, plain(address), &address.size) != 0) address.size = 0;
  return address;
}

}  // namespace

uint64_t datagram_interval_us(uint64_t deadline_us, uint64_t heartbeat_us) {
  constexpr uint64_t kPerDeadline = 64;
  return std::max<uint64_t>(std::min(heartbeat_us, deadline_us / kPerDeadline), 1'000);
}

// ---- The socket ----

bool BeatSocket::open(Address address, std::string token) {
  in_port_t* const port = port_in(address.bytes);
  if (port == nullptr || token.size() != kTokenBytes) return false;
  const int family = address.bytes.ss_family;
  Handle socket(::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return false;
  const int off = 0;
  // As for the listener: one socket for IPv4 and IPv6 if the host allows it.
  if (family == AF_INET6) setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (bind(socket.get(), plain(address), address.size) != 0) {
    *port = 0;
    if (bind(socket.get(), plain(address), address.size) != 0) return false;
  }
  socket_ = std::move(socket);
  token_ = std::move(token);
  return true;
}

uint16_t BeatSocket::port() const {
  Address address = own_address(descriptor());
  const in_port_t* const port = address.size == 0 ? nullptr : port_in(address.bytes);
  return port == nullptr ? 0 : ntohs(*port);
}

void BeatSocket::send(const Sign& sign, const Address& to) const {
  if (!socket_.valid() || to.size == 0) return;
  Datagram datagram;
  std::memcpy(datagram.token.data(), token_.data(), kTokenBytes);
  datagram.from_server = sign.from_server ? 1 : 0;
  write_number(datagram.rank, sign.rank);
  write_number(datagram.number, sign.number);
  (void)sendto(descriptor(), &datagram, sizeof(datagram), MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&to.bytes), to.size);
}

bool BeatSocket::next(Sign& sign, Address& from) const {
  constexpr int kStrangersPerTurn = 256;  // a flood must not occupy the thread
  for (int turn = 0; socket_.valid() && turn < kStrangersPerTurn; ++turn) {
    Datagram datagram;
    from.size = sizeof(from.bytes);
    // MSG_TRUNC returns the original length. A longer datagram does not belong to this run.
    const ssize_t got =
        recvfrom(descriptor(), &datagram, sizeof(datagram), MSG_TRUNC, plain(from), &from.size);
    // An ICMP message says that no process listens at the other end. This is not a datagram.
    if (got < 0 && (errno == ECONNREFUSED || errno == EINTR)) continue;
    if (got < 0) return false;
    if (got != static_cast<ssize_t>(sizeof(datagram)) || datagram.mark != kMark ||
        std::memcmp(datagram.token.data(), token_.data(), kTokenBytes) != 0)
      continue;
    sign.from_server = datagram.from_server != 0;
    sign.rank = static_cast<uint32_t>(read_number(datagram.rank));
    sign.number = read_number(datagram.number);
    return true;
  }
  return false;
}

// ---- The ends ----

ServerBeats::ServerBeats(const Handle& listener, uint32_t size) : peers_(size) {
  Result<std::string> token = make_token();
  if (!token.ok() || !socket_.open(own_address(listener.get()), *token)) return;
  token_ = std::move(*token);
}

std::string ServerBeats::invitation() const {
  return Writer(FrameKind::datagrams)
      .u32(socket_.descriptor() < 0 ? 0 : socket_.port())
      .text(token_)
      .frame();
}

void ServerBeats::receive(const std::function<void(uint32_t rank)>& lives) {
  BeatSocket::Sign sign;
  BeatSocket::Address from;
  while (socket_.next(sign, from)) {
    if (sign.from_server || sign.rank >= peers_.size()) continue;
    Peer& peer = peers_[sign.rank];
    // A datagram that was delayed for long, or that was sent again by an attacker, is no heartbeat.
    if (sign.number <= peer.newest) continue;
    peer = {from, sign.number};
    lives(sign.rank);
  }
}

void ServerBeats::send() {
  ++number_;
  for (uint32_t rank = 0; rank < peers_.size(); ++rank)
    socket_.send({true, rank, number_}, peers_[rank].address);
}

void ClientBeats::open(int connection, uint32_t rank, uint16_t port, std::string token) {
  BeatSocket::Address server;
  server.size = sizeof(server.bytes);
  if (port == 0 || getpeername(connection, plain(server), &server.size) != 0) return;
  in_port_t* const where = port_in(server.bytes);
  if (where == nullptr) return;
  *where = htons(port);
  // The address of the connection, so that a rank on loopback hears nobody outside; any port.
  BeatSocket::Address own = own_address(connection);
  if (in_port_t* const here = port_in(own.bytes)) *here = 0;
  if (!socket_.open(own, std::move(token))) return;
  server_ = server;
  rank_ = rank;
}

bool ClientBeats::receive() {
  bool lives = false;
  BeatSocket::Sign sign;
  BeatSocket::Address from;
  while (socket_.next(sign, from)) {
    if (!sign.from_server || sign.rank != rank_ || sign.number <= newest_) continue;
    newest_ = sign.number;
    lives = true;
  }
  return lives;
}

void ClientBeats::send() {
  socket_.send({false, rank_, ++number_}, server_);
}

}  // namespace penstock::control
