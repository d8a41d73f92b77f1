#include "core/trace/timeline.hpp"

#include <nlohmann/json.hpp>

#include <fstream>
#include <map>

namespace penstock {

Timeline::~Timeline() {
  (void)stop();
}

Status Timeline::start(const std::string& path) {
  PENSTOCK_TRY(stop());
  std::ofstream probe(path);
  if (!probe)
    return not_found("the timeline cannot be written to '{}': give a path in a folder that exists",
                     path);
  std::lock_guard lock(mutex_);
  path_ = path;
  spans_.clear();
  spans_.reserve(1 << 14);
  enabled_.store(true);
  return {};
}

void Timeline::add(std::string_view stage, std::string_view lane, uint64_t start_us,
                   uint64_t end_us, uint64_t step) {
  std::lock_guard lock(mutex_);
  if (!enabled_.load()) return;
  spans_.push_back({std::string(stage), std::string(lane), start_us, end_us, step});
}

Status Timeline::stop() {
  std::lock_guard lock(mutex_);
  if (!enabled_.exchange(false)) return {};
  nlohmann::json events = nlohmann::json::array();
  std::map<std::string, int> lanes;
  for (const Span& span : spans_) lanes.emplace(span.lane, 0);
  int next = 0;
  for (auto& [lane, number] : lanes) {
    number = next++;
    events.push_back({{"ph", "M"},
                      {"pid", rank_},
                      {"tid", number},
                      {"name", "thread_name"},
                      {"args", {{"name", lane}}}});
  }
  events.push_back({{"ph", "M"},
                    {"pid", rank_},
                    {"name", "process_name"},
                    {"args", {{"name", fmt::format("rank {}", rank_)}}}});
  for (const Span& span : spans_)
    events.push_back({{"ph", "X"},
                      {"pid", rank_},
                      {"tid", lanes[span.lane]},
                      {"name", span.stage},
                      {"ts", span.start_us},
                      {"dur", span.end_us - span.start_us},
                      {"args", {{"step", span.step}}}});
  spans_.clear();
  std::ofstream file(path_);
  file << nlohmann::json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump();
  if (!file.flush()) return internal("the timeline could not be written to '{}'", path_);
  return {};
}

}  // namespace penstock
