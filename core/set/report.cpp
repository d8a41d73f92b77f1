// What people are told of a set: its report and counters, a line at its start and end, and where
// values that are not finite came from.

#include "core/base/hash.hpp"
#include "core/bucket/direct.hpp"
#include "core/bucket/engine.hpp"
#include "core/set/set.hpp"
#include "core/tensor/dtype.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <planning/forecast.hpp>

namespace penstock {
namespace {

// Rank 0 waits this long in all for what the others say of their waiting, at the end of a set.
constexpr uint64_t kLastWordsUs = 2'000'000;

std::string share(double part, double whole) {
  return fmt::format("{:.0f} %", whole > 0 ? 100 * part / whole : 0);
}

// What the plan in force is expected to take, phase by phase, by the model as it stands: what is
// not measured counts as zero.
nlohmann::json forecast_of(const Plan& plan, planning::ModelEntries entries) {
  const planning::OwnedModel model(std::move(entries));
  nlohmann::json phases = nlohmann::json::array();
  for (uint32_t phase = 0; phase < plan.period; ++phase) {
    const planning::Forecast expected = planning::forecast(plan, model.model(), phase);
    phases.push_back({{"phase", phase},
                      {"exposed_us", expected.exposed_us},
                      {"encode_us", expected.encode_us},
                      {"exchange_us", expected.exchange_us},
                      {"decode_us", expected.decode_us},
                      {"end_us", expected.end},
                      {"bytes", expected.bytes}});
  }
  return {{"measured", (model.model().flags & PENSTOCK_MODEL_MEASURED) != 0}, {"phases", phases}};
}

// What a step copies so that it can be forgotten; sweeps that read one generation and write the
// next copy nothing.
uint64_t copied_per_step(Works& works) {
  uint64_t bytes = 0;
  for (const auto& bucket : works.phase(0))
    for (const auto& coding : bucket->codings)
      for (const ItemRun& item : coding->items)
        for (const StateView* state : item.states)
          if (state->before() != nullptr && !item.is_folded_over(*state))
            bytes += state->c()->numel * dtype_bytes(state->c()->dtype);
  return bytes;
}

}  // namespace

void Set::counters(penstock_counters& counters) const {
  std::lock_guard lock(mutex_);
  const uint64_t size = counters.struct_size;
  counters = totals_;
  counters.struct_size = size;
  counters.wait_us = step_.waited_us();
  const Sent since = traffic_.by_steps();
  counters.payload_bytes = since.handed_over;
  counters.messages = since.messages;
  counters.moved_bytes = since.moved;
  counters.dense_moved_bytes = static_cast<uint64_t>(dense_moved_);
  counters.void_buckets = void_buckets.load();
  counters.allocations = totals_.steps > 2 ? engine->allocations() - allocations_at_steady_ : 0;
}

Result<std::string> Set::report() {
  nlohmann::json buckets = nlohmann::json::array();
  for (uint32_t phase = 0; phase < works_->period(); ++phase)
    for (const auto& bucket : works_->phase(phase)) {
      nlohmann::json items = nlohmann::json::array();
      for (const ItemRun& item : bucket->codings.front()->items) {
        uint64_t bytes = 0;
        for (const RoundNeed& round : item.rounds)
          for (const SectionNeed& section : round.sections) bytes += section.bytes();
        items.push_back(
            {{"gradient", item.gradient->name},
             {"first", item.range.first},
             {"elements", item.range.numel},
             {"owner", item.owner},
             {"bytes_before", item.range.numel * dtype_bytes(item.gradient->dtype)},
             {"bytes_after", bytes},
             {"compressor", item.compressor->name()},
             {"memory", item.memory->name()},
             {"lies_on", item.gradient->lies_on.name()},
             {"worked_on", item.is_on_device() ? item.gradient->lies_on.name() : Place().name()},
             {"staged", item.of->workplace == Workplace::mirror},
             {"why_staged", item.gradient->why_staged},
             {"from_device_to_device", sends_directly(*bucket, *bucket->codings.front(), item)},
             {"one_sweep", item.folded}});
      }
      buckets.push_back({{"phase", phase},
                         {"number", bucket->number},
                         {"route", route_name(bucket->plan.route)},
                         {"rounds", bucket->codings.front()->n_rounds},
                         {"items", items},
                         {"encode_us", bucket->last_step.encode_us},
                         {"exchange_us", bucket->last_step.exchange_us},
                         {"decode_us", bucket->last_step.decode_us}});
    }
  penstock_counters totals{};
  totals.struct_size = sizeof totals;
  counters(totals);
  const StageTraffic planned = planned_traffic();
  PENSTOCK_ASSIGN(const uint64_t replicated, works_->states().hash_replicated());
  const nlohmann::json report{
      {"name", name},
      {"rank", rank},
      {"world", world},
      {"step", step.index},
      {"scheduler", works_->fitting().scheduler()->name()},
      {"explanation", works_->plan().explanation},
      {"forecast", forecast_of(works_->plan(), model_of(works_->fitting()))},
      {"state_bytes", works_->states().bytes()},
      {"state_bytes_copied_per_step", copied_per_step(*works_)},
      {"replicated_hash", hash_text(replicated)},
      {"staged_bytes", staging_ == nullptr ? 0 : staging_->bytes()},
      {"buckets", buckets},
      {"planned",
       {{"moved_bytes_per_step", planned.moved},
        {"dense_moved_bytes_per_step", traffic_.dense_per_step()},
        {"moves_more_from_ranks", planned.loses_from},
        {"sizes_are_open", planned.bytes.open}}},
      {"counters",
       {{"steps", totals.steps},
        {"gradient_bytes", totals.gradient_bytes},
        {"payload_bytes", totals.payload_bytes},
        {"moved_bytes", totals.moved_bytes},
        {"dense_moved_bytes", totals.dense_moved_bytes},
        {"messages", totals.messages},
        {"void_buckets", totals.void_buckets},
        {"nonfinite_steps", nonfinite_steps_},
        {"wait_us", totals.wait_us},
        {"measuring_bytes", traffic_.by_measurements().moved},
        {"allocations", totals.allocations}}}};
  return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

// ---- lines of the log ----

// Rank 0's, with level info: file, scheme, ranks and plan.
void Set::say_plan() {
  if (rank != 0 || !services_.log.shows(LogLevel::info)) return;
  size_t n_buckets = 0;
  for (const auto& phase : works_->phases()) n_buckets += phase.size();
  const StageTraffic planned = planned_traffic();
  const Scheme& scheme = works_->fitting().scheme();
  std::string collective = scheme.collective;
  if (!scheme.transport.empty()) collective += " over " + scheme.transport;
  services_.log.write(
      LogLevel::info, "set",
      fmt::format(
          "set '{}': {}; compressor {}, memory {}, collective {}, scheduler {}, route {}; {} "
          "ranks on {} hosts; {} gradients of {} in {} buckets{}; in a step each rank sends "
          "{}{}, without compression {} ({})",
          name, config_.origin().empty() ? "no configuration file, the defaults" : config_.origin(),
          scheme.compressor, scheme.memory, collective, scheme.scheduler, route_name(scheme.route),
          world, group_.n_hosts(), gradients_.size(), bytes_text(planned.gradient_bytes), n_buckets,
          works_->plan().explanation.empty()
              ? ""
              : fmt::format(" ({})", fmt::join(works_->plan().explanation, "; ")),
          planned.bytes.open    ? "what the data ask for, planned "
          : planned.bytes.bound ? "up to "
                                : "",
          bytes_text(planned.moved), bytes_text(traffic_.dense_per_step()),
          share(planned.moved, traffic_.dense_per_step())));
}

// Rank 0's, with level info: what the run came to. Who waits least is waited for by the others.
void Set::say_profile() {
  const Status status = record_->write();
  if (status.ok())
    services_.log.write(
        LogLevel::info, "profile",
        fmt::format("set '{}': what was measured of the model is in '{}'", name, record_->path()));
  else
    services_.log.write(LogLevel::warning, "profile", status.message());
}

void Set::say_end() {
  if (totals_.steps == 0 || !services_.log.shows(LogLevel::info)) return;
  const double run_us = double(ended_us_ - started_us_);
  const auto key = [&](uint32_t of) { return fmt::format("set {}: waited by rank {}", name, of); };
  const double mine = run_us > 0 ? double(step_.waited_us()) / run_us : 0;
  if (rank != 0) {
    (void)services_.control.put(key(rank), fmt::format("{}", mine));
    return;
  }
  std::vector<double> waited{mine};
  const uint64_t until = now_us() + kLastWordsUs;
  for (uint32_t other = 1; other < world && !services_.control.aborted(); ++other) {
    const uint64_t now = now_us();
    const auto text = services_.control.get(key(other), now < until ? until - now : 1);
    if (!text.ok()) break;
    waited.push_back(std::strtod(text.value().c_str(), nullptr));
  }
  const auto least = std::min_element(waited.begin(), waited.end());
  penstock_counters totals{};
  counters(totals);
  std::string slowest;
  if (waited.size() == world && world > 1)
    slowest = fmt::format("; slowest is rank {}, which waited {}",
                          group_.ranks()[size_t(least - waited.begin())], share(*least, 1));
  services_.log.write(
      LogLevel::info, "set",
      fmt::format("set '{}' ended after {} steps: rank 0 sent {}, without compression {} ({}), and "
                  "waited {} of the time{}",
                  name, totals.steps, bytes_text(double(totals.moved_bytes)),
                  bytes_text(double(totals.dense_moved_bytes)),
                  share(double(totals.moved_bytes), double(totals.dense_moved_bytes)),
                  share(mine, 1), slowest));
}

// On the rank where it began, and once: later steps are counted in the report.
void Set::warn_of_nonfinite() {
  const uint64_t index = nonfinite_gradient.load(std::memory_order_relaxed);
  if (index == kNoGradient || std::exchange(said_nonfinite_, true)) return;
  services_.log.write(
      LogLevel::warning, "set",
      fmt::format(
          "set '{}': gradient '{}' of rank {} is not finite (NaN or infinite) in step {}, so "
          "the result is NaN on every rank{}; further steps are counted in the report, as "
          "nonfinite_steps",
          name, gradients_[index]->name, group_.ranks()[rank], step.index,
          step.grad_scale > 1
              ? fmt::format(" (with a loss scale of {:g}: usual while the scale is being found)",
                            step.grad_scale)
              : std::string("; look at the loss and the data of that rank")));
}

}  // namespace penstock
