#include "core/control/address.hpp"

#include "core/base/hash.hpp"
#include "core/base/system_error.hpp"
#include "core/control/socket.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

namespace penstock::control {

namespace {

// In network byte order. An IPv4 address has the first four bytes.
using Bytes = std::array<uint8_t, 16>;

struct Interface {
  std::string address;
  int family = 0;
  Bytes bits{};
  Bytes mask{};
};

Bytes bytes_of(const sockaddr* address) {
  Bytes bytes{};
  if (address == nullptr) {
    bytes.fill(0xFF);
  } else if (address->sa_family == AF_INET) {
    std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, 4);
  } else {
    std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, 16);
  }
  return bytes;
}

bool is_of_a_link(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

bool is_ipv4(std::string_view address) {
  return address.find(':') == std::string_view::npos;
}

// The numeric form. Empty if the address is neither IPv4 nor IPv6.
std::string text_of(const sockaddr* address) {
  if (address == nullptr) return "";
  if (address->sa_family != AF_INET && address->sa_family != AF_INET6) return "";
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char text[NI_MAXHOST];
  const int error = getnameinfo(address, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? text : "";
}

Result<std::vector<Interface>> interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) {
    return not_given("control: cannot list this host's network interfaces", errno);
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    const std::string text = text_of(entry->ifa_addr);
    if (text.empty() || (entry->ifa_flags & IFF_UP) == 0 || is_of_a_link(entry->ifa_addr)) continue;
    found.push_back({text, entry->ifa_addr->sa_family, bytes_of(entry->ifa_addr),
                     bytes_of(entry->ifa_netmask)});
  }
  return found;
}

using Resolved = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// Sets the text of the error if there is no address.
Resolved resolve(const std::string& host, int flags, std::string& error_text) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags;
  addrinfo* first = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &wanted, &first); error != 0) {
    error_text = gai_strerror(error);
    first = nullptr;
  }
  return {first, [](addrinfo* list) {
            if (list != nullptr) freeaddrinfo(list);
          }};
}

}  // namespace

bool is_loopback(std::string_view address) {
  return address.starts_with("127.") || address == "::1";
}

std::string with_port(std::string_view address, uint16_t port) {
  return is_ipv4(address) ? fmt::format("{}:{}", address, port)
                          : fmt::format("[{}]:{}", address, port);
}

Result<Endpoint> endpoint_of(const std::string& address, uint16_t port) {
  std::string error;
  const Resolved found = resolve(address, AI_NUMERICHOST, error);
  if (found == nullptr) return invalid_payload("control: '{}' is no IPv4 or IPv6 address", address);
  Endpoint endpoint;
  endpoint.size = found->ai_addrlen;
  std::memcpy(&endpoint.bytes, found->ai_addr, found->ai_addrlen);
  auto* const of_either = reinterpret_cast<sockaddr_in*>(&endpoint.bytes);
  of_either->sin_port = htons(port);  // both families have it at one offset
  return endpoint;
}

Result<std::vector<std::string>> own_addresses() {
  PENSTOCK_ASSIGN(const std::vector<Interface> found, interfaces());
  std::vector<std::string> addresses;
  for (const Interface& one : found) addresses.push_back(one.address);
  std::stable_partition(addresses.begin(), addresses.end(), is_ipv4);
  std::stable_partition(addresses.begin(), addresses.end(), is_loopback);
  if (addresses.empty()) {
    return internal(
        "control: this host has no address that is up, expected at least the loopback interface");
  }
  return addresses;
}

Result<std::vector<std::string>> addresses_of(const std::string& host) {
  const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  std::string error;
  const Resolved found = resolve(in_brackets ? host.substr(1, host.size() - 2) : host, 0, error);
  if (found == nullptr)
    return peer_failed("'{}' is no host that this one can find: {}", host, error);
  std::vector<std::string> addresses;
  for (const addrinfo* entry = found.get(); entry != nullptr; entry = entry->ai_next)
    if (std::string text = text_of(entry->ai_addr); !text.empty())
      addresses.push_back(std::move(text));
  std::stable_partition(addresses.begin(), addresses.end(), is_ipv4);
  return addresses;
}

std::vector<std::string> reachable(const std::vector<std::string>& addresses, bool server_is_here) {
  std::vector<std::string> hosts;
  if (server_is_here) {
    hosts = addresses;
    if (std::none_of(hosts.begin(), hosts.end(), is_loopback))
      hosts.insert(hosts.begin(), {"127.0.0.1", "::1"});
    return hosts;
  }
  const Result<std::vector<Interface>> found = interfaces();
  const std::vector<Interface> mine = found.ok() ? found.value() : std::vector<Interface>{};
  const auto is_mine = [&](const std::string& address) {
    return std::any_of(mine.begin(), mine.end(),
                       [&](const Interface& one) { return one.address == address; });
  };
  const auto is_near = [&](const std::string& address) {
    const Result<Endpoint> other = endpoint_of(address, 0);
    if (!other.ok()) return false;
    const Bytes bits = bytes_of(other.value().get());
    return std::any_of(mine.begin(), mine.end(), [&](const Interface& one) {
      if (one.family != other.value().bytes.ss_family) return false;
      for (size_t i = 0; i < bits.size(); ++i)
        if ((one.bits[i] & one.mask[i]) != (bits[i] & one.mask[i])) return false;
      return true;
    });
  };
  for (const std::string& address : addresses)
    if (!is_loopback(address) && !is_mine(address)) hosts.push_back(address);
  std::stable_partition(hosts.begin(), hosts.end(), is_near);
  return hosts;
}

uint64_t network_place() {
  struct stat space {};
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (boot.empty() || stat("/proc/self/ns/net", &space) != 0) return 0;
  const uint64_t place = hash64(fmt::format("{} {} {}", boot, space.st_dev, space.st_ino));
  return place != 0 ? place : 1;
}

const std::string& first_that_is_up(const std::vector<std::string>& addresses) {
  const auto is_up = [](const std::string& one) { return listen_on(one).ok(); };
  const auto up = std::find_if(addresses.begin(), addresses.end(), is_up);
  return up == addresses.end() ? addresses.front() : *up;
}

}  // namespace penstock::control
