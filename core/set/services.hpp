// What a set uses of the run that it belongs to; the run outlives its sets.
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

// How long things may take, in microseconds.
struct TimeLimits {
  uint64_t deadline_us = 0;
  uint64_t busy_us = 0;     // how long ranks that are alive are waited for; 0: for ever
  uint64_t meeting_us = 0;  // the same for a rendezvous, which is never for ever
  uint64_t end_us = 0;      // what has been given up ends within this time
};

struct Services {
  // What only the run as a whole can do.
  struct Run {
    // [any] Gives the run up for a failure of this rank: the others are told.
    virtual void give_up(const Status& reason) = 0;
    // [control] A channel for a group. `what` is equal on all members and unique in
    // the run.
    virtual Result<Channel*> open_channel(const std::string& what, const Group& group,
                                          CollectiveInstance& collective, Channel* base) = 0;
    // [control] False when the engine or the transport is in a call that does not come back.
    virtual bool answers() = 0;
    // [control] `what` cannot be freed: says why, and keeps the run from being freed as well.
    virtual void abandon(std::string_view what) = 0;
    // [control] The file for the profile of the next set; empty: none is wanted.
    virtual std::string next_profile() = 0;
    // The set hears when the run is given up, and when other ranks have joined.
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

  // Success until the run was given up.
  Status state() const { return control.abort_reason(); }
};

}  // namespace penstock
