// Transports are made before the watch of plugin calls begins and before the ranks have met. Each
// is made on a separate thread, so that a constructor that never returns gives an error.
#include "core/base/leak.hpp"
#include "core/base/task.hpp"
#include "core/runtime/runtime.hpp"

#include <thread>

namespace penstock {

Result<std::unique_ptr<CollectiveInstance>> Runtime::make_apart(const Scheme& scheme,
                                                                const std::string& name) {
  // The thread shares `made` and the registry, because the thread may outlast this wait.
  const auto made = std::make_shared<std::unique_ptr<CollectiveInstance>>();
  const auto make = [made, scheme, name, registry = registry_.get()]() -> Status {
    const PluginCall noted(nullptr, "collective", name, "create");
    PENSTOCK_ASSIGN(*made, make_instance<penstock_collective>(scheme, name, *registry));
    return {};
  };
  const auto task = std::make_shared<Task>(make);
  activity_->did(fmt::format("create of collective '{}'", name));
  std::thread([task] { task->carry_out(); }).detach();
  const auto warning_us = static_cast<uint64_t>(config_.runtime().stall_warning_s * 1e6);
  const uint64_t limit_us = call_limit_us() != 0 ? call_limit_us() : kYearUs;
  Status status;
  for (uint64_t waited_us = 0; waited_us < limit_us;) {
    const uint64_t left_us = limit_us - waited_us;
    const uint64_t part_us = warning_us == 0 ? left_us : std::min(warning_us, left_us);
    if (task->wait_for(part_us, status)) {
      PENSTOCK_TRY(status);
      return std::move(*made);
    }
    waited_us += part_us;
    if (warning_us == 0) continue;
    log_.write(LogLevel::warning, "runtime",
               fmt::format("create of collective '{}' has not returned for {:.1f} s; this rank and "
                           "the ranks that wait for it stand still",
                           name, double(waited_us) * 1e-6));
  }
  leak(std::move(registry_));
  abandoned_ = true;
  return hangs(fmt::format("create of collective '{}'", name), limit_us);
}

Status Runtime::hangs(std::string_view call, uint64_t lasted_us) {
  return deadline_exceeded(
      "{} has not returned for {:.1f} s: the plugin hangs, or raise runtime.busy_limit_s if a call "
      "may take that long",
      call, double(lasted_us) * 1e-6);
}

}  // namespace penstock
