// Signs of life that travel as datagrams, beside the control connection.
//
// After an outage TCP sends again when its doubling timer says so, up to as long after the link is
// back as the link was away. Datagrams say at once that both ends live. They say nothing else: one
// that is lost, comes twice, or comes from a stranger changes nothing, and where none gets through
// the connection's own signs of life count. See docs/decisions/0026-beats-by-udp.md.
#pragma once

#include "core/control/socket.hpp"

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::control {

// One of `deadline_us` often enough that a link may be away for nine tenths of it.
uint64_t datagram_interval_us(uint64_t deadline_us, uint64_t heartbeat_us);

// A socket for them, and what they look like. One thread.
class BeatSocket {
 public:
  struct Address {
    sockaddr_storage bytes{};
    socklen_t size = 0;  // 0: none
  };
  // Who sends it, to or from which rank. `number` grows with each that an end sends.
  struct Sign {
    bool from_server = false;
    uint32_t rank = 0;
    uint64_t number = 0;
  };

  int descriptor() const { return socket_.get(); }  // -1: there is none, as poll takes it
  // At `address`; its port may be taken over UDP: then at one that the system chooses.
  bool open(Address address, std::string token);
  uint16_t port() const;
  // One that cannot leave is one that is lost.
  void send(const Sign& sign, const Address& to) const;
  // The next that has arrived and shows the token. False: there is none.
  bool next(Sign& sign, Address& from) const;

 private:
  Handle socket_;
  std::string token_;
};

// Rank 0's end. One thread.
class ServerBeats {
 public:
  // Beside the listener of the control connections: at its addresses and, where it is free, its
  // port. Where the host gives none there are no datagrams.
  ServerBeats(const Handle& listener, uint32_t size);
  int descriptor() const { return socket_.descriptor(); }
  // What a member is told over its connection; nobody else knows the token.
  std::string invitation() const;
  // Says which ranks have shown that they live.
  void receive(const std::function<void(uint32_t rank)>& lives);
  // To all that have been heard, at where they are.
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

// Another rank's end, rank 0's client among them. One thread.
class ClientBeats {
 public:
  // As invited, toward where the connection leads; over IPv4 or IPv6 as that goes.
  void open(int connection, uint32_t rank, uint16_t port, std::string token);
  int descriptor() const { return socket_.descriptor(); }
  bool has_heard() const { return newest_ != 0; }
  // True: the server has shown that it lives.
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
