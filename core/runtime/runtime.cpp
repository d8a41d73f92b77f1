#include "core/runtime/runtime.hpp"

#include "core/set/set.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>

namespace penstock {

// ---- the end ----

void RuntimeCloser::operator()(Runtime* runtime) const {
  if (runtime->end()) delete runtime;
}

Runtime::~Runtime() = default;

bool Runtime::answers() {
  const uint64_t limit_us = state().ok() ? deadline_us() : end_us();
  if (engine_ != nullptr && !engine_->answers_within(limit_us)) return false;
  return communication_ == nullptr ||
         communication_->run_within(limit_us, [] { return Status(); }).ok();
}

void Runtime::abandon(std::string_view what) {
  abandoned_ = true;
  for (const CallSlot* slot : activity_->slots())
    if (const auto call = slot->lasting(0))
      return log_.write(LogLevel::warning, "runtime",
                        fmt::format("{} is abandoned, not freed: {} has not come back for {:.1f} s",
                                    what, call->text, double(call->lasted_us) * 1e-6));
  log_.write(LogLevel::warning, "runtime",
             fmt::format("{} is abandoned, not freed: its work does not end", what));
}

bool Runtime::leave(uint64_t wait_us) {
  if (control_ == nullptr || abandoned_ || !answers()) return true;  // end() tells the others
  end_operations();
  return control_->leave(wait_us);
}

void Runtime::end_operations() {
  std::unique_ptr<Operations> operations;  // an abort during this end needs them
  {
    const Lock lock(mutex_);
    operations = std::move(operations_);
  }
}

bool Runtime::end() {
  (void)timeline_.stop();
  if (abandoned_ || !answers()) {
    if (!abandoned_) abandon("the runtime");
    // The other ranks learn that this rank has gone.
    if (control_ != nullptr) {
      control_->abort(aborted("rank {} ends with work that does not come back", world_.rank()));
      control_->stop();
    }
    return false;
  }
  end_operations();
  const bool aborted = control_ != nullptr && control_->aborted();
  if (control_ != nullptr) control_->stop();
  if (engine_ != nullptr) communication_->set_listener(nullptr);
  engine_.reset();
  if (between_devices_.channel != nullptr)
    communication_->close_channel(std::exchange(between_devices_.channel, nullptr));
  for (CollectiveInstance* transport : joined_) {
    if (!PENSTOCK_HAS_MEMBER(transport->table(), penstock_collective, leave)) continue;
    if (world_channel_ != nullptr) communication_->close_channel(world_channel_);
    world_channel_ = nullptr;
    (void)communication_->run([&] {
      transport->table()->leave(transport->self(), aborted ? 1 : 0);
      return Status();
    });
  }
  communication_.reset();
  control_.reset();
  return true;
}

void Runtime::give_up(const Status& reason) {
  control_->abort(reason);
  on_abort(reason);
}

void Runtime::abort_as_notified(const Status& reason) {
  if (!gave_up_.exchange(true)) log_.write(LogLevel::info, "runtime", reason.message());
  give_up(reason);
}

void Runtime::on_abort(const Status& reason) {
  // Logs only the first cause, because every bucket under way reports the abort.
  if (!gave_up_.exchange(true)) log_.write(LogLevel::error, "runtime", reason.message());
  communication_->abort(reason);
  const Lock lock(mutex_);
  if (operations_ != nullptr) operations_->fail(reason);
  for (Set* set : sets_) set->fail(reason);
}

// ---- plugin calls that do not return ----

// [watch]
void Runtime::look_at_calls() {
  if (!watches_) return;
  const auto slots = activity_->slots();
  for (size_t i = 0; i < slots.size(); ++i) look_at_call(*slots[i], warned_[i]);
}

void Runtime::look_at_call(const CallSlot& slot, Warned& warned) {
  const auto warning_us = static_cast<uint64_t>(config_.runtime().stall_warning_s * 1e6);
  const uint64_t limit_us = call_limit_us();
  // For both values, 0 means never.
  const uint64_t first_us = std::min(warning_us - 1, limit_us - 1) + 1;
  if (first_us == 0) return;
  const auto call = slot.lasting(std::max<uint64_t>(first_us, 1'000));
  if (!call) return;
  if (limit_us != 0 && call->lasted_us >= limit_us)
    return control_->abort(hangs(call->text, call->lasted_us));  // calls on_abort later
  if (warned.since_us != call->since_us) warned = {call->since_us, 0};
  const uint64_t now = now_us();
  if (warning_us == 0 || call->lasted_us < warning_us || now < warned.again_us) return;
  warned.again_us = now + warning_us;
  log_.write(LogLevel::warning, "runtime",
             fmt::format("{} has not returned for {:.1f} s; this rank and the ranks that wait for "
                         "it stand still",
                         call->text, double(call->lasted_us) * 1e-6));
}

// ---- channels and sets ----

Result<Channel*> Runtime::open_channel(const std::string& what, const Group& group,
                                       CollectiveInstance& collective, Channel* base) {
  // The task shares `opened`: after an abort this wait ends earlier than a stuck task.
  const auto opened = std::make_shared<Channel*>(nullptr);
  // In an order that all ranks agree on, because opening waits for the other ranks.
  PENSTOCK_TRY(
      operations_->run_agreed("open " + what, "", group,
                              [this, what, group, table = collective.table(),
                               self = collective.self(), base, opened](uint64_t serial) -> Status {
                                Communication::OpenRequest request{};
                                request.table = table;
                                request.instance = self;
                                request.group = group;
                                request.group_id = group_id(serial);
                                request.base = base;
                                request.store = control_->store();
                                request.timeout_us = messages_us();
                                request.name = what;
                                PENSTOCK_ASSIGN(*opened, communication_->open_channel(request));
                                return {};
                              }));
  return *opened;
}

void Runtime::remember(Set& set) {
  const Lock lock(mutex_);
  sets_.insert(&set);
}

void Runtime::forget(Set& set) {
  const Lock lock(mutex_);
  sets_.erase(&set);
}

// Returns mine.csv, and mine.2.csv for a second set.
std::string Runtime::next_profile() {
  const std::filesystem::path path = config_.runtime().profile;
  if (path.empty() || world_.rank() != 0) return {};
  if (++n_profiles_ == 1) return path.string();
  std::filesystem::path further = path;
  further.replace_filename(
      fmt::format("{}.{}{}", path.stem().string(), n_profiles_, path.extension().string()));
  return further.string();
}

Services Runtime::services() {
  return {*this,
          config_,
          *registry_,
          log_,
          timeline_,
          *activity_,
          *communication_,
          *control_,
          *engine_,
          transports_,
          between_devices_,
          devices_,
          world_,
          topology(),
          {deadline_us(), busy_limit_us(), rendezvous_us(), end_us()}};
}

penstock_topology Runtime::topology() const {
  penstock_topology topology{};
  topology.struct_size = sizeof topology;
  topology.rank = world_.rank();
  topology.size = world_.size();
  const Group local = world_.local();
  topology.local_rank = local.rank();
  topology.local_size = local.size();
  topology.cross_rank = world_.host();
  topology.cross_size = world_.n_hosts();
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
  const Result<int32_t> devices = devices_.count();
  const nlohmann::json report{{"version", PENSTOCK_VERSION},
                              {"rank", world_.rank()},
                              {"size", world_.size()},
                              {"frontend", frontend_},
                              {"configuration", config_.origin()},
                              {"scheme",
                               {{"compressor", scheme.compressor},
                                {"memory", scheme.memory},
                                {"collective", scheme.collective},
                                {"transport", scheme.transport},
                                {"local_transport", scheme.local_transport},
                                {"cross_transport", scheme.cross_transport},
                                {"device_transport", scheme.device_transport},
                                {"scheduler", scheme.scheduler},
                                {"route", route_name(scheme.route)}}},
                              {"seed", config_.runtime().seed},
                              {"deterministic", config_.runtime().deterministic},
                              {"forget", config_.runtime().forget},
                              {"check_parameters_every", config_.runtime().check_parameters_every},
                              {"log_level", config_.runtime().log_level},
                              {"code_paths", code_paths_},
                              {"cuda_devices", devices.ok() ? devices.value() : 0},
                              {"cuda_devices_note", devices.status().message()},
                              {"plugins", plugins},
                              {"searched", searched}};
  return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace penstock
