#include "core/set/residence.hpp"

#include "core/base/leak.hpp"
#include "core/bucket/engine.hpp"
#include "core/bucket/on_device/device_place.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace penstock {

// Called before anything is compared with other ranks, so that a missing device is reported first.
Status Residence::find_devices() {
  for (const auto& gradient : declaration_.gradients()) {
    if (gradient->lies_on.is_cpu()) continue;
    const Result<Device> device = services_.devices.find(gradient->lies_on);
    if (!device.ok())
      return device.status().with_context(fmt::format("gradient '{}' of set '{}' lies on {}",
                                                      gradient->name, set_.name,
                                                      gradient->lies_on.name()));
    devices_.emplace(gradient->index, device.value());
  }
  set_.has_devices = !devices_.empty();
  return {};
}

ResidenceSite Residence::site() const {
  const BetweenDevices& between = services_.between_devices;
  ResidenceSite site{.forward_waits = declaration_.has(PENSTOCK_SET_DEFERRED_UPDATE),
                     .result_is_sum = set_.result_is_sum,
                     .has_all_ranks = set_.world == services_.world.size(),
                     .connects = between.level};
  const CollectiveInstance* transport = services_.transports.for_devices();
  if (transport == nullptr) return site;
  site.device_transport = transport->name();
  const CollectiveFacts facts = collective_facts(site.device_transport, between.channel->traits);
  const bool sums =
      site.connects == PENSTOCK_LEVEL_LOCAL ? facts.scatters_on_devices() : facts.sums_on_devices();
  if (sums) site.sums = facts.dtypes;
  return site;
}

Status Residence::settle(std::span<const SchemeStage> stages) {
  const ResidenceSite here = site();
  std::vector<Gradient*> resident, staged;
  for (const auto& [index, device] : devices_) {
    Gradient& gradient = *declaration_.gradients()[index];
    gradient.on_device.why_staged = why_staged(stages, gradient, here);
    if (gradient.on_device.why_staged.empty() && !resident.empty() &&
        gradient.lies_on != resident.front()->lies_on)
      gradient.on_device.why_staged =
          fmt::format("this set works on {} already", resident.front()->lies_on.name());
    (gradient.on_device.why_staged.empty() ? resident : staged).push_back(&gradient);
  }
  PENSTOCK_TRY(make_staging_buffers(staged));
  PENSTOCK_TRY(make_residents(resident));
  if (devices_.empty()) return {};
  const Gradient& first = resident.empty() ? *staged.front() : *resident.front();
  // The engine's thread calls devices from now on. If sets lie on several devices, its current
  // device is the device of the last set.
  return services_.engine.run([&] { return devices_.at(first.index).make_current(); });
}

Status Residence::make_staging_buffers(const std::vector<Gradient*>& staged) {
  if (staged.empty()) return {};
  std::vector<Staging::Wanted> wanted;
  for (const Gradient* gradient : staged)
    wanted.push_back({devices_.at(gradient->index), gradient->bytes()});
  Result<std::unique_ptr<Staging>> staging = Staging::make(wanted);
  if (!staging.ok())
    return staging.status().with_context(fmt::format(
        "the staging buffers in host memory of {} gradients of set '{}', the first is '{}'",
        staged.size(), set_.name, staged.front()->name));
  staging_ = std::move(staging.value());
  for (size_t i = 0; i < staged.size(); ++i)
    staged[i]->on_device.side = staged[i]->on_device.staging_buffer = &staging_->staging_buffer(i);
  return {};
}

Status Residence::make_residents(const std::vector<Gradient*>& resident) {
  if (resident.empty()) return {};
  std::vector<uint64_t> bytes;
  for (const Gradient* gradient : resident) bytes.push_back(gradient->bytes());
  const Device& device = devices_.at(resident.front()->index);
  Result<std::unique_ptr<Residents>> made = Residents::make(device, bytes);
  if (!made.ok())
    return made.status().with_context(
        fmt::format("stream and events for {} gradients of set '{}', the first is '{}'",
                    resident.size(), set_.name, resident.front()->name));
  residents_ = std::move(made.value());
  work_on(set_, *residents_, resident);
  return settle_device_of_messages(device);
}

// Sets the current device of the communication thread. A library that takes no streams uses it.
Status Residence::settle_device_of_messages(const Device& device) {
  const Channel* direct = set_.at(services_.between_devices.level).direct.channel;
  if (direct == nullptr) return {};
  const bool knows_streams = (direct->traits.flags & PENSTOCK_COLLECTIVE_TAKES_FINISHED) == 0;
  return services_.communication.run([&]() -> Status {
    int32_t& settled = services_.between_devices.device;
    if (knows_streams) return device.make_current();
    if (settled == device.id()) return {};
    if (settled != BetweenDevices::kNoDevice)
      return failed_precondition(
          "gradients of set '{}' lie on {}, but messages over transport.device = \"{}\" use "
          "cuda:{} already, and this transport serves only one device per process; put all sets of "
          "a rank on one device, or remove transport.device",
          set_.name, device.name(), services_.transports.for_devices()->name(), settled);
    PENSTOCK_TRY(device.make_current());
    settled = device.id();
    return {};
  });
}

Status Residence::drain() {
  if (staging_ != nullptr) PENSTOCK_TRY(staging_->drain(services_.limits.end_us));
  return drain_residents();
}

Status Residence::drain_residents() {
  return residents_ == nullptr ? Status() : residents_->drain(services_.limits.end_us);
}

Status Residence::run_on_states(const std::function<Status()>& call) {
  return residents_ == nullptr ? call() : services_.engine.run(call);
}

// Buffers that the device may still use are leaked on purpose.
bool Residence::abandons_compiled_plan_at_end() {
  const Status drained = drain();
  if (drained.ok()) return false;
  services_.log.write(
      LogLevel::warning, "set",
      fmt::format("the {} of set '{}' are abandoned, not freed: {}",
                  residents_ == nullptr ? "staging buffers"
                                        : "staging buffers, messages and states on the device",
                  set_.name, drained.message()));
  leak(std::move(staging_));
  if (residents_ == nullptr) return false;
  leak(std::move(residents_));
  return true;
}

void Residence::say_staged() const {
  if (staging_ == nullptr || set_.rank != 0) return;
  std::map<std::string, size_t> on;
  std::map<std::string, std::vector<const Gradient*>> reasons;
  for (const auto& gradient : declaration_.gradients()) {
    if (gradient->on_device.staging_buffer == nullptr) continue;
    ++on[gradient->lies_on.name()];
    reasons[gradient->on_device.why_staged].push_back(gradient.get());
  }
  std::vector<std::string> which, why;
  for (const auto& [place, n_gradients] : on)
    which.push_back(fmt::format("{} gradients on {}", n_gradients, place));
  for (const auto& [reason, gradients] : reasons)
    why.push_back(
        fmt::format("{} ('{}'{})", reason, gradients.front()->name,
                    gradients.size() > 1 ? fmt::format(" and {} more", gradients.size() - 1) : ""));
  services_.log.write(
      LogLevel::warning, "set",
      fmt::format("set '{}': {} go through {} of pinned host memory, there and back: {}", set_.name,
                  fmt::join(which, ", "), bytes_text(double(staging_->bytes())),
                  fmt::join(why, "; ")));
}

}  // namespace penstock
