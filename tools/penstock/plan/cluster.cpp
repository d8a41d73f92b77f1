#include "tools/penstock/plan/cluster.hpp"

#include "core/fit/resolve.hpp"
#include "core/plan/route.hpp"
#include "tools/penstock/plan/tables.hpp"

#include <kernels/message.hpp>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

namespace penstock::command {

namespace {

constexpr std::array<std::pair<std::string_view, double>, 4> kRates{
    {{"tbit", 1e12}, {"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}}};
constexpr double kBitsPerByte = 8;

// The time of a byte on a link with this speed.
double us_per_byte(double bits) {
  return kBitsPerByte * 1e6 / bits;
}

// The volume of an operation as the collective reports it; if it reports none, the volume of direct
// sends.
void volume_of(const CollectiveInstance* by, uint32_t pattern, uint32_t hosts,
               uint32_t ranks_per_host, uint64_t bytes, penstock_volume& within,
               penstock_volume& between) {
  if (by != nullptr && PENSTOCK_HAS_MEMBER(by->table(), penstock_collective, volume)) {
    penstock_volume* const volumes[] = {&within, &between};
    const Status status =
        from_c(by->table()->volume(by->self(), pattern, hosts, ranks_per_host, bytes, volumes));
    const double reported = within.bytes + between.bytes + within.startups + between.startups;
    if (status.ok() && std::isfinite(reported) && reported >= 0) return;
  }
  sdk::direct_volume(pattern, hosts, ranks_per_host, bytes, within, between);
}

}  // namespace

namespace {

// The unit behind a number: a prefix, bits in one of several spellings, and "per second".
struct Unit {
  double factor = 0;  // 0: the text is no unit
  bool is_bytes = false;
};

Unit unit_of(std::string_view text) {
  Unit unit;
  constexpr std::string_view kPrefixes = "kmgt";
  const auto lower = [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  };
  double factor = 1;
  if (const size_t at = text.empty() ? text.npos : kPrefixes.find(lower(text[0]));
      at != text.npos) {
    factor = std::pow(1e3, static_cast<double>(at + 1));
    text.remove_prefix(1);
  }
  std::string rest;
  for (const char c : text) rest += lower(c);
  for (const char* per : {"/s", "/sec", "ps"})
    if (rest.size() > std::string_view(per).size() && rest.ends_with(per)) {
      rest.resize(rest.size() - std::string_view(per).size());
      break;
    }
  unit.is_bytes = (rest == "b" && text[0] == 'B') || rest == "byte" || rest == "bytes";
  const bool is_bits = rest == "b" || rest == "bit" || rest == "bits";
  // "10G" is a speed; "10" without a unit is refused.
  if (is_bits || unit.is_bytes || (rest.empty() && factor > 1)) unit.factor = factor;
  return unit;
}

constexpr double kLeastRate = 1, kMostRate = 1e15;  // bits per second: times stay finite

}  // namespace

Result<double> bits_per_second(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit_text = text.substr(static_cast<size_t>(end - text.data()));
  while (unit_text.starts_with(' ')) unit_text.remove_prefix(1);
  const Unit unit = unit_of(unit_text);
  const double bits = value * unit.factor;
  const bool is_number = error == std::errc() && std::isfinite(value);
  if (is_number && unit.is_bytes)
    return invalid_argument(
        "\"{}\" counts bytes, but the speed of a link counts bits, expected {:g}gbit", text,
        kBitsPerByte * bits / 1e9);
  if (!is_number || unit.factor == 0)
    return invalid_argument(
        "\"{}\" is no speed of a link, expected a number above 0 and kbit, mbit, gbit or tbit, "
        "like 2.5gbit",
        text);
  if (bits >= kLeastRate && bits <= kMostRate) return bits;
  return invalid_argument("\"{}\" is a speed out of range, expected {} to {}", text, "1 bit/s",
                          rate_text(kMostRate));
}

std::string rate_text(double bits) {
  for (const auto& [unit, factor] : kRates)
    if (bits >= factor * 0.9995 || factor == kRates.back().second)
      return fmt::format("{:.4g} {}{}/s", bits / factor, char(std::toupper(unit[0])),
                         unit.substr(1));
  return {};
}

Transports::Transports(const Scheme& scheme, Registry& registry) {
  const auto make = [&](const std::string& name, std::unique_ptr<CollectiveInstance>& made) {
    if (name.empty()) return;
    auto instance = make_instance<penstock_collective>(scheme, name, registry);
    if (instance.ok()) made = std::move(instance.value());
  };
  const bool composes = !scheme.transport.empty();
  make(composes ? scheme.transport : scheme.collective, world_);
  if (composes) make(scheme.collective, composite_);
  make(scheme.local_transport, local_);
  make(scheme.cross_transport, cross_);
}

Exchange Transports::operation(const Cluster& cluster, uint32_t pattern, double bytes) const {
  return operation(cluster, {world_.get(), cluster.hosts, cluster.ranks_per_host, 1}, pattern,
                   bytes);
}

Exchange Transports::operation(const Cluster& cluster, const Group& group, uint32_t pattern,
                               double bytes) const {
  if (group.hosts * group.ranks_per_host < 2 || bytes <= 0) return {};
  penstock_volume within{sizeof within, 0, 0, 0}, between{sizeof between, 0, 0, 0};
  volume_of(group.by, pattern, group.hosts, group.ranks_per_host,
            static_cast<uint64_t>(std::llround(bytes)), within, between);
  const double on_link =
      between.bytes * group.ranks_per_host * group.beside * (1 + cluster.headers);
  const double far =
      between.startups * cluster.latency_us + on_link * us_per_byte(cluster.link_bits);
  const double near =
      within.startups * cluster.local_latency_us + within.bytes * us_per_byte(cluster.local_bits);
  return {std::max(far, near), within.bytes + between.bytes};
}

// The exchange of payloads in a group. Each kind of payload is a separate operation. If there are
// more rounds than kinds, each further round costs another start-up.
Exchange Transports::coded(const Cluster& cluster, const Group& group, const PlannedBytes& bytes,
                           uint32_t rounds) const {
  const Group sparse{composite_.get(), group.hosts, group.ranks_per_host, group.beside};
  const std::pair<uint32_t, double> kinds[] = {
      {PENSTOCK_ALL_REDUCE, bytes.summed},
      {PENSTOCK_ALL_GATHER, bytes.gathered},
      {PENSTOCK_ALL_TO_ALL, bytes.owned},
      {PENSTOCK_ALL_GATHER, bytes.spread / (group.hosts * group.ranks_per_host)}};
  Exchange total;
  uint32_t operations = bytes.pairs > 0 ? 1 : 0;
  for (const auto& [pattern, of_kind] : kinds) {
    total += operation(cluster, group, pattern, of_kind);
    operations += of_kind > 0 ? 1 : 0;
  }
  total += composite_ == nullptr
               ? operation(cluster, group, PENSTOCK_ALL_GATHER, bytes.coded_pairs)
               : operation(cluster, sparse, PENSTOCK_SPARSE_ALL_REDUCE, bytes.pairs);
  for (uint32_t more = std::max(operations, 1u); more < rounds; ++more)
    total.us += operation(cluster, group, PENSTOCK_ALL_REDUCE, 1).us;
  return total;
}

Transports::Legs Transports::exchange(const Cluster& cluster, uint32_t route,
                                      const PlannedBytes& bytes, uint32_t rounds) const {
  if (halves_sums(route)) return split(cluster, bytes);
  if (adds_in_hosts(route)) return hierarchical(cluster, bytes, rounds);
  const Group everyone{world_.get(), cluster.hosts, cluster.ranks_per_host, 1};
  return {coded(cluster, everyone, bytes, rounds), {}};
}

Transports::Legs Transports::split(const Cluster& cluster, const PlannedBytes& bytes) const {
  return {operation(cluster, PENSTOCK_REDUCE_SCATTER, bytes.summed),
          operation(cluster, PENSTOCK_ALL_GATHER, bytes.summed / cluster.ranks())};
}

// The legs of route hierarchical. Every rank exchanges its share of its host's data, all ranks of a
// host at once.
Transports::Legs Transports::hierarchical(const Cluster& cluster, const PlannedBytes& bytes,
                                          uint32_t rounds) const {
  const uint32_t share = cluster.ranks_per_host;
  const Group host{local_ ? local_.get() : world_.get(), 1, share, 1};
  const Group across{cross_ ? cross_.get() : world_.get(), cluster.hosts, 1, share};
  PlannedBytes between = bytes.times(1.0 / share);
  Legs legs;
  legs.backward += operation(cluster, host, PENSTOCK_REDUCE_SCATTER, bytes.local);
  legs.backward += coded(cluster, across, between, rounds);
  legs.backward += operation(cluster, host, PENSTOCK_ALL_GATHER, bytes.local / share);
  return legs;
}

}  // namespace penstock::command
