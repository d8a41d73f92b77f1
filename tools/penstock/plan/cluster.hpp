// Hosts and links of a cluster, and the predicted time of an exchange on them.
//
// A message costs the latency for each start-up, plus its bytes over the speed of the slowest link
// that it crosses. The scheme's collective reports start-ups and bytes (penstock_collective's
// volume). The ranks of a host share the host's link to the other hosts. The operations of one
// bucket run one after another.
#pragma once

#include "core/config/config.hpp"
#include "core/fit/traffic.hpp"
#include "core/plugin/instances.hpp"
#include "core/plugin/registry.hpp"

#include <memory>
#include <string_view>
#include <vector>

namespace penstock::command {

struct Cluster {
  uint32_t hosts = 4;
  uint32_t ranks_per_host = 1;
  double link_bits = 1e9;     // bits per second between a host and the others, each way
  double local_bits = 100e9;  // bits per second of a rank within its host
  double latency_us = 10;     // of each start-up between hosts
  double local_latency_us = 1;
  double headers = 0.046;  // bytes of headers per byte of data on a link between hosts
  double straggler = 1;    // factor by which one rank computes, encodes and decodes more slowly
  double jitter = 0;       // relative deviation of every gradient's time on every rank
  uint64_t seed = 1;       // seed of the jitter

  uint32_t ranks() const { return hosts * ranks_per_host; }
};

// Reads a speed such as "10mbit", "2.5Gbps", "100 kbit/s" or "10G" as bits per second. Any other
// text is INVALID_ARGUMENT, also a speed in bytes.
Result<double> bits_per_second(std::string_view text);
// Writes a speed for people: "10 Mbit/s".
std::string rate_text(double bits_per_second);

// The cost of an exchange: its time in microseconds, and the bytes that one rank sends to others.
struct Exchange {
  double us = 0;
  double bytes = 0;
  Exchange& operator+=(const Exchange& other) {
    us += other.us;
    bytes += other.bytes;
    return *this;
  }
};

// The collectives of a scheme. For a collective that cannot be made on this machine, the formulas
// of direct sends count.
class Transports {
 public:
  Transports(const Scheme& scheme, Registry& registry);

  // The legs of a route: one part runs in backward, the other in the next forward.
  struct Legs {
    Exchange backward, forward;
  };
  // Predicts the exchange of a bucket in `rounds` rounds on this route.
  Legs exchange(const Cluster& cluster, uint32_t route, const PlannedBytes& bytes,
                uint32_t rounds) const;
  // Predicts one operation over all ranks.
  Exchange operation(const Cluster& cluster, uint32_t pattern, double bytes) const;

  const CollectiveInstance* world() const { return world_.get(); }

 private:
  // A group of ranks by hosts; `beside` is the number of such groups that share a host's link.
  struct Group {
    const CollectiveInstance* by;
    uint32_t hosts, ranks_per_host, beside;
  };
  Exchange operation(const Cluster& cluster, const Group& group, uint32_t pattern,
                     double bytes) const;
  Exchange coded(const Cluster& cluster, const Group& group, const PlannedBytes& bytes,
                 uint32_t rounds) const;
  Legs hierarchical(const Cluster& cluster, const PlannedBytes& bytes, uint32_t rounds) const;
  Legs split(const Cluster& cluster, const PlannedBytes& bytes) const;

  std::unique_ptr<CollectiveInstance> world_, local_, cross_, composite_;
};

}  // namespace penstock::command
