// How a runtime starts: it loads what it needs to reach the other ranks, meets them, and only then
// loads the rest, so that what one rank alone finds wrong is said on all of them.

#include "core/comm/meeting.hpp"
#include "core/control/protocol.hpp"
#include "core/runtime/runtime.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

namespace penstock {
namespace {

// A launcher of MPI has started this process as one of several.
bool is_one_of_several() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* size = std::getenv(variable);
    if (size != nullptr && std::atoi(size) > 1) return true;
  }
  return false;
}

}  // namespace

Result<RuntimeHandle> Runtime::open(const penstock_runtime_options& options) {
  RuntimeHandle runtime(new Runtime());
  PENSTOCK_TRY(runtime->start(options));
  return runtime;
}

Status Runtime::start(const penstock_runtime_options& options) {
  Status own = load(options);
  if (own.ok()) own = choose_transport(options);
  // The others wait to hear what is wrong here.
  if (!own.ok() && !stand_in(options).ok()) return own;
  Status met = join();
  if (met.ok()) met = start_control();
  if (!met.ok()) return own.ok() ? met : own;
  if (own.ok()) own = check_config(config_, *registry_);
  PENSTOCK_TRY(share_loading(own));
  PENSTOCK_TRY(start_operations());
  return agree();
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
  return registry_->scan();
}

Status Runtime::choose_transport(const penstock_runtime_options& options) {
  const Scheme scheme = config_.at_step(0);
  const std::string transport = scheme.transport.empty() ? scheme.collective : scheme.transport;
  if (transport == kLentCollective) {
    if (options.lent_collective == nullptr)
      return failed_precondition(
          "the configuration asks for the transport 'lent', but the frontend lends none; name "
          "'mpi' instead");
    PENSTOCK_ASSIGN(transport_, CollectiveInstance::borrow("lent", options.lent_collective,
                                                           options.lent_instance));
  } else {
    PENSTOCK_ASSIGN(transport_, make_instance<penstock_collective>(scheme, transport, *registry_));
  }
  if ((transport_->traits().flags & PENSTOCK_COLLECTIVE_TRANSPORT) == 0)
    return failed_precondition(
        "collective '{}' is a composite: name what it stands on, for example transport = \"mpi\"",
        transport);
  return {};
}

// This rank does not know what the others join over: most likely what everybody does by default.
Status Runtime::stand_in(const penstock_runtime_options& options) {
  if (options.lent_collective != nullptr) {
    PENSTOCK_ASSIGN(transport_, CollectiveInstance::borrow("lent", options.lent_collective,
                                                           options.lent_instance));
    return {};
  }
  if (!is_one_of_several()) return failed_precondition("there is nobody to tell");
  LoadOptions standard;
  standard.environment = {};
  PENSTOCK_ASSIGN(const Config config, default_config(standard));
  RegistryOptions registry;
  registry.directories = plugin_directories(config_.runtime().plugin_path);
  registry.allow_insecure = config_.runtime().allow_insecure_paths;
  registry_ = std::make_unique<Registry>(host_->table(), registry);
  PENSTOCK_TRY(registry_->scan());
  const Scheme scheme = config.at_step(0);
  PENSTOCK_ASSIGN(transport_,
                  make_instance<penstock_collective>(scheme, scheme.collective, *registry_));
  return {};
}

