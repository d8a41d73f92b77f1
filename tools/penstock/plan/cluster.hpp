// Hosts and links, and what an exchange takes on them.
//
// A message costs latency for each start-up and bytes over the speed of the slowest link it
// crosses; both numbers are what the scheme's collective says of itself (penstock_collective's
// volume). The ranks of a host share its link to the others. Operations of one bucket follow each
// other.
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
  double link_bits = 1e9;     // per second, of a host to the others, each way
  double local_bits = 100e9;  // per second, of a rank within its host
  double latency_us = 10;     // of a message between hosts, as often as messages follow each other
  double local_latency_us = 1;
  double headers = 0.046;  // on a link between hosts, as a share of what they carry
  double straggler = 1;    // how much longer one rank computes, encodes and decodes
  double jitter = 0;       // deviation of every gradient's time on every rank, as a share of it
  uint64_t seed = 1;       // of the jitter

  uint32_t ranks() const { return hosts * ranks_per_host; }
};

// "10mbit", "2.5Gbps", "100 kbit/s", "10G": bits per second. INVALID_ARGUMENT for anything else,
// also for bytes.
Result<double> bits_per_second(std::string_view text);
// "10 Mbit/s": for people.
std::string rate_text(double bits_per_second);

// What ranks exchange: microseconds, and the bytes that one of them sends to others.
struct Exchange {
  double us = 0;
  double bytes = 0;
  Exchange& operator+=(const Exchange& other) {
    us += other.us;
    bytes += other.bytes;
    return *this;
  }
};

// The collectives of a scheme. Where one cannot be made here, the formulas of straight sends count.
class Transports {
 public:
  Transports(const Scheme& scheme, Registry& registry);

  // The legs of a route in backward, and in the next forward: `rounds` of them.
  struct Legs {
    Exchange backward, forward;
  };
  Legs exchange(const Cluster& cluster, uint32_t route, const PlannedBytes& bytes,
                uint32_t rounds) const;
  // One operation over all ranks.
  Exchange operation(const Cluster& cluster, uint32_t pattern, double bytes) const;

  const CollectiveInstance* world() const { return world_.get(); }

 private:
  // Ranks of a group by hosts, and how many such groups share a host's link.
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
