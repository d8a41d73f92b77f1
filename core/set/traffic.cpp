// What a set moves through the network: planned, counted, and said to people.

#include "core/set/set.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {

Set::Traffic& Set::Traffic::operator+=(const Traffic& other) {
  handed_over += other.handed_over;
  moved += other.moved;
  messages += other.messages;
  return *this;
}

Set::Traffic Set::Traffic::operator-(const Traffic& other) const {
  return {handed_over - other.handed_over, moved - other.moved, messages - other.messages};
}

Set::Traffic Set::traffic() const {
  Traffic total;
  for (const Channel* opened : open_channels_)
    total += {opened->bytes_sent.load(), opened->bytes_moved.load(), opened->messages_sent.load()};
  total += {direct_traffic.handed_over.load(), direct_traffic.moved.load(),
            direct_traffic.messages.load()};
  return total;
}

// ---- as planned ----

Carriers Set::carriers() const {
  Carriers carriers;
  const auto carrier_at = [&](uint32_t level) -> Carrier {
    const CollectiveInstance& transport = services_.transports.at(level);
    return {transport.table(), transport.self()};
  };
  carriers.world = carrier_at(PENSTOCK_LEVEL_WORLD);
  carriers.local = carrier_at(PENSTOCK_LEVEL_LOCAL);
  carriers.cross = carrier_at(PENSTOCK_LEVEL_CROSS);
  carriers.ranks_per_host = owners_per_host;
  if (composite_ != nullptr) carriers.composite = {composite_->table(), composite_->self()};
  return carriers;
}

// ---- said to people ----

namespace {

std::string advice(const PlannedBytes& bytes, uint32_t set_flags) {
  const std::string uncompressed = fmt::format("compressor = \"{}\"", defaults::kCompressor);
  if (bytes.gathered + bytes.pairs > bytes.summed)
    return "a gathered payload goes to every other rank: take a stronger compression, one that "
           "is summed, or " +
           uncompressed;
  return (set_flags & PENSTOCK_SET_RESULT_AT_OWNER) != 0
             ? "a sum goes to every rank, at twice the bytes of a reduce-scatter to owners "
               "(FSDP2), "
               "and vectors are sent whole by low-rank compressors: take a stronger compression, "
               "or one whose payloads are gathered"
             : "payloads are summed and yet larger than these gradients, which are small: take a "
               "stronger compression (a lower rank), or a rule with " +
                   uncompressed + " for them";
}

}  // namespace

// Rank 0 says once where a scheme moves more than no compression would: it does what it says, and
// yet the run is slower for it.
void Set::warn(const std::vector<StageTraffic>& stages) {
  dense_moved_per_step_ = stages.front().dense_moved;
  may_move_more_ = std::any_of(stages.begin(), stages.end(),
                               [](const StageTraffic& stage) { return stage.bytes.open; });
  std::vector<std::string> losing;
  PlannedBytes lost;
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageTraffic& stage = stages[i];
    if (stage.moved <= dense_moved_per_step_) continue;
    lost += stage.bytes;
    std::string when = "in every step";
    if (stages.size() > 1)
      when = i + 1 < stages.size()
                 ? fmt::format("in steps {} to {}", stage.from_step, stages[i + 1].from_step - 1)
                 : fmt::format("from step {} on", stage.from_step);
    losing.push_back(fmt::format("{} {}{} (more from {} ranks on)", when,
                                 stage.bytes.bound ? "up to " : "", bytes_text(stage.moved),
                                 stage.loses_from));
  }
  if (losing.empty()) return;
  may_move_more_ = false;
  if (rank != 0) return;
  services_.log.write(
      LogLevel::warning, "traffic",
      fmt::format("set '{}' moves more than without compression: each of {} ranks sends {} a step "
                  "without, and {}; {}",
                  name, world, bytes_text(dense_moved_per_step_), fmt::join(losing, ", "),
                  advice(lost, frontend_flags_)));
}

// The same from what was counted, where payloads have no planned size.
void Set::warn_of_what_was_moved() {
  if (!may_move_more_) return;
  may_move_more_ = false;
  const double steps = double(totals_.steps);
  const Traffic since = traffic() - traffic_at_start_;
  const double moved = double(since.moved) / steps;
  if (rank != 0 || moved <= dense_moved_per_step_) return;
  const StageTraffic planned = planned_traffic();
  PlannedBytes bytes = planned.bytes;
  bytes.gathered = std::max(0.0, double(since.handed_over) / steps - bytes.summed);
  bytes.pairs = 0;
  services_.log.write(
      LogLevel::warning, "traffic",
      fmt::format("set '{}' moves more than without compression: in its first {} steps each of {} "
                  "ranks sent {} a step, without it {} (more from {} ranks on); {}",
                  name, totals_.steps, world, bytes_text(moved), bytes_text(dense_moved_per_step_),
                  carriers().loses_from(bytes, planned.gradient_bytes),
                  advice(bytes, frontend_flags_)));
}

}  // namespace penstock
