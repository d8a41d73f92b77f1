#include "core/fit/traffic.hpp"

#include <fmt/format.h>
#include <wire/positions.hpp>

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr uint32_t kMostRanks = 1u << 16;

// The bytes of a round. A section without a fixed size counts at its capacity, unless the capacity
// is far above the usual size.
struct RoundBytes {
  uint64_t bytes = 0;
  uint64_t coded = 0;  // with coded indices, if messages code them
  bool bound = false, open = false;
};
RoundBytes bytes_of(const RoundNeed& round, uint64_t gradient_bytes, uint64_t numel) {
  const bool is_sum = round.combine == PENSTOCK_COMBINE_SUM;
  RoundBytes fixed, loose;
  for (const SectionNeed& section : round.sections) {
    RoundBytes& part = is_sum || section.exact ? fixed : loose;
    part.bytes += section.bytes();
    part.coded += is_sum ? section.bytes() : gathered_bytes(section, numel);
  }
  // A small loose part is room for rare exceptions, such as zeros among signs, and is not counted.
  if (loose.bytes <= 4 * fixed.bytes) return fixed;
  // A controlled count of entries stays near its capacity. If only scales have a fixed size and
  // there are no indices, capacity for a large part of the gradient is for the worst case.
  const bool has_indices =
      std::any_of(round.sections.begin(), round.sections.end(),
                  [](const SectionNeed& section) { return section.role == PENSTOCK_ROLE_INDICES; });
  const bool has_entries = has_indices || fixed.bytes == 0;
  const uint64_t most = has_entries ? gradient_bytes : gradient_bytes / 4;
  if (fixed.bytes + loose.bytes <= most)
    return {fixed.bytes + loose.bytes, fixed.coded + loose.coded, true};
  return {fixed.bytes, fixed.coded, false, true};
}

double moved_by(const Carrier& carrier, const Spread& spread, uint32_t pattern, double bytes) {
  return moved_bytes(carrier.table, carrier.instance, spread, pattern,
                     static_cast<uint64_t>(std::llround(bytes)));
}

}  // namespace

PlannedBytes& PlannedBytes::operator+=(const PlannedBytes& other) {
  summed += other.summed;
  summed_at_owners += other.summed_at_owners;
  gathered += other.gathered;
  pairs += other.pairs;
  coded_pairs += other.coded_pairs;
  owned += other.owned;
  spread += other.spread;
  local += other.local;
  bound = bound || other.bound;
  open = open || other.open;
  return *this;
}

uint64_t gathered_bytes(const SectionNeed& section, uint64_t numel) {
  return section.is_coded(numel)
             ? wire::expected_positions_bytes(numel, std::min(section.capacity, numel))
             : section.bytes();
}

PlannedBytes planned_bytes(const std::vector<RoundNeed>& rounds, uint64_t gradient_bytes,
                           uint64_t numel) {
  PlannedBytes planned;
  for (size_t r = 0; r < rounds.size(); ++r) {
    const RoundNeed& round = rounds[r];
    const RoundBytes known = bytes_of(round, gradient_bytes, numel);
    planned.open = planned.open || known.open;
    planned.bound = planned.bound || known.bound;
    if (round.combine == PENSTOCK_COMBINE_SUM) {
      planned.summed += double(known.bytes);
    } else if (r + 1 == rounds.size() && round.sparse()) {
      planned.pairs += double(known.bytes);
      planned.coded_pairs += double(known.coded);
    } else {
      planned.gathered += double(known.coded);
    }
  }
  return planned;
}

double Carriers::moved(const PlannedBytes& bytes, uint32_t ranks) const {
  // Each rank exchanges an equal share of its host's bytes.
  const uint32_t on_host = bytes.local == 0 ? 1 : std::min(ranks_per_host, ranks);
  if (on_host == 1) return among(world, bytes, ranks);
  const uint32_t hosts = (ranks + on_host - 1) / on_host;
  const Spread within{1, on_host};
  PlannedBytes between = bytes.times(1.0 / on_host);
  between.local = 0;
  return moved_by(local, within, PENSTOCK_REDUCE_SCATTER, bytes.local) +
         moved_by(local, within, PENSTOCK_ALL_GATHER, bytes.local / on_host) +
         among(cross, between, hosts);
}

// The bytes that a rank sends to other ranks if each rank has its own host.
double Carriers::among(const Carrier& transport, const PlannedBytes& bytes, uint32_t ranks) const {
  const Spread spread{ranks, 1};
  const double pairs = composite.table == nullptr
                           ? moved_by(transport, spread, PENSTOCK_ALL_GATHER,
                                      sends_directly ? bytes.pairs : bytes.coded_pairs)
                           : moved_by(composite, spread, PENSTOCK_SPARSE_ALL_REDUCE, bytes.pairs);
  return moved_by(transport, spread, PENSTOCK_ALL_REDUCE, bytes.summed) +
         moved_by(transport, spread, PENSTOCK_REDUCE_SCATTER, bytes.summed_at_owners) +
         moved_by(transport, spread, PENSTOCK_ALL_GATHER, bytes.gathered) +
         moved_by(transport, spread, PENSTOCK_ALL_TO_ALL, bytes.owned) +
         moved_by(transport, spread, PENSTOCK_ALL_GATHER, bytes.spread / ranks) + pairs;
}

double Carriers::dense(double gradient_bytes, uint32_t ranks) const {
  return moved_by(world, {ranks, 1}, PENSTOCK_ALL_REDUCE, gradient_bytes);
}

uint32_t Carriers::loses_from(const PlannedBytes& bytes, double gradient_bytes) const {
  const auto loses = [&](uint32_t ranks) {
    return moved(bytes, ranks) > dense(gradient_bytes, ranks);
  };
  uint32_t more = 2, fewer = 1;
  for (; !loses(more); more *= 2) {
    if (more >= kMostRanks) return 0;
    fewer = more;
  }
  while (more - fewer > 1) {
    const uint32_t middle = fewer + (more - fewer) / 2;
    (loses(middle) ? more : fewer) = middle;
  }
  return more;
}

std::string bytes_text(double bytes) {
  const char* const units[] = {"bytes", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit) bytes /= 1000;
  if (unit == 0) return fmt::format("{:.0f} bytes", bytes);
  return fmt::format("{:.{}f} {}", bytes, bytes < 10 ? 2 : bytes < 100 ? 1 : 0, units[unit]);
}

}  // namespace penstock
