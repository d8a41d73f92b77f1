// Resolves a configuration against the plugins: loads the plugins that it names and checks every
// option of every stage.
#pragma once

#include "core/config/defaults.hpp"
#include "core/config/load.hpp"
#include "core/control/launcher.hpp"
#include "core/plugin/instances.hpp"
#include "core/plugin/registry.hpp"

#include <span>

namespace penstock {

using defaults::kBorrowedCollective;

// The transports to try for collective = "auto", best first. If no transport is available,
// settle_transport takes the first, and loading it then fails.
std::span<const std::string_view> usual_transports(Launched by);

// Chooses a transport if the configuration leaves it open, from the available plugins and according
// to the launcher of this process.
void settle_transport(Config& config, Registry& registry, Launched by = launched_by());

// Loads the plugins of all instances that any stage can use and checks their options. The first
// error is returned; with it, the place in the TOML that named the plugin. The frontend's transport
// needs no plugin.
Status check_config(const Config& config, Registry& registry);

// FAILED_PRECONDITION if `scheme` wants another plugin or other options of the transport than the
// run has opened. Only options that the scheme sets are compared.
Status check_opened(const Scheme& scheme, const CollectiveInstance& opened, Registry& registry);

// The text that ranks compare: the configuration with the versions, file hashes and resolved
// options of the registry's plugins.
Result<std::string> agreement_text(const Config& config, Registry& registry);

// If the scheduler knows only one route and the scheme names no route, the scheme gets that route.
void settle_route(Scheme& scheme, const SchedulerInstance& scheduler);

// Makes an instance by its name in a scheme.
template <typename Table>
Result<std::unique_ptr<Instance<Table>>> make_instance(const Scheme& scheme,
                                                       const std::string& name, Registry& registry);

}  // namespace penstock
