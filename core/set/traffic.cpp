#include "core/set/traffic.hpp"

#include "core/config/defaults.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <penstock/runtime.h>

#include <algorithm>

namespace penstock {
namespace {

std::string advice(const PlannedBytes& bytes, uint32_t set_flags) {
  const std::string uncompressed = fmt::format("compressor = \"{}\"", defaults::kCompressor);
  if (bytes.gathered + bytes.pairs > bytes.summed)
    return "a gathered payload goes to every other rank: use a stronger compression, a compressor "
           "with summed payloads, or " +
           uncompressed;
  return (set_flags & PENSTOCK_SET_RESULT_AT_OWNER) != 0
             ? "low-rank compressors send vectors whole, and sums of several rounds go to every "
               "rank, at twice the bytes of a reduce-scatter to owners (FSDP2): use a compressor "
               "with one summed round or with gathered payloads"
             : "payloads are summed and yet larger than these gradients, which are small: use a "
               "stronger compression (a lower rank), or a rule with " +
                   uncompressed + " for them";
}

// The steps of stage i as text, such as "in steps 0 to 99".
std::string when(const std::vector<StageTraffic>& stages, size_t i) {
  if (stages.size() == 1) return "in every step";
  return i + 1 < stages.size()
             ? fmt::format("in steps {} to {}", stages[i].from_step, stages[i + 1].from_step - 1)
             : fmt::format("from step {} on", stages[i].from_step);
}

}  // namespace

Sent& Sent::operator+=(const Sent& other) {
  handed_over += other.handed_over;
  moved += other.moved;
  messages += other.messages;
  return *this;
}

Sent Sent::operator-(const Sent& other) const {
  return {handed_over - other.handed_over, moved - other.moved, messages - other.messages};
}

Sent Traffic::total() const {
  Sent total;
  for (const Channel* channel : channels_)
    total +=
        {channel->bytes_sent.load(), channel->bytes_moved.load(), channel->messages_sent.load()};
  const DirectTraffic& direct = set_.on_device.traffic;
  total += {direct.handed_over.load(), direct.moved.load(), direct.messages.load()};
  return total;
}

void Traffic::leave_out(const Sent& before) {
  const Sent took = total() - before;
  by_others_ += took;
  by_measurements_ += took;
}

void Traffic::compare(const std::vector<StageTraffic>& stages, uint32_t set_flags) {
  dense_per_step_ = stages.front().dense_moved;
  set_flags_ = set_flags;
  may_send_more_ = std::any_of(stages.begin(), stages.end(),
                               [](const StageTraffic& stage) { return stage.bytes.open; });
  std::vector<std::string> losing;
  PlannedBytes lost;
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageTraffic& stage = stages[i];
    if (stage.moved <= dense_per_step_) continue;
    lost += stage.bytes;
    losing.push_back(fmt::format("{} {}{} (more from {} ranks on)", when(stages, i),
                                 stage.bytes.bound ? "up to " : "", bytes_text(stage.moved),
                                 stage.loses_from));
  }
  if (losing.empty()) return;
  may_send_more_ = false;
  if (set_.rank != 0) return;
  log_.write(LogLevel::warning, "traffic",
             fmt::format("set '{}' moves more than without compression: each of {} ranks sends {} "
                         "a step without, and {}; {}",
                         set_.name, set_.world, bytes_text(dense_per_step_),
                         fmt::join(losing, ", "), advice(lost, set_flags)));
}

void Traffic::compare_counted(uint64_t steps, const Carriers& carriers,
                              const StageTraffic& planned) {
  may_send_more_ = false;
  const Sent sent = by_steps();
  const double moved = double(sent.moved) / double(steps);
  if (set_.rank != 0 || moved <= dense_per_step_) return;
  PlannedBytes bytes = planned.bytes;
  bytes.gathered = std::max(0.0, double(sent.handed_over) / double(steps) - bytes.summed);
  bytes.pairs = bytes.coded_pairs = 0;
  log_.write(
      LogLevel::warning, "traffic",
      fmt::format("set '{}' moves more than without compression: in its first {} steps each "
                  "of {} ranks sent {} a step, without it {} (more from {} ranks on); {}",
                  set_.name, steps, set_.world, bytes_text(moved), bytes_text(dense_per_step_),
                  carriers.loses_from(bytes, planned.gradient_bytes), advice(bytes, set_flags_)));
}

}  // namespace penstock
