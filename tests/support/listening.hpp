// The addresses on which this process listens, from /proc.
#pragma once

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace penstock::test {

struct Listening {
  std::string address;  // as in the kernel's file: one hexadecimal word, or four for IPv6
  uint16_t port = 0;
  bool is_loopback = false;
};

// If loopback has no IPv4 address, UCX listens elsewhere.
inline bool loopback_has_ipv4() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return false;
  bool found = false;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next)
    found = found || (one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET &&
                      (one->ifa_flags & IFF_LOOPBACK) != 0);
  freeifaddrs(first);
  return found;
}

inline std::vector<Listening> listening() {
  std::set<std::string> own;
  for (const auto& open : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(open.path(), error);
    if (target.rfind("socket:[", 0) == 0) own.insert(target.substr(8, target.size() - 9));
  }
  const uint32_t byte_1 = ntohl(1) == 1 ? 24 : 0;  // 127 of 127.0.0.1 in the kernel's word
  std::vector<Listening> found;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream lines(table);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retries, user, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retries >> user >>
          timeout >> inode;
      if (state != "0A" || own.count(inode) == 0) continue;
      const size_t colon = local.find(':');
      Listening one{local.substr(0, colon),
                    static_cast<uint16_t>(std::stoul(local.substr(colon + 1), nullptr, 16))};
      if (one.address.size() == 8)
        one.is_loopback = (std::stoul(one.address, nullptr, 16) >> byte_1 & 0xFF) == 127;
      else
        one.is_loopback = one.address == "00000000000000000000000001000000";
      found.push_back(one);
    }
  }
  return found;
}

}  // namespace penstock::test
