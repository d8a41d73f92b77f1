// The addresses at which ranks find each other. An address is a numeric IPv4 or IPv6 address:
// "10.0.0.7", "fd00::7". In every list, IPv4 addresses come first.
#pragma once

#include "core/base/status.hpp"

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::control {

// The addresses of this host's interfaces that are up. Loopback comes first because it answers or
// refuses at once. IPv6 addresses of a single link are left out because they need the name of an
// interface.
Result<std::vector<std::string>> own_addresses();
bool is_loopback(std::string_view address);
// The addresses of a host name. `host` may also be an address itself, with or without brackets.
// PEER_FAILED if no address is found.
Result<std::vector<std::string>> addresses_of(const std::string& host);
// The first address at which this host can listen; else the first one. A name such as localhost may
// have an address that is not up.
const std::string& first_that_is_up(const std::vector<std::string>& addresses);
// "10.0.0.7:29501", "[fd00::7]:29501".
std::string with_port(std::string_view address, uint16_t port);
// The addresses of rank 0 at which this process can reach rank 0 and no other host. On rank 0's
// host, loopback comes first. On another host, loopback and the addresses that this host also has
// are left out, and addresses in a network of this host come first.
std::vector<std::string> reachable(const std::vector<std::string>& addresses, bool server_is_here);

// A number that is equal in two processes if loopback connects them. Hosts with equal names,
// containers and network namespaces need not be connected by loopback. 0: unknown.
uint64_t network_place();

// A socket address for system calls. INVALID_PAYLOAD if the text is not an IPv4 or IPv6 address.
struct Endpoint {
  sockaddr_storage bytes{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};
Result<Endpoint> endpoint_of(const std::string& address, uint16_t port);

}  // namespace penstock::control
