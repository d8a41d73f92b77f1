// A runtime: configuration, plugins, threads and the rendezvous with the other ranks. Several
// runtimes may live in one process.
#pragma once

#include "core/base/mutex.hpp"
#include "core/comm/communication.hpp"
#include "core/comm/rendezvous.hpp"
#include "core/config/load.hpp"
#include "core/control/control.hpp"
#include "core/fit/resolve.hpp"
#include "core/operations/operations.hpp"
#include "core/plugin/code_paths.hpp"
#include "core/plugin/host.hpp"
#include "core/set/services.hpp"

#include <penstock/runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace penstock {

class Joined;
class Runtime;

// Ends a runtime in bounded time. A runtime with a plugin call that never returns is abandoned, not
// freed.
struct RuntimeCloser {
  void operator()(Runtime* runtime) const;
};
using RuntimeHandle = std::unique_ptr<Runtime, RuntimeCloser>;

class Runtime final : public Services::Run {
 public:
  // [control] Collective over all ranks of the run.
  static Result<RuntimeHandle> open(const penstock_runtime_options& options);
  // For tests: opens over the test's device table. No input from outside the program reaches this
  // function.
  static Result<RuntimeHandle> open_over(const penstock_device_table& devices,
                                         const penstock_runtime_options& options);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Config& config() const { return config_; }
  Registry& registry() { return *registry_; }
  Communication& communication() { return *communication_; }
  Control& control() { return *control_; }
  Operations& operations() { return *operations_; }
  Engine& engine() { return *engine_; }
  Timeline& timeline() { return timeline_; }
  Log& log() { return log_; }
  const Group& world() const { return world_; }
  const BetweenDevices& between_devices() const { return between_devices_; }
  uint64_t deadline_us() const { return static_cast<uint64_t>(config_.runtime().deadline_s * 1e6); }
  uint64_t busy_limit_us() const {
    return static_cast<uint64_t>(config_.runtime().busy_limit_s * 1e6);
  }
  // After this time a plugin call that does not return is named in a warning, before any rank gives
  // up its wait for the call; 0: never.
  uint64_t call_limit_us() const { return busy_limit_us() / 10 * 9; }
  // The limit of waits for messages of ranks that are known to live: the network may have been down
  // for nearly a deadline, and a message may take as long again to arrive afterwards.
  uint64_t messages_us() const { return 2 * deadline_us(); }
  uint64_t rendezvous_us() const { return busy_limit_us() != 0 ? busy_limit_us() : kYearUs; }
  // The limit of the wait for ranks that have not come to the run yet.
  uint64_t arrival_us() const {
    return static_cast<uint64_t>(config_.runtime().rendezvous_timeout_s * 1e6);
  }
  uint64_t end_us() const { return std::min<uint64_t>(deadline_us(), 5'000'000); }
  // [control] The services that the sets of this run may use.
  Services services();
  Activity& activity() { return *activity_; }
  penstock_topology topology() const;
  const CodePaths& code_paths() const { return code_paths_; }
  const penstock_host* host() const { return host_->table(); }
  Result<std::string> report();

  void give_up(const Status& reason) override;
  // Like give_up(), for a reason that the application has reported already: the other ranks log it
  // as an error, this rank only at level info.
  void abort_as_notified(const Status& reason);
  // Success until the run is aborted.
  Status state() const { return control_ != nullptr ? control_->abort_reason() : Status(); }

  Result<Channel*> open_channel(const std::string& what, const Group& group,
                                CollectiveInstance& collective, Channel* base) override;

  bool answers() override;
  void abandon(std::string_view what) override;
  std::string next_profile() override;
  void remember(Set& set) override;
  void forget(Set& set) override;

  // [control] See penstock_runtime_leave.
  bool leave(uint64_t wait_us);
  // [application] See penstock_join.
  Status join(uint64_t patience_us, uint32_t& last_rank);

 private:
  friend struct RuntimeCloser;
  static constexpr uint64_t kYearUs = uint64_t{366} * 86'400'000'000;
  // The last warning about a slot of plugin calls.
  struct Warned {
    uint64_t since_us = 0;
    uint64_t again_us = 0;
  };

  explicit Runtime(const penstock_device_table* devices) : devices_(devices) {}
  void end_operations();
  bool end();  // false: something is still running and cannot be waited for
  // open.cpp
  Status start(const penstock_runtime_options& options);
  Status load(const penstock_runtime_options& options);
  Status choose_transport(const penstock_runtime_options& options);
  Status choose_level_transports(const penstock_runtime_options& options);
  Status choose_device_transport(const Scheme& scheme);
  Status open_between_devices();
  Result<std::unique_ptr<CollectiveInstance>> make_transport(
      const Scheme& scheme, const std::string& name, const penstock_runtime_options& options);
  Status use_fallback(const penstock_runtime_options& options);
  Result<penstock_world> join(CollectiveInstance& transport);
  Status join_world();
  Status join_levels();
  Status share(std::string_view stage, const Status& mine);
  Status start_operations();
  Status agree();
  Status agree_on_code_paths();
  Status open_files();
  Status start_profile() const;

  // meet.cpp
  Status be_introduced(const penstock_runtime_options& options);
  Launched launched() const;
  Status meet_before();
  Status meet_over_transport();
  Status check_identity(const std::string& transport);
  Control::Options control_options();
  // apart.cpp
  Result<std::unique_ptr<CollectiveInstance>> make_apart(const Scheme& scheme,
                                                         const std::string& name);
  static Status hangs(std::string_view call, uint64_t lasted_us);

  // join.cpp
  std::shared_ptr<Joined> begin_to_join();
  Status take_part(const StepNotice& notice);
  void tell_where();

  void on_abort(const Status& reason);
  void look_at_calls();
  void look_at_call(const CallSlot& slot, Warned& warned);

  Log log_;
  Timeline timeline_;
  std::unique_ptr<Host> host_;
  CodePaths code_paths_;  // the host's code paths, for the report
  Config config_;
  std::unique_ptr<Registry> registry_;
  std::string frontend_;
  std::optional<Introduction> introduction_;
  std::shared_ptr<Activity> activity_ = std::make_shared<Activity>();
  Transports transports_;
  Devices devices_;
  Group world_;
  // The group of the rendezvous; a transport that receives it may keep a view of its hosts.
  Group met_;
  std::vector<CollectiveInstance*> joined_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Communication> communication_;
  Channel* world_channel_ = nullptr;
  BetweenDevices between_devices_;
  std::unique_ptr<Control> control_;
  // Created, taken and aborted under the mutex; used without the mutex by objects that it outlives.
  std::unique_ptr<Operations> operations_;
  uint32_t n_profiles_ = 0;  // number of sets that were given a profile file
  std::atomic<bool> gave_up_{false};
  bool abandoned_ = false;
  std::atomic<bool> watches_{false};  // true once control_ exists
  std::array<Warned, 3> warned_;      // [watch] one entry for each of Activity::slots
  Mutex mutex_;
  std::set<Set*> sets_ PENSTOCK_GUARDED_BY(mutex_);
  Mutex joining_mutex_;  // held while the application is in join
  // Null: this rank has not joined.
  std::shared_ptr<Joined> while_joined_ PENSTOCK_GUARDED_BY(joining_mutex_);
};

}  // namespace penstock
