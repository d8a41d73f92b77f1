// Heartbeats that travel as UDP datagrams, beside the control connection.
//
// After an outage TCP retransmits only when its doubling timer expires; that can take as long as
// the outage lasted. A datagram shows at once that its sender is alive, and it carries no other
// information: a datagram that is lost, duplicated or sent by a stranger changes nothing. If no
// datagram gets through, the heartbeats on the connection count. See
// docs/decisions/0026-beats-by-udp.md.
#pragma once

#include "core/control/socket.hpp"

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::control {

// The interval of datagrams. It is short enough that a link may be down for nine tenths of
// `deadline_us` before the deadline passes.
uint64_t datagram_interval_us(uint64_t deadline_us, uint64_t heartbeat_us);

// A UDP socket for these datagrams, and their format. For one thread.
class BeatSocket {
 public:
  struct Address {
    sockaddr_storage bytes{};
    socklen_t size = 0;  // 0: none
  };
  // The sender of a datagram, and the rank that sends or receives it. `number` grows with each
  // datagram of a sender.
  struct Sign {
    bool from_server = false;
    uint32_t rank = 0;
    uint64_t number = 0;
  };

  int descriptor() const { return socket_.get(); }  // -1, which poll ignores: there is no socket
  // Opens the socket at `address`. If its UDP port is taken, the system chooses another port.
  bool open(Address address, std::string token);
  uint16_t port() const;
  // A datagram that cannot be sent counts as lost.
  void send(const Sign& sign, const Address& to) const;
  // Reads the next received datagram that carries the token. False: there is none.
  bool next(Sign& sign, Address& from) const;

 private:
  Handle socket_;
  std::string token_;
};

// The end of rank 0. For one thread.
class ServerBeats {
 public:
  // Opens a socket at the addresses of the listener of the control connections and, if it is free,
  // at the listener's port. If the host gives no socket, no datagrams are sent.
  ServerBeats(const Handle& listener, uint32_t size);
  int descriptor() const { return socket_.descriptor(); }
  // The text that a member receives over its connection. Only members know the token.
  std::string invitation() const;
  // Calls `lives` with each rank that has shown that it is alive.
  void receive(const std::function<void(uint32_t rank)>& lives);
  // Sends a datagram to every rank that has been heard, at its last address.
  void send();

 private:
  struct Peer {
    BeatSocket::Address address;
    uint64_t newest = 0;
  };
  BeatSocket socket_;
  std::string token_;
  std::vector<Peer> peers_;
  uint64_t number_ = 0;
};

// The end of every client, rank 0's own client included. For one thread.
class ClientBeats {
 public:
  // Opens a socket as invited, toward the peer of `connection`, over IPv4 or IPv6 as the
  // connection.
  void open(int connection, uint32_t rank, uint16_t port, std::string token);
  int descriptor() const { return socket_.descriptor(); }
  bool has_heard() const { return newest_ != 0; }
  // True: the server has shown that it is alive.
  bool receive();
  void send();

 private:
  BeatSocket socket_;
  BeatSocket::Address server_;
  uint32_t rank_ = 0;
  uint64_t number_ = 0;
  uint64_t newest_ = 0;
};

}  // namespace penstock::control
