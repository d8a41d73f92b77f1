#include "core/fit/resolve.hpp"

#include "core/base/hash.hpp"
#include "core/config/agreement.hpp"
#include "core/control/launcher.hpp"
#include "core/fit/rules.hpp"

#include <algorithm>
#include <bit>

namespace penstock {

namespace {

// A borrowed transport replaces a plugin.
bool is_borrowed(const InstanceConfig& instance) {
  return instance.kind == Kind::collective && instance.plugin == kBorrowedCollective;
}

std::string title_of(const InstanceConfig& instance) {
  return fmt::format("{}.{}", kind_name(instance.kind), instance.name);
}

bool leaves_transport_open(const Config& config) {
  const std::vector<uint64_t> stages = config.stages();
  return std::any_of(stages.begin(), stages.end(), [&](uint64_t stage) {
    return config.at_step(stage).find(Kind::collective, kAutoTransport) != nullptr;
  });
}

// A missing plugin is reported at the line that names it.
Result<std::shared_ptr<const Plugin>> load_for(const InstanceConfig& instance, Registry& registry) {
  Result<std::shared_ptr<const Plugin>> plugin = registry.load(instance.kind, instance.plugin);
  if (plugin.ok()) return plugin;
  return plugin.status().with_context(
      fmt::format("{}: {}", instance.where.text(), title_of(instance)));
}

Result<OptionValues> options_for(const InstanceConfig& instance, const Plugin& plugin) {
  return resolve_options(plugin.options, plugin.n_options, instance.options, title_of(instance),
                         instance.where);
}

Status check_borrowed(const InstanceConfig& instance) {
  if (instance.options.empty()) return {};
  const auto& [key, setting] = *instance.options.begin();
  return invalid_argument("{}: unknown option \"{}.{}\"; a borrowed transport has none",
                          setting.where.text(), title_of(instance), key);
}

// Also checks options that a switch replaces before any step uses them, because without the switch
// they would be used.
Status check_given(const Config& config, Registry& registry) {
  for (const InstanceConfig& instance : config.given()) {
    if (is_borrowed(instance)) {
      PENSTOCK_TRY(check_borrowed(instance));
      continue;
    }
    PENSTOCK_ASSIGN(const std::shared_ptr<const Plugin> plugin, load_for(instance, registry));
    PENSTOCK_TRY(
        check_settings(plugin->options, plugin->n_options, instance.options, title_of(instance)));
  }
  return {};
}

constexpr std::string_view kKeptForTheRun =
    "this version keeps the collective and the transport for a whole run";

// The name of the first option in `wanted` that differs in `opened`. Empty if there is none.
std::string first_changed(const InstanceConfig& wanted, const OptionValues& wanted_values,
                          const OptionValues& opened) {
  const std::vector<std::string> mine = wanted_values.lines(true), theirs = opened.lines(true);
  for (const auto& [key, setting] : wanted.options)
    for (size_t i = 0; i < mine.size() && i < theirs.size(); ++i)
      if (mine[i] != theirs[i] && mine[i].starts_with(key + " = ")) return key;
  return "";
}

Status check_kept_options(const InstanceConfig& before, const InstanceConfig& after, uint64_t step,
                          Registry& registry) {
  if (is_borrowed(after)) return {};
  PENSTOCK_ASSIGN(const std::shared_ptr<const Plugin> plugin, load_for(after, registry));
  PENSTOCK_ASSIGN(const OptionValues first, options_for(before, *plugin));
  PENSTOCK_ASSIGN(const OptionValues later, options_for(after, *plugin));
  const std::string key = first_changed(after, later, first);
  if (key.empty()) return {};
  return unimplemented("{}: the switch at step {} changes {}.{}; {}",
                       after.options.at(key).where.text(), step, title_of(after), key,
                       kKeptForTheRun);
}

// Refuses a switch of collective or transport, because channels are opened once for a run.
Status check_kept(const Scheme& first, const Scheme& later, uint64_t step, Registry& registry) {
  const auto compare = [&](const char* key, const std::string& before,
                           const std::string& after) -> Status {
    if (before == after) return {};
    return unimplemented("{}: the switch at step {} changes scheme.{} from {} to {}; {}",
                         later.where.at(key).text(), step, key, quoted_text(before),
                         quoted_text(after), kKeptForTheRun);
  };
  PENSTOCK_TRY(compare("collective", first.collective, later.collective));
  PENSTOCK_TRY(compare("transport", first.transport, later.transport));
  for (const std::string& name : {later.collective, later.transport})
    if (!name.empty())
      PENSTOCK_TRY(check_kept_options(*first.find(Kind::collective, name),
                                      *later.find(Kind::collective, name), step, registry));
  return {};
}

}  // namespace

std::span<const std::string_view> usual_transports(Launched by) {
  switch (by) {
    case Launched::by_mpi:
      return defaults::kUnderMpi;
    case Launched::by_step:
      return defaults::kInStep;
    case Launched::otherwise:
      return defaults::kOtherwise;
    case Launched::single_in_step:
      return defaults::kAloneInStep;
    case Launched::single:
      break;
  }
  return defaults::kAlone;
}

void settle_transport(Config& config, Registry& registry, Launched by) {
  // No plugin is loaded if the file has chosen the transport.
  if (!leaves_transport_open(config)) return;
  const std::span<const std::string_view> usual = usual_transports(by);
  const auto found = std::find_if(usual.begin(), usual.end(), [&](std::string_view name) {
    return registry.load(Kind::collective, name).ok();
  });
  const std::string name(found == usual.end() ? usual.front() : *found);
  config.settle_transport(name, name);
}

Status check_config(const Config& config, Registry& registry) {
  const Scheme first = config.at_step(0);
  for (uint64_t stage : config.stages()) {
    const Scheme scheme = config.at_step(stage);
    for (const auto& [key, instance] : scheme.instances) {
      if (is_borrowed(instance)) {
        PENSTOCK_TRY(check_borrowed(instance));
        continue;
      }
      PENSTOCK_ASSIGN(const std::shared_ptr<const Plugin> plugin, load_for(instance, registry));
      PENSTOCK_ASSIGN(const OptionValues values, options_for(instance, *plugin));
    }
    if (stage != 0) PENSTOCK_TRY(check_kept(first, scheme, stage, registry));
  }
  return check_given(config, registry);
}

Status check_opened(const Scheme& scheme, const CollectiveInstance& opened, Registry& registry) {
  const InstanceConfig* wanted = scheme.find(Kind::collective, opened.name());
  if (wanted == nullptr || is_borrowed(*wanted) || opened.plugin() == nullptr) return {};
  if (wanted->id() != opened.plugin()->record.id)
    return failed_precondition(
        "{}: {} is the plugin {}, but the run joined over {}: one transport per run",
        wanted->where.text(), title_of(*wanted), wanted->id(), opened.plugin()->record.id);
  PENSTOCK_ASSIGN(const std::shared_ptr<const Plugin> plugin, load_for(*wanted, registry));
  PENSTOCK_ASSIGN(const OptionValues values, options_for(*wanted, *plugin));
  const std::string key = first_changed(*wanted, values, opened.options());
  if (key.empty()) return {};
  return failed_precondition(
      "{}: {}.{} differs from the value with which the run joined its transport. A run has one "
      "transport, so set it in the "
      "configuration of the run",
      wanted->options.at(key).where.text(), title_of(*wanted), key);
}

Result<std::string> agreement_text(const Config& config, Registry& registry) {
  return agreement_text(
      config, [&](const InstanceConfig& instance) -> Result<std::vector<std::string>> {
        if (is_borrowed(instance)) return std::vector<std::string>{};
        PENSTOCK_ASSIGN(const std::shared_ptr<const Plugin> plugin, load_for(instance, registry));
        PENSTOCK_ASSIGN(const OptionValues values, options_for(instance, *plugin));
        std::vector<std::string> lines = values.lines();
        lines.push_back(fmt::format("version {} file {}", plugin->record.version,
                                    hash_text(plugin->file_hash)));
        return lines;
      });
}

void settle_route(Scheme& scheme, const SchedulerInstance& scheduler) {
  const uint64_t routes = scheduler.traits().routes;
  if (scheme.where.count("route") == 0 && std::has_single_bit(routes))
    scheme.route = static_cast<uint32_t>(std::countr_zero(routes));
}

template <typename Table>
Result<std::unique_ptr<Instance<Table>>> make_instance(const Scheme& scheme,
                                                       const std::string& name,
                                                       Registry& registry) {
  const InstanceConfig* config = scheme.find(TableTraits<Table>::kKind, name);
  if (config == nullptr) {
    return not_found("the scheme has no {} instance \"{}\"", kind_name(TableTraits<Table>::kKind),
                     name);
  }
  PENSTOCK_ASSIGN(std::shared_ptr<const Plugin> plugin, load_for(*config, registry));
  return Instance<Table>::make(*config, std::move(plugin));
}

template Result<std::unique_ptr<CompressorInstance>> make_instance(const Scheme&,
                                                                   const std::string&, Registry&);
template Result<std::unique_ptr<MemoryInstance>> make_instance(const Scheme&, const std::string&,
                                                               Registry&);
template Result<std::unique_ptr<CollectiveInstance>> make_instance(const Scheme&,
                                                                   const std::string&, Registry&);
template Result<std::unique_ptr<SchedulerInstance>> make_instance(const Scheme&, const std::string&,
                                                                  Registry&);

}  // namespace penstock
