// Which plugins and frontends go together: a pure function over plain facts, so that a wrong pair
// is refused at start-up, naming both sides and a combination that works, and never met at step
// 1000.
#pragma once

#include "core/base/status.hpp"
#include "core/fit/facts.hpp"
#include "core/plugin/registry.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

// Gradients with the same compressor, memory and facts.
struct FitGroup {
  std::string example;  // name of one of them
  CompressorFacts compressor;
  MemoryFacts memory;
  MemoryFacts owner_memory;  // of sums, on route shard
  int32_t device_type = PENSTOCK_DEVICE_CPU;
};

class Offers;

struct FitInput {
  std::vector<FitGroup> groups;
  CollectiveFacts collective;  // the composite one where the scheme has one, else the transport
  bool has_transport = false;  // the scheme gives one
  CollectiveFacts transport;
  std::map<uint32_t, CollectiveFacts> of_level;  // where [transport] names one, by PENSTOCK_LEVEL_*
  std::optional<CollectiveFacts> between_devices;  // of transport.device
  SchedulerFacts scheduler;
  uint32_t frontend = 0;  // PENSTOCK_SET_* of runtime.h
  uint32_t route = PENSTOCK_ROUTE_FLAT;
  bool names_owner_memory = false;
  bool deterministic = false;
  uint64_t arena_bytes = 0;  // 0: not yet known
  uint64_t arena_limit_bytes = 0;
  uint32_t world = 1;
  uint64_t most_candidates = 1;    // compressors that some gradient may be given to
  const Offers* offers = nullptr;  // what messages may name instead; null: nobody knows
};

// Adds a group unless one with the same facts is there. One pair of instances may have several:
// Power-SGD's facts of a matrix and of a vector differ.
void add_group(FitInput& input, FitGroup group);

// What the core has to say although everything fits.
struct FitAdvice {
  std::vector<std::string> warnings;  // for the log
};

// FAILED_PRECONDITION for the first misfit, in the order of the lines of check_fit. It is a pure
// function, but `offers` may load plugins to write a message.
Result<FitAdvice> check_fit(const FitInput& input);

// Whether what a step needs has room: FAILED_PRECONDITION says how much it is. Pure.
Status check_size(const FitInput& input);

}  // namespace penstock
