// The parts of a run that its sets use. The run outlives its sets.
#pragma once

#include "core/bucket/engine.hpp"
#include "core/comm/communication.hpp"
#include "core/comm/transports.hpp"
#include "core/config/config.hpp"
#include "core/control/control.hpp"
#include "core/device/devices.hpp"
#include "core/plugin/instances.hpp"
#include "core/plugin/registry.hpp"
#include "core/trace/log.hpp"
#include "core/trace/timeline.hpp"

#include <penstock/runtime.h>

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

class Set;

// Limits of time, in microseconds.
struct TimeLimits {
  uint64_t deadline_us = 0;
  uint64_t busy_us = 0;        // the longest wait for ranks that are alive; 0: for ever
  uint64_t rendezvous_us = 0;  // the longest wait in a rendezvous, never for ever
  uint64_t end_us = 0;         // the longest wait for the end of work that was given up
};

struct Services {
  // Operations that only the run as a whole can do.
  struct Run {
    // [any] Gives the run up because this rank has failed, and notifies the other ranks.
    virtual void give_up(const Status& reason) = 0;
    // [control] Opens a channel for a group. The text that names it must be equal on all members
    // and unique in the run.
    virtual Result<Channel*> open_channel(const std::string& what, const Group& group,
                                          CollectiveInstance& collective, Channel* base) = 0;
    // [control] False if the engine or the transport is in a call that does not return.
    virtual bool answers() = 0;
    // [control] The named object cannot be freed: reports why, and keeps the run from being freed
    // as well.
    virtual void abandon(std::string_view what) = 0;
    // [control] The file for the profile of the next set; empty: no profile is wanted.
    virtual std::string next_profile() = 0;
    // From remember() to forget(), the run notifies the set when the run is given up and when
    // other ranks have joined.
    virtual void remember(Set& set) = 0;
    virtual void forget(Set& set) = 0;

   protected:
    ~Run() = default;
  };

  Run& run;
  const Config& config;
  Registry& registry;
  Log& log;
  Timeline& timeline;
  Activity& activity;
  Communication& communication;
  Control& control;
  Engine& engine;
  const Transports& transports;
  BetweenDevices& between_devices;
  Devices& devices;
  const Group& world;
  penstock_topology topology{};
  TimeLimits limits;

  // Success until the run is given up; then the reason.
  Status state() const { return control.abort_reason(); }
};

}  // namespace penstock
