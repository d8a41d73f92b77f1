#include "core/pipeline/traffic.hpp"

#include <fmt/format.h>

#include <cmath>

namespace penstock {
namespace {

constexpr uint32_t kMostRanks = 1u << 16;

uint64_t whole(double bytes) {
  return static_cast<uint64_t>(std::llround(bytes));
}

}  // namespace

PlannedBytes& PlannedBytes::operator+=(const PlannedBytes& other) {
  summed += other.summed;
  gathered += other.gathered;
  pairs += other.pairs;
  bound = bound || other.bound;
  open = open || other.open;
  return *this;
}

PlannedBytes planned_bytes(const std::vector<RoundNeed>& rounds, uint64_t gradient_bytes) {
  PlannedBytes planned;
  for (size_t r = 0; r < rounds.size(); ++r) {
    const RoundNeed& round = rounds[r];
    const bool is_sum = round.combine == PENSTOCK_COMBINE_SUM;
    uint64_t fixed = 0, loose = 0;
    for (const SectionNeed& section : round.sections)
      (is_sum || section.exact ? fixed : loose) += section.bytes();
    const bool unknown = fixed == 0 && loose > gradient_bytes;
    const auto bytes = static_cast<double>(fixed != 0 ? fixed : unknown ? 0 : loose);
    planned.open = planned.open || unknown;
    planned.bound = planned.bound || (fixed == 0 && loose != 0 && !unknown);
    (is_sum                                     ? planned.summed
     : r + 1 == rounds.size() && round.sparse() ? planned.pairs
                                                : planned.gathered) += bytes;
  }
  return planned;
}

double Carriers::moved(const PlannedBytes& bytes, uint32_t ranks) const {
  const Spread spread{ranks, 1};
  const auto by_transport = [&](uint32_t pattern, double count) {
    return moved_bytes(transport, transport_instance, spread, pattern, whole(count));
  };
  const double pairs = composite == nullptr
                           ? by_transport(PENSTOCK_ALL_GATHER, bytes.pairs)
                           : moved_bytes(composite, composite_instance, spread,
                                         PENSTOCK_SPARSE_ALL_REDUCE, whole(bytes.pairs));
  return by_transport(PENSTOCK_ALL_REDUCE, bytes.summed) +
         by_transport(PENSTOCK_ALL_GATHER, bytes.gathered) + pairs;
}

double Carriers::dense(double gradient_bytes, uint32_t ranks) const {
  return moved_bytes(transport, transport_instance, {ranks, 1}, PENSTOCK_ALL_REDUCE,
                     whole(gradient_bytes));
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
