// Predicts the bytes that a set moves through the network, and the bytes that dense all-reduces of
// its gradients would move.
#pragma once

#include "core/comm/volume.hpp"
#include "core/fit/payload.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

// Bytes that a rank hands over in a step, by manner of travel; mean over the phases.
struct PlannedBytes {
  double summed = 0;
  double summed_at_owners = 0;  // sums of which each rank receives its own part
  double gathered = 0;
  double pairs = 0;        // added up by a composite, or gathered from device to device
  double coded_pairs = 0;  // these pairs with coded indices, gathered through host memory
  double owned = 0;        // sent to the owners, which gather them
  double spread = 0;       // sent by all owners together, to all ranks
  double local = 0;    // dense, scattered and spread within a host; the rest is then between hosts
  bool bound = false;  // some sections may be smaller: the numbers are upper bounds
  bool open =
      false;  // the sizes of some sections are known only when encoded, and count as nothing

  PlannedBytes& operator+=(const PlannedBytes& other);
  PlannedBytes times(double share) const {
    return {summed * share,
            summed_at_owners * share,
            gathered * share,
            pairs * share,
            coded_pairs * share,
            owned * share,
            spread * share,
            local * share,
            bound,
            open};
  }
};

// Bytes of a full section in a gathered message; for coded indices, the mean for random positions.
uint64_t gathered_bytes(const SectionNeed& section, uint64_t numel);

// The bytes of one gradient in one phase. `gradient_bytes`, `numel`: its size, dense.
PlannedBytes planned_bytes(const std::vector<RoundNeed>& rounds, uint64_t gradient_bytes,
                           uint64_t numel);

// A collective. If it does not report the bytes that it moves, the usual formulas are used.
struct Carrier {
  const penstock_collective* table = nullptr;
  void* instance = nullptr;
};

// The collectives that carry the traffic of a set.
struct Carriers {
  Carrier world, local, cross;  // by level
  Carrier composite;            // no table: there is none, pairs are gathered
  bool sends_directly = false;  // pairs are gathered from device to device
  uint32_t ranks_per_host = 1;

  // Bytes that a rank sends to others. moved(): in a world of `ranks` ranks; if `bytes` has a local
  // part, `ranks_per_host` share a host, else each rank has its own.
  double moved(const PlannedBytes& bytes, uint32_t ranks) const;
  double dense(double gradient_bytes, uint32_t ranks) const;
  // The smallest world in which `bytes` move more than the dense gradients would; 0: none up to
  // 65536 ranks. The bytes of a gather grow with the ranks, the bytes of an all-reduce do not.
  uint32_t loses_from(const PlannedBytes& bytes, double gradient_bytes) const;

 private:
  double among(const Carrier& transport, const PlannedBytes& bytes, uint32_t ranks) const;
};

// The traffic of a stage from a step on, and the traffic of dense all-reduces of its gradients.
struct StageTraffic {
  uint64_t from_step = 0;
  PlannedBytes bytes;  // bytes that a rank hands over in a step
  double gradient_bytes = 0;
  double moved = 0;         // bytes that a rank sends in a step
  double dense_moved = 0;   // bytes that it would send without compression
  uint32_t loses_from = 0;  // the smallest world in which compression moves more; 0: none
};

// A number of bytes as text, like "3.1 MB".
std::string bytes_text(double bytes);

}  // namespace penstock
