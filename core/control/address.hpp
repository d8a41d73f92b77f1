// Under which addresses ranks find each other. They are IPv4 or IPv6, as numbers: "10.0.0.7",
// "fd00::7". Of lists the IPv4 ones come first.
#pragma once

#include "core/base/status.hpp"

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::control {

// Those of this host's interfaces that are up, loopback first: it answers or refuses at once. Not
// the IPv6 ones of a single link, which mean nothing without the name of an interface.
Result<std::vector<std::string>> own_addresses();
bool is_loopback(std::string_view address);
// Those behind a host's name, or the one that it is, in brackets too. PEER_FAILED where there are
// none.
Result<std::vector<std::string>> addresses_of(const std::string& host);
// "10.0.0.7:29501", "[fd00::7]:29501".
std::string with_port(std::string_view address, uint16_t port);
// Those of rank 0's addresses under which this process can reach it and nobody else: on its host
// loopback first; elsewhere neither loopback nor an address that this host has as well, and those
// in a network of this host first.
std::vector<std::string> reachable(const std::vector<std::string>& addresses, bool server_is_here);

// The same number in two processes where loopback leads from one to the other, which hosts of equal
// names, containers and network namespaces need not do; 0: unknown.
uint64_t network_place();

// For the system's calls. INVALID_PAYLOAD for what is no such address.
struct Endpoint {
  sockaddr_storage bytes{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};
Result<Endpoint> endpoint_of(const std::string& address, uint16_t port);

}  // namespace penstock::control