Status Runtime::join() {
  communication_ = std::make_unique<Communication>(&activity_->transport);
  // Owned by the task as well, which may outlast this wait.
  const auto world = std::make_shared<penstock_world>();
  world->struct_size = sizeof *world;
  const std::string& transport = transport_->name();
  // A launcher may start ranks minutes apart: who waits says so.
  const auto warning_us = static_cast<uint64_t>(config_.runtime().stall_warning_s * 1e6);
  Communication::Waits waits{warning_us, {}};
  if (warning_us != 0)
    waits.told = [&](uint64_t waited_us) {
      log_.write(LogLevel::warning, "runtime",
                 fmt::format("has waited {:.1f} s for the other ranks to join over '{}': one has "
                             "not started, or is not that far",
                             double(waited_us) * 1e-6, transport));
    };
  PENSTOCK_TRY(communication_
                   ->run_within(
                       meeting_us(),
                       [this, world] {
                         const PluginCall noted(&activity_->transport, "collective",
                                                transport_->name(), "join");
                         return from_c(transport_->table()->join(transport_->self(), deadline_us(),
                                                                 world.get()));
                       },
                       waits)
                   .with_context(fmt::format("joining the other ranks over '{}'", transport)));
  joined_ = true;
  PENSTOCK_ASSIGN(world_, Group::joined(*world));
  PENSTOCK_TRY(check_launcher(world_.rank(), world_.size(), transport));
  log_.set_rank(world_.rank(), world_.size());
  timeline_.set_rank(world_.rank());
  timeline_.set_warning(
      [this](std::string_view text) { log_.write(LogLevel::warning, "timeline", text); });
  engine_ = std::make_unique<Engine>();
  communication_->set_listener(engine_.get());

  Communication::OpenRequest request{};
  request.table = transport_->table();
  request.instance = transport_->self();
  request.group = world_;
  request.group_id = kFirstGroupId;
  request.timeout_us = deadline_us();
  request.name = "world";
  PENSTOCK_ASSIGN(world_channel_, communication_->open_channel(request));
  return {};
}

Status Runtime::start_control() {
  const RuntimeConfig& runtime = config_.runtime();
  Control::Options control;
  // Before the messages' own deadline: whoever waits for a silent rank, perhaps through others,
  // then hears its name instead of only missing its data.
  control.deadline_us = deadline_us() / 10 * 9;
  control.heartbeat_us = static_cast<uint64_t>(runtime.heartbeat_s * 1e6);
  control.warning_us = static_cast<uint64_t>(runtime.stall_warning_s * 1e6);
  control.busy_limit_us = busy_limit_us();
  control.circle_us = control.warning_us == 0 ? 0 : deadline_us();
  control.activity = activity_;
  control.on_abort = [this](Status reason) { on_abort(reason); };
  control.on_warning = [this](std::string text) { log_.write(LogLevel::warning, "control", text); };
  control.on_beat = [this] { look_at_calls(); };
  PENSTOCK_ASSIGN(Meeting meeting,
                  meet_over(*communication_, *world_channel_, deadline_us(), std::move(control)));
  control_ = std::move(meeting.control);
  watches_ = true;
  return {};
}

// A rank that found something wrong by itself gets its own error; the others get its number and its
// sentence.
Status Runtime::share_loading(const Status& mine) {
  PENSTOCK_ASSIGN(const std::vector<std::string> texts,
                  control_->gather("loading", mine.message(), {}, meeting_us()));
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
  operations.table = transport_->table();
  operations.instance = transport_->self();
  operations.world = world_;
  operations.open_timeout_us = deadline_us();
  operations.limit_us = busy_limit_us();
  operations.world_channel = world_channel_;
  operations.timeline = &timeline_;
  PENSTOCK_ASSIGN(auto made, Operations::make(operations));
  std::lock_guard lock(mutex_);
  operations_ = std::move(made);
  return {};
}

Status Runtime::agree() {
  PENSTOCK_ASSIGN(std::string text, agreement_text(config_, *registry_));
  text += fmt::format("\npenstock {}, ABI {}.{}, frontend {}\n", PENSTOCK_VERSION,
                      PENSTOCK_ABI_MAJOR, PENSTOCK_ABI_MINOR, frontend_);
  PENSTOCK_TRY(control_->agree("configuration", text, {}, meeting_us()));
  PENSTOCK_TRY(agree_on_code_paths());
  const std::string& timeline = config_.runtime().timeline;
  if (!timeline.empty())
    PENSTOCK_TRY(timeline_.start(
        world_.rank() == 0 ? timeline : fmt::format("{}.rank{}", timeline, world_.rank())));
  return {};
}

// Before the sets make instances of compressors and memories, which ask the host for their path.
Status Runtime::agree_on_code_paths() {
  const std::string& wanted = config_.runtime().code_path;
  const bool measures = world_.rank() == 0 && wanted == "auto";
  PENSTOCK_ASSIGN(const auto offers,
                  control_->gather("code paths", code_path_offer(measures), {}, meeting_us()));
  PENSTOCK_ASSIGN(code_paths_, choose_code_paths(offers, wanted));
  for (const auto& [family, path] : code_paths_) host_->set_code_path(family, path);
  return {};
}

}  // namespace penstock
