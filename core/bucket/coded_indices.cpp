#include "core/bucket/coded_indices.hpp"

#include "core/bucket/wire.hpp"

#include <wire/positions.hpp>

namespace penstock {

uint64_t room_of(const ItemRun& item, const SectionNeed& section) {
  return round_up(section.bytes() +
                  (section.is_coded(item.range.numel) ? wire::kMostHeaderBytes : 0));
}

uint64_t uncoded_capacity(const Coding& coding, const std::vector<size_t>& items, uint32_t round) {
  uint64_t bytes = 0;
  for (const size_t position : items)
    for (const SectionNeed& section : coding.items[position].rounds[round].sections)
      if (section.is_coded(coding.items[position].range.numel)) bytes += round_up(section.bytes());
  return bytes;
}

std::byte* write_coded(const ItemRun& item, std::span<const uint32_t> indices, std::byte* target,
                       kernels::CodePath path) {
  if (indices.empty()) return target;
  const wire::PositionsPlan plan = wire::plan_positions(indices, item.range.numel, path);
  wire::write_positions(plan, indices, item.range.numel, reinterpret_cast<unsigned char*>(target),
                        path);
  return target + plan.bytes();
}

std::string read_coded(const ItemRun& item, std::span<const std::byte> bytes, uint64_t count,
                       uint32_t* indices, uint64_t& taken, kernels::CodePath path) {
  taken = 0;
  if (count == 0) return {};
  wire::PositionsReader<uint32_t> reader(path);
  std::string refused = reader.open(
      {reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()}, item.range.numel);
  if (!refused.empty()) return refused;
  if (reader.left() != count)
    return fmt::format("has {} positions, the header of the message says {}", reader.left(), count);
  taken = reader.bytes();
  return indices == nullptr ? std::string() : reader.take({indices, count});
}

}  // namespace penstock
