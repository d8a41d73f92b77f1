#include "core/trace/timeline.hpp"

#include <nlohmann/json.hpp>

namespace penstock {
namespace {

constexpr auto kBetweenWrites = std::chrono::milliseconds(500);
constexpr size_t kManySpans = 1 << 14;  // at this number the writer wakes early

// Names come from plugins and frontends, so invalid UTF-8 is replaced.
void add_event(std::string& events, const nlohmann::json& event) {
  if (!events.empty()) events += ",\n";
  events += event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

nlohmann::json arguments_of(const Span& span) {
  nlohmann::json arguments = nlohmann::json::object();
  if (span.operation == 0) arguments["step"] = span.step;
  if (!span.scheme.empty()) arguments["scheme"] = span.scheme;
  if (span.bytes != 0) arguments["bytes"] = span.bytes;
  return arguments;
}

}  // namespace

Timeline::~Timeline() {
  (void)stop();
}

Status Timeline::start(const std::string& path) {
  PENSTOCK_TRY(stop());
  const Lock control(control_);
  PENSTOCK_TRY(file_.open(path));
  lanes_.clear();
  {
    const Lock lock(mutex_);
    spans_.clear();
    spans_.reserve(kManySpans);
    stopping_ = false;
  }
  std::string events;
  add_event(events, {{"ph", "M"},
                     {"pid", rank_},
                     {"name", "process_name"},
                     {"args", {{"name", fmt::format("rank {}", rank_)}}}});
  PENSTOCK_TRY(file_.append(events));
  writer_ = std::thread([this] { loop(); });
  enabled_.store(true);
  return {};
}

Status Timeline::stop() {
  const Lock control(control_);
  enabled_.store(false);
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (writer_.joinable()) writer_.join();
  file_.close();
  return {};
}

void Timeline::add(Span span) {
  const Lock lock(mutex_);
  if (!enabled_.load()) return;
  spans_.push_back(std::move(span));
  if (spans_.size() >= kManySpans) wake_.notify_one();
}

void Timeline::add_operation(std::string_view pattern, std::string_view name, uint64_t asked_us,
                             uint64_t sent_us, uint64_t end_us, uint64_t bytes) {
  const Lock lock(mutex_);
  if (!enabled_.load()) return;
  const uint64_t number = next_operation_++;
  spans_.push_back(
      {std::string(pattern), std::string(name), asked_us, end_us, 0, {}, bytes, number});
  if (sent_us != 0)
    spans_.push_back({"negotiate", std::string(name), asked_us, sent_us, 0, {}, 0, number});
}

void Timeline::flush() {
  Lock lock(mutex_);
  if (!enabled_.load()) return;
  flushing_ = true;
  wake_.notify_one();
  written_.wait(mutex_, [this]() PENSTOCK_REQUIRES(mutex_) { return !flushing_ || stopping_; });
}

void Timeline::loop() {
  std::vector<Span> taken;
  Lock lock(mutex_);
  for (bool last = false; !last;) {
    wake_.wait_for(mutex_, kBetweenWrites, [this]() PENSTOCK_REQUIRES(mutex_) {
      return stopping_ || flushing_ || spans_.size() >= kManySpans;
    });
    last = stopping_;
    const bool flushed = flushing_;
    taken.swap(spans_);
    lock.unlock();
    write(taken);
    taken.clear();
    lock.lock();
    if (flushed) {
      flushing_ = false;
      written_.notify_all();
    }
  }
  flushing_ = false;
  written_.notify_all();
}

int Timeline::lane_number(const std::string& lane, std::string& events) {
  const auto [found, is_new] = lanes_.try_emplace(lane, int(lanes_.size()));
  if (is_new)
    add_event(events, {{"ph", "M"},
                       {"pid", rank_},
                       {"tid", found->second},
                       {"name", "thread_name"},
                       {"args", {{"name", lane}}}});
  return found->second;
}

void Timeline::write(const std::vector<Span>& spans) {
  std::string events;
  for (const Span& span : spans) {
    nlohmann::json event{{"pid", rank_}, {"args", arguments_of(span)}};
    if (span.operation == 0) {
      event["ph"] = "X";
      event["tid"] = lane_number(span.lane, events);
      event["name"] = span.stage;
      event["ts"] = span.start_us;
      event["dur"] = span.end_us - span.start_us;
      add_event(events, event);
      continue;
    }
    // Operations may overlap, so each operation has its own track.
    event["cat"] = "operation";
    event["id"] = span.operation;
    event["tid"] = lane_number("operations", events);
    event["name"] = span.stage == "negotiate" ? span.stage : span.stage + " " + span.lane;
    event["ph"] = "b";
    event["ts"] = span.start_us;
    add_event(events, event);
    event["ph"] = "e";
    event["ts"] = span.end_us;
    add_event(events, event);
  }
  const Status status = file_.append(events);
  if (status.ok()) return;
  file_.close();
  enabled_.store(false);
  if (warn_)
    warn_(
        fmt::format("{}; the trace ends here and the run goes on: make room, or give another path",
                    status.message()));
}

}  // namespace penstock
