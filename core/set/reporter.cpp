#include "core/set/reporter.hpp"

#include "core/base/hash.hpp"
#include "core/bucket/engine.hpp"
#include "core/bucket/on_device/direct.hpp"
#include "core/tensor/dtype.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <planning/forecast.hpp>

#include <algorithm>
#include <map>

namespace penstock {
namespace {

// Rank 0 waits this long in all for the waiting times of the other ranks, at the end of a set.
constexpr uint64_t kLastWordsUs = 2'000'000;

std::string share(double part, double whole) {
  return fmt::format("{:.0f} %", whole > 0 ? 100 * part / whole : 0);
}

// The predicted times of the plan in force, phase by phase, by the present model. Times that were
// not measured count as zero.
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

// The bytes that a step copies so that it can be forgotten. Sweeps that read one generation of a
// state and write the next copy nothing.
uint64_t copied_per_step(const CompiledPlan& compiled) {
  uint64_t bytes = 0;
  for (const auto& bucket : compiled.phases().front())
    for (const auto& coding : bucket->codings)
      for (const ItemRun& item : coding->items)
        for (const StateView* state : item.states)
          if (state->before() != nullptr && !item.is_folded_over(*state))
            bytes += state->c()->numel * dtype_bytes(state->c()->dtype);
  return bytes;
}

nlohmann::json of_item(const BucketRun& bucket, const ItemRun& item) {
  uint64_t bytes = 0;
  for (const RoundNeed& round : item.rounds)
    for (const SectionNeed& section : round.sections) bytes += section.bytes();
  const Gradient& gradient = *item.gradient;
  return {{"gradient", gradient.name},
          {"first", item.range.first},
          {"elements", item.range.numel},
          {"owner", item.owner},
          {"bytes_before", item.range.numel * dtype_bytes(gradient.dtype)},
          {"bytes_after", bytes},
          {"compressor", item.compressor->name()},
          {"memory", item.memory->name()},
          {"lies_on", gradient.lies_on.name()},
          {"worked_on", gradient.work_place != nullptr ? gradient.lies_on.name() : Place().name()},
          {"staged", gradient.on_device.staging_buffer != nullptr},
          {"why_staged", gradient.on_device.why_staged},
          {"from_device_to_device", sends_directly(bucket, *bucket.codings.front(), item)},
          {"one_sweep", item.folded}};
}

nlohmann::json buckets_of(const CompiledPlan& compiled) {
  nlohmann::json buckets = nlohmann::json::array();
  for (uint32_t phase = 0; phase < compiled.period(); ++phase)
    for (const auto& bucket : compiled.phases()[phase]) {
      nlohmann::json items = nlohmann::json::array();
      for (const ItemRun& item : bucket->codings.front()->items)
        items.push_back(of_item(*bucket, item));
      nlohmann::json program = nlohmann::json::array();
      for (const auto& stage : bucket->program) program.push_back(stage->name());
      buckets.push_back({{"phase", phase},
                         {"number", bucket->number},
                         {"route", route_name(bucket->plan.route)},
                         {"rounds", bucket->codings.front()->n_rounds},
                         {"items", items},
                         {"program", program},
                         {"encode_us", bucket->last_step.encode_us},
                         {"exchange_us", bucket->last_step.exchange_us},
                         {"decode_us", bucket->last_step.decode_us}});
    }
  return buckets;
}

// The rules that decide for some gradient.
nlohmann::json rules_of(const Scheme& scheme, const CompiledPlan::Gradients& gradients) {
  std::map<size_t, uint64_t> counts;
  for (const auto& gradient : gradients) ++counts[scheme.choose(gradient->facts()).rule];
  nlohmann::json rules = nlohmann::json::array();
  for (const auto& [number, n_gradients] : counts)
    if (number > 0)
      rules.push_back({{"number", number},
                       {"match", scheme.rules[number - 1].match.text()},
                       {"gradients", n_gradients}});
  return rules;
}

}  // namespace

// ---- steps ----

void Reporter::begin() {
  say_plan();
  uses_.residence.say_staged();
  const std::string file = services_.run.next_profile();
  if (file.empty()) return;
  std::vector<DeclaredGradient> gradients;
  for (const DeclaredGradient* gradient : uses_.declaration.declared())
    gradients.push_back(*gradient);
  record_ = std::make_unique<ModelRecord>(file, set_.name, std::move(gradients));
}

void Reporter::add_step(uint32_t phase, const StepTimes& times, uint64_t ended_us, bool counts) {
  if (record_ != nullptr) record(phase, times);
  uint64_t n_counted = 0;
  {
    const Lock lock(mutex_);
    for (const auto& gradient : uses_.declaration.gradients())
      if (!uses_.plans.compiled().of(phase, gradient->index).empty())
        totals_.gradient_bytes += gradient->bytes();
    dense_moved_ += uses_.traffic.dense_per_step();
    ++(counts ? totals_.steps : totals_.forgotten_steps);
    if (started_us_ == 0) started_us_ = times.first_ready_us;
    ended_us_ = ended_us;
    n_counted = totals_.steps;
  }
  if (counts && uses_.traffic.tells_after(n_counted))
    uses_.traffic.compare_counted(n_counted, uses_.channels.carriers(), uses_.plans.traffic());
}

void Reporter::record(uint32_t phase, const StepTimes& times) {
  std::vector<double> ready_us;
  for (const auto& gradient : uses_.declaration.gradients())
    ready_us.push_back(uses_.plans.compiled().of(phase, gradient->index).empty()
                           ? -1
                           : double(gradient->ready_us - times.first_ready_us));
  record_->add(ready_us, ended_us_ == 0 ? -1 : double(times.first_ready_us - ended_us_));
  if (record_->is_due()) write_profile();
}

// ---- report and counters ----

void Reporter::counters(penstock_counters& counters) const {
  const Lock lock(mutex_);
  const uint64_t size = counters.struct_size;
  counters = totals_;
  counters.struct_size = size;
  counters.wait_us = uses_.step.waited_us();
  const Sent since = uses_.traffic.by_steps();
  counters.payload_bytes = since.handed_over;
  counters.messages = since.messages;
  counters.moved_bytes = since.moved;
  counters.dense_moved_bytes = static_cast<uint64_t>(dense_moved_);
  counters.void_buckets = set_.void_buckets.load();
}

Result<std::string> Reporter::report() {
  const CompiledPlan& compiled = uses_.plans.compiled();
  penstock_counters totals{};
  totals.struct_size = sizeof totals;
  counters(totals);
  const StageTraffic planned = uses_.plans.traffic();
  PENSTOCK_ASSIGN(const uint64_t replicated, compiled.states().hash_replicated());
  const nlohmann::json report{
      {"name", set_.name},
      {"rank", set_.rank},
      {"world", set_.world},
      {"step", set_.step.index},
      {"scheduler", compiled.bound_scheme().scheduler()->name()},
      {"compressor", compiled.bound_scheme().scheme().compressor},
      {"rules", rules_of(compiled.bound_scheme().scheme(), uses_.declaration.gradients())},
      {"explanation", compiled.plan().explanation},
      {"forecast", forecast_of(compiled.plan(), uses_.plans.model_of(compiled.bound_scheme()))},
      {"state_bytes", compiled.states().bytes()},
      {"state_bytes_copied_per_step", copied_per_step(compiled)},
      {"replicated_hash", hash_text(replicated)},
      {"staged_bytes", uses_.residence.staged_bytes()},
      {"buckets", buckets_of(compiled)},
      {"planned",
       {{"moved_bytes_per_step", planned.moved},
        {"dense_moved_bytes_per_step", uses_.traffic.dense_per_step()},
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
        {"measuring_bytes", uses_.traffic.by_measurements().moved}}}};
  return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

// ---- lines of the log ----

// Rank 0 logs file, scheme, ranks and plan, with level info.
void Reporter::say_plan() const {
  if (set_.rank != 0 || !services_.log.shows(LogLevel::info)) return;
  const CompiledPlan& compiled = uses_.plans.compiled();
  const Group& group = uses_.declaration.group();
  const std::string& origin = uses_.declaration.config().origin();
  size_t n_buckets = 0;
  for (const auto& phase : compiled.phases()) n_buckets += phase.size();
  const StageTraffic planned = uses_.plans.traffic();
  const Scheme& scheme = compiled.bound_scheme().scheme();
  std::string collective = scheme.collective;
  if (!scheme.transport.empty()) collective += " over " + scheme.transport;
  services_.log.write(
      LogLevel::info, "set",
      fmt::format(
          "set '{}': {}; compressor {}, memory {}, collective {}, scheduler {}, route {}; {} "
          "ranks on {} hosts; {} gradients of {} in {} buckets{}; in a step each rank sends "
          "{}{}, without compression {} ({})",
          set_.name, origin.empty() ? "no configuration file, the defaults" : origin,
          scheme.compressor, scheme.memory, collective, scheme.scheduler, route_name(scheme.route),
          set_.world, group.n_hosts(), uses_.declaration.gradients().size(),
          bytes_text(planned.gradient_bytes), n_buckets,
          compiled.plan().explanation.empty()
              ? ""
              : fmt::format(" ({})", fmt::join(compiled.plan().explanation, "; ")),
          planned.bytes.open    ? "depends on the data, planned "
          : planned.bytes.bound ? "up to "
                                : "",
          bytes_text(planned.moved), bytes_text(uses_.traffic.dense_per_step()),
          share(planned.moved, uses_.traffic.dense_per_step())));
}

void Reporter::write_profile() {
  const Status status = record_->write();
  if (status.ok())
    services_.log.write(LogLevel::info, "profile",
                        fmt::format("set '{}': the measured profile of the model is in '{}'",
                                    set_.name, record_->path()));
  else
    services_.log.write(LogLevel::warning, "profile", status.message());
}

double Reporter::waited_share() const {
  const double run_us = double(ended_us_ - started_us_);
  return run_us > 0 ? double(uses_.step.waited_us()) / run_us : 0;
}

// The part of the time that each rank has waited, for ranks that answer in time. `mine`: rank 0's.
std::vector<double> Reporter::hear_waits(double mine) const {
  const auto key = [&](uint32_t of) {
    return fmt::format("set {}: waited by rank {}", set_.name, of);
  };
  if (set_.rank != 0) {
    (void)services_.control.put(key(set_.rank), fmt::format("{}", mine));
    return {};
  }
  std::vector<double> waited{mine};
  const uint64_t until = now_us() + kLastWordsUs;
  for (uint32_t other = 1; other < set_.world && !services_.control.aborted(); ++other) {
    const uint64_t now = now_us();
    const auto text = services_.control.get(key(other), now < until ? until - now : 1);
    if (!text.ok()) break;
    waited.push_back(std::strtod(text.value().c_str(), nullptr));
  }
  return waited;
}

// Rank 0 logs a summary, with level info. The rank that waits least is the slowest: the others wait
// for it.
void Reporter::say_end() const {
  penstock_counters totals{};
  counters(totals);
  if (totals.steps == 0 || !services_.log.shows(LogLevel::info)) return;
  const double mine = waited_share();
  const std::vector<double> waited = hear_waits(mine);
  if (set_.rank != 0) return;
  const auto least = std::min_element(waited.begin(), waited.end());
  std::string slowest;
  if (waited.size() == set_.world && set_.world > 1)
    slowest = fmt::format("; slowest is rank {}, which waited {}",
                          uses_.declaration.group().ranks()[size_t(least - waited.begin())],
                          share(*least, 1));
  services_.log.write(
      LogLevel::info, "set",
      fmt::format("set '{}' ended after {} steps: rank 0 sent {}, without compression {} ({}), and "
                  "waited {} of the time{}",
                  set_.name, totals.steps, bytes_text(double(totals.moved_bytes)),
                  bytes_text(double(totals.dense_moved_bytes)),
                  share(double(totals.moved_bytes), double(totals.dense_moved_bytes)),
                  share(mine, 1), slowest));
}

void Reporter::end() {
  say_end();
  penstock_counters totals{};
  counters(totals);
  if (record_ != nullptr && totals.steps != 0) write_profile();
}

// ---- values that are not finite ----

void Reporter::count_nonfinite() {
  if (set_.nonfinite_gradient.exchange(SetContext::kNoGradient) != SetContext::kNoGradient)
    ++nonfinite_steps_;
}

// Later steps are counted in the report.
void Reporter::warn_of_nonfinite() {
  const uint64_t index = set_.nonfinite_gradient.load(std::memory_order_relaxed);
  if (index == SetContext::kNoGradient || std::exchange(said_nonfinite_, true)) return;
  services_.log.write(
      LogLevel::warning, "set",
      fmt::format(
          "set '{}': gradient '{}' of rank {} is not finite (NaN or infinite) in step {}, so "
          "the result is NaN on every rank{}; further steps are counted in the report, as "
          "nonfinite_steps",
          set_.name, uses_.declaration.gradients()[index]->name,
          uses_.declaration.group().ranks()[set_.rank], set_.step.index,
          set_.step.grad_scale > 1
              ? fmt::format(" (with a loss scale of {:g}: usual while the scaler searches for the "
                            "scale)",
                            set_.step.grad_scale)
              : std::string("; check the loss and the data of that rank")));
}

}  // namespace penstock
