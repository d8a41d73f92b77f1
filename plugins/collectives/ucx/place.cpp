// See place.hpp.
#include "place.hpp"

#include <penstock/error.hpp>

#include <collectives/store.hpp>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

namespace penstock::ucx {

namespace {

// A text that is equal for the processes of a host that share a network.
std::string own_network() {
  struct stat space {};
  if (stat("/proc/self/ns/net", &space) != 0) return "unknown";
  return sdk::text(uint64_t{space.st_dev}, ":", uint64_t{space.st_ino});
}

// The text of an address: of IPv4, and of IPv6 if the address is valid beyond its link; empty for
// other addresses.
std::string text_of(const sockaddr& of) {
  char text[INET6_ADDRSTRLEN] = {};
  if (of.sa_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(of);
    (void)inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  } else if (of.sa_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(of);
    if (!IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr))
      (void)inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof text);
  }
  return text;
}

// The name and address of each interface that is up.
std::vector<std::pair<std::string, std::string>> interfaces(bool loopback) {
  std::vector<std::pair<std::string, std::string>> found;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return found;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, freeifaddrs);
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0 ||
        ((one->ifa_flags & IFF_LOOPBACK) != 0) != loopback)
      continue;
    if (const std::string text = text_of(*one->ifa_addr); !text.empty())
      found.emplace_back(one->ifa_name, text);
  }
  return found;
}

// Whether a list in the form of UCX, such as "eth0,mlx5_0:1", contains the interface.
bool is_in(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    if (list.substr(0, end) == name) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

std::string key_of(uint32_t rank) {
  return sdk::text("collective/ucx network of rank ", rank);
}

}  // namespace

std::string loopback_device() {
  for (const auto& [name, address] : interfaces(true))
    if (address.find(':') == std::string::npos) return name;
  return "";
}

// The network of a process does not change, so its text may stay in the store: ranks that join
// again read a correct text.
bool share_network(const penstock_key_value_store& store, uint32_t rank, uint32_t size,
                   uint64_t timeout_us) {
  const std::string own = own_network();
  collectives::put(store, key_of(rank), own);
  bool shared = own != "unknown";
  for (uint32_t r = 0; r < size; ++r)
    if (r != rank) shared = collectives::get(store, key_of(r), timeout_us) == own && shared;
  return shared;
}

std::string place_of(std::string_view devices) {
  const char* const variable = std::getenv("UCX_NET_DEVICES");
  const std::string list(devices.empty() && variable != nullptr ? variable : devices);
  auto found = interfaces(false);
  const auto own = interfaces(true);
  const auto is_left_out = [&](const auto& one) { return !is_in(list, one.first); };
  auto named = found;
  named.insert(named.end(), own.begin(), own.end());
  named.erase(std::remove_if(named.begin(), named.end(), is_left_out), named.end());
  // None is left if the list names RDMA devices; then all interfaces of the host are listed, which
  // identify it.
  if (!named.empty()) found = named;
  char host[256] = {};
  (void)gethostname(host, sizeof host - 1);
  std::string addresses;
  for (const auto& [name, address] : found)
    addresses += (addresses.empty() ? "" : ", ") + name + " " + address;
  return sdk::text(host, " (", addresses.empty() ? "no address" : addresses, ")");
}

std::string range_of_ports(std::string_view asked) {
  if (asked.empty()) return "";
  constexpr uint32_t kLastPort = 65535;
  const auto port = [](std::string_view text) -> uint32_t {  // 0: none
    uint32_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, number);
    return error == std::errc() && at == end && number <= kLastPort ? number : 0;
  };
  const size_t dash = std::min(asked.find('-'), asked.size());
  const uint32_t first = port(asked.substr(0, dash));
  const uint32_t last = dash == asked.size() ? first : port(asked.substr(dash + 1));
  if (first == 0 || last < first)
    throw sdk::invalid_argument("option ports of collective/ucx is \"", asked,
                                "\", expected a range of ports such as 20000-20099");
  return sdk::text(first, "-", last);
}

}  // namespace penstock::ucx
