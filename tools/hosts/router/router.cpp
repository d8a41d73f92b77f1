// router COUNT SEED SUBNET: carries packets between hosts h0, h1, ... (far.sh), each of which has a
// TUN device eth0 of address SUBNET.(10 + number), as lines of a rate and ways of a length would.
//
// Says "ready" once it has found out how fast it is. Then it obeys lines of its input, each of
// which it answers with "ok" or with a sentence that says why not, and ends when its input does:
//
//   line HOST BITS_PER_S LIMIT_BYTES             of both directions
//   way FROM TO DELAY_MS JITTER_MS LOSS
//   cut FROM TO | restore FROM TO
//   report                                       answered as report.hpp says
#include "network.hpp"
#include "report.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <queue>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace router {
namespace {

constexpr double kFrame = 14;   // of a packet on Ethernet, as tc counts it
constexpr double kFull = 1514;  // the longest packet
constexpr double kShare = 0.5;  // of a processor, the most that carrying may take
constexpr int kFirstAddress = 10;
constexpr int kAtOnce = 64;  // packets of one host before the next has its turn
constexpr double kTrial_s = 0.1, kMostTrial_s = 10;
// Fewer packets tell little, so a trial that did not get a processor goes on.
constexpr uint64_t kTrialPackets = 1000;

[[noreturn]] void fail(const std::string& what) {
  std::printf("the router cannot %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

void enter(const std::string& host) {
  const int name = open(("/run/netns/" + host).c_str(), O_RDONLY | O_CLOEXEC);
  if (name < 0 || setns(name, CLONE_NEWNET) != 0) fail("enter " + host);
  close(name);
}

int open_device(int host) {
  enter("h" + std::to_string(host));
  const int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (device < 0) fail("open /dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strcpy(request.ifr_name, "eth0");
  if (ioctl(device, TUNSETIFF, &request) != 0) fail("take eth0 of h" + std::to_string(host));
  return device;
}

// A packet that is under way: next on the line of its receiver, or out of it.
struct Event {
  double time;
  uint64_t number;  // of two at a time the first that came goes first
  int to;
  bool leaves;
  std::vector<char> packet;
};

struct Later {
  bool operator()(const Event& a, const Event& b) const {
    return std::pair(a.time, a.number) > std::pair(b.time, b.number);
  }
};

class Router {
 public:
  Router(int count, uint64_t seed, in_addr_t first) : hosts_(size_t(count)), first_(first) {
    for (int from = 0; from < count; ++from) {
      Host& host = hosts_[size_t(from)];
      host.device = open_device(from);
      for (int to = 0; to < count; ++to) {
        Dice mixed((seed << 32) ^ uint64_t(from * count + to));
        host.ways.emplace_back(uint64_t(mixed.roll() * 0x1p53));
      }
    }
  }

  void try_speed();
  void work();

 private:
  std::optional<int> receiver(const char* packet, ssize_t size) const;
  void take(int from);
  void hand_on(double now);
  bool hear();
  std::string obey(const std::string& words);
  std::string set_line(size_t host, double bits_per_s, double limit_bytes);

  std::vector<Host> hosts_;
  in_addr_t first_;               // the address of h0, as numbers count
  double packet_s_ = 0;           // processor seconds of one packet
  std::vector<Event> under_way_;  // a heap, the soonest first
  uint64_t number_ = 0;
  Report report_;
  std::string heard_;
};

std::optional<int> Router::receiver(const char* packet, ssize_t size) const {
  if (size < 20 || (packet[0] >> 4) != 4) return std::nullopt;
  in_addr_t address = 0;
  std::memcpy(&address, packet + 16, sizeof address);
  const in_addr_t to = ntohl(address) - first_;
  if (to >= hosts_.size()) return std::nullopt;
  return int(to);
}

void Router::take(int from) {
  Host& host = hosts_[size_t(from)];
  char packet[65536];
  for (int i = 0; i < kAtOnce; ++i) {
    const ssize_t size = read(host.device, packet, sizeof packet);
    if (size <= 0) return;
    const std::optional<int> to = receiver(packet, size);
    if (!to) continue;
    const std::optional<double> sent = host.out.leave(now_s(), double(size) + kFrame);
    if (!sent) {
      ++report_.dropped;
      continue;
    }
    const std::optional<double> there = host.ways[size_t(*to)].arrive(*sent);
    if (!there) {
      ++report_.lost;
      continue;
    }
    under_way_.push_back({*there, number_++, *to, false, {packet, packet + size}});
    std::push_heap(under_way_.begin(), under_way_.end(), Later());
  }
}

void Router::hand_on(double now) {
  while (!under_way_.empty() && under_way_.front().time <= now) {
    std::pop_heap(under_way_.begin(), under_way_.end(), Later());
    Event event = std::move(under_way_.back());
    under_way_.pop_back();
    Host& host = hosts_[size_t(event.to)];
    if (event.leaves) {
      // A host that cannot take it loses it, as a full card would.
      if (write(host.device, event.packet.data(), event.packet.size()) > 0)
        report_.late(now - event.time);
      else
        ++report_.dropped;
      continue;
    }
    const std::optional<double> out =
        host.in.leave(event.time, double(event.packet.size()) + kFrame);
    if (!out) {
      ++report_.dropped;
      continue;
    }
    event.time = *out;
    event.leaves = true;
    under_way_.push_back(std::move(event));
    std::push_heap(under_way_.begin(), under_way_.end(), Later());
  }
}

// Packets as long as they come, from h0 to h1 as fast as h0 can, carried without lines and ways.
void Router::try_speed() {
  if (hosts_.size() < 2) return;
  const pid_t sender = fork();
  if (sender == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    enter("h0");
    const int out = socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(first_ + 1);
    to.sin_port = htons(9);  // "discard"
    const std::vector<char> full(size_t(kFull - kFrame) - 28);
    for (;;) sendto(out, full.data(), full.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof to);
  }
  char packet[65536];
  uint64_t carried = 0;
  const double begin = now_s(), before = processor_s();
  pollfd comes{hosts_[0].device, POLLIN, 0};
  while (now_s() < begin + kTrial_s ||
         (carried < kTrialPackets && now_s() < begin + kMostTrial_s)) {
    poll(&comes, 1, 10);
    for (int i = 0; i < kAtOnce; ++i) {
      const ssize_t size = read(hosts_[0].device, packet, sizeof packet);
      if (size <= 0) break;
      const std::vector<char> kept(packet, packet + size);
      if (write(hosts_[1].device, kept.data(), kept.size()) > 0) ++carried;
    }
  }
  kill(sender, SIGKILL);
  waitpid(sender, nullptr, 0);
  // What still waits belongs to no one, and neither do h1's complaints.
  for (Host& host : hosts_)
    while (read(host.device, packet, sizeof packet) > 0) continue;
  if (carried == 0) fail("carry a packet from h0 to h1");
  packet_s_ = (processor_s() - before) / double(carried);
  report_ = Report();
}

// An acknowledgement goes back for every second packet.
std::string Router::set_line(size_t number, double bits_per_s, double limit_bytes) {
  double total = bits_per_s;
  for (size_t i = 0; i < hosts_.size(); ++i)
    if (i != number) total += 8 * hosts_[i].out.bytes_per_s;
  const double most = kShare / (1.5 * packet_s_) * 8 * kFull;
  if (packet_s_ > 0 && total > most) {
    char said[400];
    std::snprintf(said, sizeof said,
                  "the router would fall behind: lines of %.3g Mb/s together would take %.0f %% of "
                  "a processor at %.1f us for a "
                  "packet, tried just now; expected at most %.0f %%, which %.3g Mb/s take",
                  total / 1e6, 100 * kShare * total / most, 1e6 * packet_s_, 100 * kShare,
                  most / 1e6);
    return said;
  }
  Host& host = hosts_[number];
  for (Line* line : {&host.out, &host.in}) {
    line->bytes_per_s = bits_per_s / 8;
    line->limit_bytes = limit_bytes;
  }
  return "ok";
}

std::string Router::obey(const std::string& words) {
  std::istringstream in(words);
  std::string verb;
  size_t one = 0, other = 0;
  in >> verb;
  if (verb == "report") return report_.line();
  in >> one;
  if (verb == "line") {
    double bits_per_s = 0, limit_bytes = 0;
    if (in >> bits_per_s >> limit_bytes && one < hosts_.size() && bits_per_s > 0 &&
        limit_bytes >= kFull)
      return set_line(one, bits_per_s, limit_bytes);
    return "the router was told \"" + words +
           "\", expected line HOST BITS_PER_S LIMIT_BYTES, at least 1514";
  }
  in >> other;
  if (in && one < hosts_.size() && other < hosts_.size()) {
    Way& way = hosts_[one].ways[other];
    if (verb == "cut" || verb == "restore") {
      way.is_cut = verb == "cut";
      return "ok";
    }
    double delay_ms = 0, jitter_ms = 0, loss = 0;
    if (verb == "way" && in >> delay_ms >> jitter_ms >> loss && delay_ms >= 0 && jitter_ms >= 0 &&
        loss >= 0 && loss <= 1) {
      way.delay_s = 1e-3 * delay_ms;
      way.jitter_s = 1e-3 * jitter_ms;
      way.loss = loss;
      return "ok";
    }
  }
  return "the router was told \"" + words + "\", expected a line of router.cpp's first";
}

// Answers what has come in; false once it has ended.
bool Router::hear() {
  char words[4096];
  const ssize_t size = read(STDIN_FILENO, words, sizeof words);
  if (size <= 0) return size < 0 && (errno == EAGAIN || errno == EINTR);
  heard_.append(words, size_t(size));
  for (size_t end; (end = heard_.find('\n')) != std::string::npos; heard_.erase(0, end + 1))
    std::printf("%s\n", obey(heard_.substr(0, end)).c_str());
  std::fflush(stdout);
  return true;
}

void Router::work() {
  std::vector<pollfd> comes{{STDIN_FILENO, POLLIN, 0}};
  for (const Host& host : hosts_) comes.push_back({host.device, POLLIN, 0});
  for (;;) {
    hand_on(now_s());
    const double wait = under_way_.empty() ? 1.0 : std::max(0.0, under_way_.front().time - now_s());
    const timespec time{time_t(wait), long(1e9 * (wait - double(time_t(wait))))};
    if (ppoll(comes.data(), comes.size(), &time, nullptr) <= 0) continue;
    if (comes[0].revents != 0 && !hear()) return;
    for (size_t i = 0; i < hosts_.size(); ++i)
      if (comes[i + 1].revents != 0) take(int(i));
  }
}

}  // namespace
}  // namespace router

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string first = std::string(argv[3]) + "." + std::to_string(router::kFirstAddress);
  router::Router router(std::atoi(argv[1]), std::strtoull(argv[2], nullptr, 10),
                        ntohl(inet_addr(first.c_str())));
  router.try_speed();
  // Before whoever computes, where that is allowed: a packet that waits for a processor comes late.
  const sched_param soon{1};
  if (sched_setscheduler(0, SCHED_RR, &soon) != 0) setpriority(PRIO_PROCESS, 0, -20);
  prctl(PR_SET_TIMERSLACK, 1UL);
  std::puts("ready");
  std::fflush(stdout);
  router.work();
  return 0;
}
