// A runtime: configuration, plugins, threads and the meeting with the other ranks. Several may live
// in one process.
#pragma once

#include "core/comm/communication.hpp"
#include "core/comm/control.hpp"
#include "core/comm/operations.hpp"
#include "core/config/load.hpp"
#include "core/pipeline/engine.hpp"
#include "core/plugin/code_paths.hpp"
#include "core/plugin/host.hpp"
#include "core/plugin/resolve.hpp"
#include "core/trace/timeline.hpp"

#include <penstock/runtime.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace penstock {

class Set;

class Runtime {
 public:
  // [control] Collective over all ranks of the run.
  static Result<std::unique_ptr<Runtime>> open(const penstock_runtime_options& options);
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
  CollectiveInstance& transport() { return *transport_; }
  const penstock_world& world() const { return world_; }
  uint64_t deadline_us() const { return static_cast<uint64_t>(config_.runtime().deadline_s * 1e6); }
  penstock_topology topology() const;
  const CodePaths& code_paths() const { return code_paths_; }
  const penstock_host* host() const { return host_->table(); }
  Result<std::string> report();

  // [any] Gives the run up for a failure of this rank: the others are told.
  void give_up(const Status& reason);
  // Success until the run was given up.
  Status state() const { return control_ != nullptr ? control_->abort_reason() : Status(); }

  // [control] A channel for a group of world ranks. `what` is equal on all members and unique in
  // the run.
  Result<Channel*> open_channel(const std::string& what, const std::vector<uint32_t>& ranks,
                                CollectiveInstance& collective, Channel* base);

  void remember(Set* set);
  void forget(Set* set);

 private:
  Runtime() = default;
  Status load(const penstock_runtime_options& options);
  Status meet(const penstock_runtime_options& options);
  Status agree();
  Status agree_on_code_paths();
  Result<std::string> exchange_address(const std::string& mine);
  void on_abort(const Status& reason);

  Log log_;
  Timeline timeline_;
  std::unique_ptr<Host> host_;
  CodePaths code_paths_;  // the host's, for the report
  Config config_;
  std::unique_ptr<Registry> registry_;
  std::string frontend_;
  std::unique_ptr<CollectiveInstance> transport_;
  penstock_world world_{};
  bool joined_ = false;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Communication> communication_;
  Channel* world_channel_ = nullptr;
  std::unique_ptr<Control> control_;
  std::unique_ptr<Operations> operations_;
  std::mutex mutex_;
  std::set<Set*> sets_;
};

}  // namespace penstock
