// Under which addresses ranks find each other (socket.hpp).
#include "core/base/hash.hpp"
#include "core/base/system_error.hpp"
#include "core/control/socket.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

namespace penstock::control {

namespace {

struct Interface {
  std::string address;
  uint32_t bits = 0;  // network byte order
  uint32_t mask = 0;
};

Result<std::vector<Interface>> interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) {
    return not_given("control: cannot list this host's network interfaces", errno);
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_UP) == 0) continue;
    char text[INET_ADDRSTRLEN];
    const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    const auto* mask = reinterpret_cast<const sockaddr_in*>(entry->ifa_netmask);
    if (inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text)) == nullptr) continue;
    found.push_back({text, address->sin_addr.s_addr,
                     mask != nullptr ? mask->sin_addr.s_addr : uint32_t{0xFFFFFFFF}});
  }
  return found;
}

}  // namespace

bool is_loopback(std::string_view address) {
  return address.starts_with("127.");
}

Result<std::vector<std::string>> own_addresses() {
  PENSTOCK_ASSIGN(const std::vector<Interface> found, interfaces());
  std::vector<std::string> addresses;
  for (const Interface& one : found) addresses.push_back(one.address);
  std::stable_partition(addresses.begin(), addresses.end(), is_loopback);
  if (addresses.empty()) {
    return internal(
        "control: this host has no IPv4 address that is up, expected at least the loopback "
        "interface");
  }
  return addresses;
}

Result<std::vector<std::string>> addresses_of(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &wanted, &first); error != 0)
    return peer_failed("'{}' is no host that this one can find: {}", host, gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(first, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* entry = first; entry != nullptr; entry = entry->ai_next) {
    char text[INET_ADDRSTRLEN];
    const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ai_addr);
    if (inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text)) != nullptr)
      addresses.emplace_back(text);
  }
  return addresses;
}

std::vector<std::string> reachable(const std::vector<std::string>& addresses, bool server_is_here) {
  std::vector<std::string> hosts;
  if (server_is_here) {
    hosts = addresses;
    if (std::none_of(hosts.begin(), hosts.end(), is_loopback))
      hosts.insert(hosts.begin(), "127.0.0.1");
    return hosts;
  }
  const Result<std::vector<Interface>> found = interfaces();
  const std::vector<Interface> mine = found.ok() ? found.value() : std::vector<Interface>{};
  const auto is_mine = [&](const std::string& address) {
    return std::any_of(mine.begin(), mine.end(),
                       [&](const Interface& one) { return one.address == address; });
  };
  const auto is_near = [&](const std::string& address) {
    in_addr bits{};
    if (inet_pton(AF_INET, address.c_str(), &bits) != 1) return false;
    return std::any_of(mine.begin(), mine.end(), [&](const Interface& one) {
      return (one.bits & one.mask) == (bits.s_addr & one.mask);
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

}  // namespace penstock::control
