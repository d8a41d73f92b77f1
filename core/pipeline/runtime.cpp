#include "core/pipeline/runtime.hpp"

#include "core/pipeline/set.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <filesystem>

namespace penstock {
namespace {

// Group ids: 1 is the world's set-up channel, operations count from here, sets from further up.
constexpr uint64_t kWorldGroup = 1;
constexpr uint64_t kFirstOperationGroup = uint64_t{1} << 32;
constexpr uint64_t kFirstSetGroup = uint64_t{1} << 20;
constexpr uint64_t kAddressBytes = 1024;

std::vector<uint32_t> all_ranks(uint32_t size) {
  std::vector<uint32_t> ranks(size);
  for (uint32_t r = 0; r < size; ++r) ranks[r] = r;
  return ranks;
}

}  // namespace

Result<std::unique_ptr<Runtime>> Runtime::open(const penstock_runtime_options& options) {
  std::unique_ptr<Runtime> runtime(new Runtime());
  PENSTOCK_TRY(runtime->load(options));
  PENSTOCK_TRY(runtime->meet(options));
  PENSTOCK_TRY(runtime->agree());
  return runtime;
}

Status Runtime::load(const penstock_runtime_options& options) {
  const std::string path(view(options.config_path));
  const std::string text(view(options.config_text));
  const std::string from_environment = config_path_from_environment();
  if (!text.empty()) {
    PENSTOCK_ASSIGN(config_, load_config_text(text, "configuration text",
                                              std::filesystem::current_path().string()));
  } else if (!path.empty() || !from_environment.empty()) {
    PENSTOCK_ASSIGN(config_, load_config_file(path.empty() ? from_environment : path));
  } else {
    PENSTOCK_ASSIGN(config_, default_config());
  }
  frontend_ = view(options.frontend);
  log_.set_level(log_level_from_name(config_.runtime().log_level));
  for (const std::string& line : config_.mapped()) log_.write(LogLevel::info, "config", line);
  host_ = std::make_unique<Host>(log_);
  host_->set_worker_threads(static_cast<uint32_t>(config_.runtime().worker_threads));
  RegistryOptions registry;
  registry.directories = plugin_directories(config_.runtime().plugin_path);
  registry.allow_insecure = config_.runtime().allow_insecure_paths;
  registry_ = std::make_unique<Registry>(host_->table(), registry);
  PENSTOCK_TRY(registry_->scan());
  return check_config(config_, *registry_);
}

Status Runtime::meet(const penstock_runtime_options& options) {
  const Scheme scheme = config_.at_step(0);
  const std::string transport = scheme.transport.empty() ? scheme.collective : scheme.transport;
  if (transport == "lent") {
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
  communication_ = std::make_unique<Communication>();
  world_.struct_size = sizeof world_;
  PENSTOCK_TRY(communication_
                   ->run([&] {
                     return from_c(
                         transport_->table()->join(transport_->self(), deadline_us(), &world_));
                   })
                   .with_context(fmt::format("joining the other ranks over '{}'", transport)));
  joined_ = true;
  log_.set_rank(world_.rank, world_.size);
  timeline_.set_rank(world_.rank);
  engine_ = std::make_unique<Engine>();
  communication_->set_listener(engine_.get());

  Communication::OpenRequest request{};
  request.table = transport_->table();
  request.instance = transport_->self();
  request.world_ranks = all_ranks(world_.size);
  request.my_world_rank = world_.rank;
  request.world = &world_;
  request.group_id = kWorldGroup;
  request.level = PENSTOCK_LEVEL_WORLD;
  request.timeout_us = deadline_us();
  request.name = "world";
  PENSTOCK_ASSIGN(world_channel_, communication_->open_channel(request));

  Control::Options control;
  control.rank = world_.rank;
  control.size = world_.size;
  // Before the messages' own deadline: whoever waits for a silent rank, perhaps through others,
  // then hears its name instead of only missing its data.
  control.deadline_us = deadline_us() / 10 * 9;
  control.heartbeat_us = static_cast<uint64_t>(config_.runtime().heartbeat_s * 1e6);
  control.exchange_address = [this](std::string mine) { return exchange_address(mine); };
  control.on_abort = [this](Status reason) { on_abort(reason); };
  control.on_warning = [this](std::string text) { log_.write(LogLevel::warning, "control", text); };
  PENSTOCK_ASSIGN(control_, Control::start(std::move(control)));

  Operations::Options operations;
  operations.control = control_.get();
  operations.communication = communication_.get();
  operations.table = transport_->table();
  operations.instance = transport_->self();
  operations.world = &world_;
  operations.first_group_id = kFirstOperationGroup;
  operations.open_timeout_us = deadline_us();
  operations.deadline_us = deadline_us();
  operations.world_channel = world_channel_;
  PENSTOCK_ASSIGN(operations_, Operations::make(operations));
  return {};
}

// Rank 0's address for the control store, over the transport.
Result<std::string> Runtime::exchange_address(const std::string& mine) {
  std::string buffer(kAddressBytes, '\0');
  if (mine.size() >= kAddressBytes)
    return internal("the address of rank 0 takes {} bytes, at most {} fit", mine.size(),
                    kAddressBytes);
  std::memcpy(buffer.data(), mine.data(), mine.size());
  penstock_message message{};
  message.struct_size = sizeof message;
  message.pattern = PENSTOCK_BROADCAST;
  message.dtype = PENSTOCK_UINT8;
  message.count = kAddressBytes;
  message.send = buffer.data();
  message.receive = buffer.data();
  message.deadline_us = deadline_us();
  PENSTOCK_TRY(communication_->exchange_and_wait(world_channel_, message));
  return std::string(buffer.c_str());
}

Status Runtime::agree() {
  PENSTOCK_ASSIGN(std::string text, agreement_text(config_, *registry_));
  text += fmt::format("\npenstock {}, ABI {}.{}, frontend {}\n", PENSTOCK_VERSION,
                      PENSTOCK_ABI_MAJOR, PENSTOCK_ABI_MINOR, frontend_);
  PENSTOCK_TRY(control_->agree("configuration", text, {}, deadline_us()));
  PENSTOCK_TRY(agree_on_code_paths());
  const std::string& timeline = config_.runtime().timeline;
  if (!timeline.empty())
    PENSTOCK_TRY(timeline_.start(world_.size > 1 ? fmt::format("{}.rank{}", timeline, world_.rank)
                                                 : timeline));
  return {};
}

// Before the sets make instances of compressors and memories, which ask the host for their path.
Status Runtime::agree_on_code_paths() {
  const std::string& wanted = config_.runtime().code_path;
  const bool measures = world_.rank == 0 && wanted == "auto";
  PENSTOCK_ASSIGN(const auto offers,
                  control_->gather("code paths", code_path_offer(measures), {}, deadline_us()));
  PENSTOCK_ASSIGN(code_paths_, choose_code_paths(offers, wanted));
  for (const auto& [family, path] : code_paths_) host_->set_code_path(family, path);
  return {};
}

Runtime::~Runtime() {
  (void)timeline_.stop();
  operations_.reset();
  const bool aborted = control_ != nullptr && control_->aborted();
  if (control_ != nullptr) control_->stop();
  if (engine_ != nullptr) communication_->set_listener(nullptr);
  engine_.reset();
  if (joined_ && PENSTOCK_HAS_MEMBER(transport_->table(), penstock_collective, leave)) {
    if (world_channel_ != nullptr) communication_->close_channel(world_channel_);
    (void)communication_->run([&] {
      transport_->table()->leave(transport_->self(), aborted ? 1 : 0);
      return Status();
    });
  }
  communication_.reset();
  control_.reset();
}

void Runtime::give_up(const Status& reason) {
  log_.write(LogLevel::error, "runtime", reason.message());
  control_->abort(reason);
  on_abort(reason);
}

void Runtime::on_abort(const Status& reason) {
  communication_->abort(reason);
  std::lock_guard lock(mutex_);
  for (Set* set : sets_) set->fail(reason);
}

Result<Channel*> Runtime::open_channel(const std::string& what, const std::vector<uint32_t>& ranks,
                                       CollectiveInstance& collective, Channel* base) {
  Channel* channel = nullptr;
  // In the order that all ranks agree on: opening waits for the others.
  PENSTOCK_TRY(operations_->run_agreed("open " + what, "", ranks, [&](uint64_t serial) {
    Communication::OpenRequest request{};
    request.table = collective.table();
    request.instance = collective.self();
    request.world_ranks = ranks;
    request.my_world_rank = world_.rank;
    request.world = &world_;
    request.group_id = kFirstSetGroup + serial;
    request.level = ranks.size() == world_.size ? PENSTOCK_LEVEL_WORLD : PENSTOCK_LEVEL_SUBSET;
    request.base = base;
    request.store = control_->store();
    request.timeout_us = deadline_us();
    request.name = what;
    auto opened = communication_->open_channel(request);
    if (opened.ok()) channel = opened.value();
    return opened.status();
  }));
  return channel;
}

void Runtime::remember(Set* set) {
  std::lock_guard lock(mutex_);
  sets_.insert(set);
}

void Runtime::forget(Set* set) {
  std::lock_guard lock(mutex_);
  sets_.erase(set);
}

penstock_topology Runtime::topology() const {
  penstock_topology topology{};
  topology.struct_size = sizeof topology;
  topology.rank = world_.rank;
  topology.size = world_.size;
  const uint32_t host = world_.hosts[world_.rank];
  uint32_t hosts = 0;
  for (uint32_t r = 0; r < world_.size; ++r) {
    hosts = std::max(hosts, world_.hosts[r] + 1);
    if (world_.hosts[r] != host) continue;
    if (r < world_.rank) ++topology.local_rank;
    ++topology.local_size;
  }
  topology.cross_rank = host;
  topology.cross_size = hosts;
  return topology;
}

Result<std::string> Runtime::report() {
  const Scheme scheme = config_.at_step(0);
  nlohmann::json plugins = nlohmann::json::array();
  for (const PluginFile& file : registry_->files())
    plugins.push_back(
        {{"id", file.record.id}, {"version", file.record.version}, {"path", file.path}});
  nlohmann::json searched = nlohmann::json::array();
  for (const auto& place : registry_->searched())
    searched.push_back({{"directory", place.directory}, {"note", place.note}});
  const nlohmann::json report{{"version", PENSTOCK_VERSION},
                              {"rank", world_.rank},
                              {"size", world_.size},
                              {"frontend", frontend_},
                              {"configuration", config_.origin()},
                              {"scheme",
                               {{"compressor", scheme.compressor},
                                {"memory", scheme.memory},
                                {"collective", scheme.collective},
                                {"transport", scheme.transport},
                                {"scheduler", scheme.scheduler},
                                {"route", route_name(scheme.route)}}},
                              {"seed", config_.runtime().seed},
                              {"deterministic", config_.runtime().deterministic},
                              {"code_paths", code_paths_},
                              {"plugins", plugins},
                              {"searched", searched}};
  return report.dump(2);
}

}  // namespace penstock
