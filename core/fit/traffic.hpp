// What a set moves through the network, as planned and as counted, beside what dense all-reduces of
// the same gradients would move.
#pragma once

#include "core/comm/volume.hpp"
#include "core/fit/payload.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

// Bytes that a rank hands over in a step, by the way in which they travel; mean over the phases.
struct PlannedBytes {
  double summed = 0;
  double gathered = 0;
  double pairs = 0;        // added up by a composite, or gathered from device to device
  double coded_pairs = 0;  // the same, as they are gathered through host memory
  double owned = 0;        // gathered by owners
  double spread = 0;       // by all owners together, to all
  double local = 0;    // dense, scattered and spread within a host; all else is then between hosts
  bool bound = false;  // some sections may be smaller: the numbers are the most that travels
  bool open =
      false;  // some sections' sizes are known only when they are made, and count as nothing

  PlannedBytes& operator+=(const PlannedBytes& other);
  PlannedBytes times(double share) const {
    return {summed * share,
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

// Bytes of a section at its capacity in a gathered message; coded, if random positions are taken.
uint64_t gathered_bytes(const SectionNeed& section, uint64_t numel);

// Of the rounds of one gradient of so many bytes and elements in one phase.
PlannedBytes planned_bytes(const std::vector<RoundNeed>& rounds, uint64_t gradient_bytes,
                           uint64_t numel);

// A collective; where it does not tell what it moves, usual formulas count.
struct Carrier {
  const penstock_collective* table = nullptr;
  void* instance = nullptr;
};

// The collectives that carry it.
struct Carriers {
  Carrier world, local, cross;  // by level
  Carrier composite;            // without a table: pairs are gathered
  bool sends_directly = false;  // pairs are gathered from device to device
  uint32_t ranks_per_host = 1;

  // Bytes a rank sends to others, in a world of so many ranks on as many hosts.
  double moved(const PlannedBytes& bytes, uint32_t ranks) const;
  double dense(double gradient_bytes, uint32_t ranks) const;
  // The smallest world in which `bytes` move more than the dense gradients would; 0: none up to
  // 65536 ranks. What a gather moves grows with the ranks, what an all-reduce moves does not.
  uint32_t loses_from(const PlannedBytes& bytes, double gradient_bytes) const;

 private:
  double among(const Carrier& transport, const PlannedBytes& bytes, uint32_t ranks) const;
};

// What is in force from a step on, beside dense all-reduces of the same gradients.
struct StageTraffic {
  uint64_t from_step = 0;
  PlannedBytes bytes;  // that a rank hands over in a step
  double gradient_bytes = 0;
  double moved = 0;         // that a rank sends in a step
  double dense_moved = 0;   // what it would send without compression
  uint32_t loses_from = 0;  // the smallest world in which more is moved than that; 0: none
};

// "3.1 MB": for people.
std::string bytes_text(double bytes);

}  // namespace penstock
