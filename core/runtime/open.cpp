// The start of a runtime. The runtime loads its configuration and a transport, meets the other
// ranks, and only then loads the rest. So an error of one rank is reported on every rank.

#include "core/base/unless_thrown.hpp"
#include "core/control/protocol.hpp"
#include "core/fit/transport_rules.hpp"
#include "core/plan/route.hpp"
#include "core/runtime/runtime.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

namespace penstock {

Result<RuntimeHandle> Runtime::open(const penstock_runtime_options& options) {
  RuntimeHandle runtime(new Runtime(nullptr));
  PENSTOCK_TRY(runtime->start(options));
  return runtime;
}

Result<RuntimeHandle> Runtime::open_over(const penstock_device_table& devices,
                                         const penstock_runtime_options& options) {
  RuntimeHandle runtime(new Runtime(&devices));
  PENSTOCK_TRY(runtime->start(options));
  return runtime;
}

Status Runtime::start(const penstock_runtime_options& options) {
  PENSTOCK_TRY(be_introduced(options));
  // The other ranks wait for an error of this rank, so not even an exception may leave here.
  Status own = unless_thrown([&]() -> Status {
    PENSTOCK_TRY(load(options));
    return choose_transport(options);
  });
  // A rank with an error joins too, with a fallback transport.
  if (!own.ok() && !use_fallback(options).ok()) return own;
  communication_ = std::make_unique<Communication>(&activity_->transport);
  // Most transports bring the ranks together. Others must be told the ranks.
  const bool is_told = (transports_.world().traits().flags & PENSTOCK_COLLECTIVE_IS_NOTIFIED) != 0;
  Status met = is_told ? meet_before() : Status();
  if (met.ok()) met = join_world();
  if (met.ok() && !is_told) met = meet_over_transport();
  if (!met.ok()) {
    // The other ranks are about to join. They learn the cause here, and do not only miss this rank.
    if (control_ != nullptr) control_->abort(own.ok() ? met : own);
    return own.ok() ? met : own;
  }
  watches_ = true;
  if (own.ok())
    own = unless_thrown([&]() -> Status {
      PENSTOCK_TRY(check_config(config_, *registry_));
      return choose_level_transports(options);
    });
  PENSTOCK_TRY(share("loading", own));
  PENSTOCK_TRY(join_levels());
  PENSTOCK_TRY(start_operations());
  PENSTOCK_TRY(agree());
  return open_between_devices();
}

Status Runtime::load(const penstock_runtime_options& options) {
  frontend_ = view(options.frontend);
  host_ = std::make_unique<Host>(log_);
  PENSTOCK_ASSIGN(RunConfig chosen, load_run_config(std::string(view(options.config_path)),
                                                    std::string(view(options.config_text))));
  config_ = std::move(chosen.config);
  log_.set_level(log_level_from_name(config_.runtime().log_level));
  log_.write(LogLevel::info, "config", chosen.choice);
  for (const std::string& line : config_.mapped()) log_.write(LogLevel::info, "config", line);
  host_->set_worker_threads(static_cast<uint32_t>(config_.runtime().worker_threads));
  RegistryOptions registry;
  registry.directories = plugin_directories(config_.runtime().plugin_path);
  registry.allow_insecure = config_.runtime().allow_insecure_paths;
  registry_ = std::make_unique<Registry>(host_->table(), registry);
  PENSTOCK_TRY(registry_->scan());
  for (const SkippedFile& skipped : registry_->skipped())
    if (!skipped.instead.empty())
      log_.write(LogLevel::warning, "plugins",
                 fmt::format("{}; {} is used instead", skipped.reason, skipped.instead));
  // A frontend that lends a transport wants it unless the file chooses another one.
  if (options.borrowed_collective != nullptr)
    config_.settle_transport(std::string(kBorrowedCollective), std::string(kBorrowedCollective));
  else
    settle_transport(config_, *registry_, launched());
  return {};
}

Status Runtime::choose_transport(const penstock_runtime_options& options) {
  const Scheme scheme = config_.at_step(0);
  const std::string& name = scheme.transport.empty() ? scheme.collective : scheme.transport;
  PENSTOCK_ASSIGN(auto transport, make_transport(scheme, name, options));
  transports_.set(PENSTOCK_LEVEL_WORLD, std::move(transport));
  return {};
}

Status Runtime::choose_level_transports(const penstock_runtime_options& options) {
  const Scheme scheme = config_.at_step(0);
  for (const auto& [level, name] : {std::pair(PENSTOCK_LEVEL_LOCAL, scheme.local_transport),
                                    std::pair(PENSTOCK_LEVEL_CROSS, scheme.cross_transport)}) {
    if (name.empty() || name == transports_.world().name()) continue;
    PENSTOCK_ASSIGN(auto transport, make_transport(scheme, name, options));
    transports_.set(level, std::move(transport));
  }
  return choose_device_transport(scheme);
}

Status Runtime::choose_device_transport(const Scheme& scheme) {
  if (scheme.device_transport.empty()) return {};
  if (CollectiveInstance* same = transports_.find(scheme.device_transport); same != nullptr) {
    transports_.share_for_devices(*same);
  } else {
    PENSTOCK_ASSIGN(auto transport, make_apart(scheme, scheme.device_transport));
    transports_.set_for_devices(std::move(transport));
  }
  const CollectiveInstance& direct = *transports_.for_devices();
  return check_device_transport(collective_facts(direct.name(), direct.traits()), false);
}

Result<std::unique_ptr<CollectiveInstance>> Runtime::make_transport(
    const Scheme& scheme, const std::string& name, const penstock_runtime_options& options) {
  const bool is_borrowed = name == kBorrowedCollective;
  if (is_borrowed && options.borrowed_collective == nullptr)
    return failed_precondition(
        "the configuration asks for the transport '{}', but the frontend lends none; lend one "
        "(penstock.torch: lend_process_group() before init()), or set collective = \"{}\"",
        name, kAutoTransport);
  PENSTOCK_ASSIGN(auto transport,
                  is_borrowed ? CollectiveInstance::borrow(name, options.borrowed_collective,
                                                           options.borrowed_instance)
                              : make_apart(scheme, name));
  if ((transport->traits().flags & PENSTOCK_COLLECTIVE_TRANSPORT) == 0)
    return failed_precondition(
        "collective '{}' is a composite: name the transport under it, for example transport = "
        "\"{}\"",
        name, kAutoTransport);
  PENSTOCK_TRY(check_reads_host_memory(collective_facts(name, transport->traits())));
  return transport;
}

// This rank does not know the transport of the other ranks. Most likely it is the default
// transport.
Status Runtime::use_fallback(const penstock_runtime_options& options) {
  if (options.borrowed_collective != nullptr) {
    PENSTOCK_ASSIGN(auto borrowed, CollectiveInstance::borrow(std::string(kBorrowedCollective),
                                                              options.borrowed_collective,
                                                              options.borrowed_instance));
    transports_.set(PENSTOCK_LEVEL_WORLD, std::move(borrowed));
    return {};
  }
  if (const Launched by = launched(); by == Launched::single || by == Launched::single_in_step)
    return failed_precondition("there is no other rank to notify");
  LoadOptions standard;
  standard.environment = {};
  PENSTOCK_ASSIGN(Config config, default_config(standard));
  RegistryOptions registry;
  registry.directories = plugin_directories(config_.runtime().plugin_path);
  registry.allow_insecure = config_.runtime().allow_insecure_paths;
  registry_ = std::make_unique<Registry>(host_->table(), registry);
  PENSTOCK_TRY(registry_->scan());
  settle_transport(config, *registry_, launched());
  const Scheme scheme = config.at_step(0);
  PENSTOCK_ASSIGN(auto usual, make_apart(scheme, scheme.collective));
  transports_.set(PENSTOCK_LEVEL_WORLD, std::move(usual));
  return {};
}

Result<penstock_world> Runtime::join(CollectiveInstance& transport) {
  // The task shares `world`, because the task may outlast this wait.
  const auto world = std::make_shared<penstock_world>();
  world->struct_size = sizeof *world;
  if (control_ != nullptr) {
    const Group& known = joined_.empty() ? met_ : world_;
    world->hosts = known.hosts().data();
    world->rank = known.rank();
    world->size = known.size();
    world->store = control_->store();
  }
  const std::string& name = transport.name();
  // A launcher may start ranks minutes apart, so a waiting rank warns.
  const auto warning_us = static_cast<uint64_t>(config_.runtime().stall_warning_s * 1e6);
  Communication::Waits waits{warning_us, {}};
  if (warning_us != 0)
    waits.notify = [&](uint64_t waited_us) {
      log_.write(LogLevel::warning, "runtime",
                 fmt::format("has waited {:.1f} s for the other ranks to join over '{}': some rank "
                             "has not started, or has not come to this point",
                             double(waited_us) * 1e-6, name));
    };
  PENSTOCK_TRY(
      communication_
          ->run_within(
              arrival_us(),
              [this, world, joins = &transport] {
                const PluginCall noted(&activity_->transport, "collective", joins->name(), "join");
                return from_c(joins->table()->join(joins->self(), messages_us(), world.get()));
              },
              waits)
          .with_context(fmt::format("joining the other ranks over '{}'", name)));
  joined_.push_back(&transport);
  return *world;
}

Status Runtime::join_world() {
  CollectiveInstance& transport = transports_.world();
  PENSTOCK_ASSIGN(const penstock_world world, join(transport));
  PENSTOCK_ASSIGN(world_, Group::joined(world));
  if (control_ != nullptr && (world_.rank() != met_.rank() || world_.size() != met_.size()))
    return internal("transport '{}' joined as rank {} of {}, but the run gave it rank {} of {}",
                    transport.name(), world_.rank(), world_.size(), met_.rank(), met_.size());
  PENSTOCK_TRY(check_identity(transport.name()));
  log_.set_rank(world_.rank(), world_.size());
  timeline_.set_rank(world_.rank());
  timeline_.set_warning(
      [this](std::string_view text) { log_.write(LogLevel::warning, "timeline", text); });
  engine_ = std::make_unique<Engine>();
  communication_->set_listener(engine_.get());

  Communication::OpenRequest request{};
  request.table = transport.table();
  request.instance = transport.self();
  request.group = world_;
  request.group_id = kFirstGroupId;
  request.timeout_us = messages_us();
  request.name = "world";
  if (control_ != nullptr) request.store = control_->store();
  PENSTOCK_ASSIGN(world_channel_, communication_->open_channel(request));
  return {};
}

// Joins the transports of single levels, one after the other. All ranks know each other already.
Status Runtime::join_levels() {
  for (CollectiveInstance* transport : transports_.all()) {
    if (transport == &transports_.world()) continue;
    const auto joins = [&]() -> Status {
      PENSTOCK_ASSIGN(const penstock_world world, join(*transport));
      PENSTOCK_ASSIGN(const Group found, Group::joined(world));
      if (found.rank() == world_.rank() && found.hosts() == world_.hosts()) return {};
      return failed_precondition(
          "over '{}' this process is rank {} of {} on {} hosts, over '{}' it is rank {} of {} on "
          "{} hosts; both transports must find equal ranks on equal hosts",
          transport->name(), found.rank(), found.size(), found.n_hosts(),
          transports_.world().name(), world_.rank(), world_.size(), world_.n_hosts());
    };
    PENSTOCK_TRY(share("joining over " + transport->name(), joins()));
  }
  return {};
}

// One channel for all sets, because with several channels each rank could use them in another
// order. If the route has legs within hosts, each host has its own channel.
Status Runtime::open_between_devices() {
  CollectiveInstance* transport = transports_.for_devices();
  if (transport == nullptr) return {};
  const bool in_hosts = adds_in_hosts(config_.at_step(0).route);
  const Group members = in_hosts ? world_.local() : world_;
  std::string what = "channel between devices";
  if (in_hosts) what += fmt::format(" on the host of rank {}", members.ranks().front());
  const auto opened = open_channel(what, members, *transport, nullptr);
  Status status = opened.status();
  if (status.ok()) {
    between_devices_.channel = opened.value();
    between_devices_.level = members.level();
    status =
        check_device_transport(collective_facts(transport->name(), opened.value()->traits), true);
  }
  return share("opening the channel between devices", status);
}

// A rank with an error returns its own error. The other ranks return the number of that rank and
// its message.
Status Runtime::share(std::string_view stage, const Status& mine) {
  PENSTOCK_ASSIGN(const std::vector<std::string> texts,
                  control_->gather(stage, mine.message(), {}, rendezvous_us()));
  PENSTOCK_TRY(mine);
  std::map<std::string, std::vector<uint32_t>> errors;
  for (uint32_t rank = 0; rank < texts.size(); ++rank)
    if (!texts[rank].empty()) errors[texts[rank]].push_back(rank);
  if (errors.empty()) return {};
  std::string text;
  for (const auto& [error, ranks] : errors)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", control::name_ranks(ranks), error);
  return peer_failed("the run cannot start: {}", text);
}

Status Runtime::start_operations() {
  Operations::Options operations;
  operations.control = control_.get();
  operations.communication = communication_.get();
  operations.table = transports_.world().table();
  operations.instance = transports_.world().self();
  operations.world = world_;
  operations.open_timeout_us = messages_us();
  operations.limit_us = busy_limit_us();
  operations.world_channel = world_channel_;
  operations.timeline = &timeline_;
  PENSTOCK_ASSIGN(auto made, Operations::make(operations));
  const Lock lock(mutex_);
  operations_ = std::move(made);
  return {};
}

Status Runtime::agree() {
  PENSTOCK_ASSIGN(std::string text, agreement_text(config_, *registry_));
  text += fmt::format("\npenstock {}, ABI {}.{}, frontend {}\n", PENSTOCK_VERSION,
                      PENSTOCK_ABI_MAJOR, PENSTOCK_ABI_MINOR, frontend_);
  PENSTOCK_TRY(control_->agree("configuration", text, {}, rendezvous_us()));
  PENSTOCK_TRY(agree_on_code_paths());
  return share("opening files", open_files());
}

Status Runtime::open_files() {
  const std::string& timeline = config_.runtime().timeline;
  if (!timeline.empty())
    PENSTOCK_TRY(timeline_.start(
        world_.rank() == 0 ? timeline : fmt::format("{}.rank{}", timeline, world_.rank())));
  return start_profile();
}

// The profile is written at the end, so the run must find out at the start whether it can write it.
Status Runtime::start_profile() const {
  const std::string& path = config_.runtime().profile;
  if (path.empty() || world_.rank() != 0) return {};
  std::error_code error;
  const bool was_there = std::filesystem::exists(path, error);
  const bool opens = std::ofstream(path, std::ios::app).is_open();
  if (opens && !was_there) std::filesystem::remove(path, error);
  if (opens) return {};
  return failed_precondition(
      "runtime.profile is \"{}\", which cannot be written; expected a file in a folder that is "
      "there and may be written to",
      path);
}

// Runs before the sets make instances of compressors and memories, because an instance asks the
// host for its code path.
Status Runtime::agree_on_code_paths() {
  const std::string& wanted = config_.runtime().code_path;
  const bool measures = world_.rank() == 0 && wanted == "auto";
  PENSTOCK_ASSIGN(const auto offers,
                  control_->gather("code paths", code_path_offer(measures), {}, rendezvous_us()));
  PENSTOCK_ASSIGN(code_paths_, choose_code_paths(offers, wanted));
  for (const auto& [family, path] : code_paths_) host_->set_code_path(family, path);
  return {};
}

}  // namespace penstock
