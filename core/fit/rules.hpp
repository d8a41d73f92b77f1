// Checks which plugins and frontends go together: a pure function over plain facts. A wrong pair is
// refused at start-up, with a message that names both sides and a combination that works, and not
// in the middle of a run.
#pragma once

#include "core/base/status.hpp"
#include "core/fit/facts.hpp"
#include "core/plugin/registry.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

// Gradients with equal compressor, memory and facts.
struct FitGroup {
  std::string example;  // the name of one gradient
  CompressorFacts compressor;
  MemoryFacts memory;
  MemoryFacts owner_memory;  // the owners' memory of sums, on route shard
  int32_t device_type = PENSTOCK_DEVICE_CPU;
};

class Offers;

struct FitInput {
  std::vector<FitGroup> groups;
  CollectiveFacts collective;  // the composite if the scheme has one, else the transport
  bool has_transport = false;  // the scheme names a transport
  CollectiveFacts transport;
  std::map<uint32_t, CollectiveFacts> of_level;    // by PENSTOCK_LEVEL_*, if [transport] names one
  std::optional<CollectiveFacts> between_devices;  // of transport.device
  SchedulerFacts scheduler;
  uint32_t frontend = 0;  // PENSTOCK_SET_* of runtime.h
  uint32_t route = PENSTOCK_ROUTE_FLAT;
  bool names_owner_memory = false;
  bool applies_previous = false;  // scheme.apply = "previous"
  bool deterministic = false;
  // Of payloads: all, with slices of as many ranks as fit (0: not yet known), and those that every
  // number of ranks at once needs.
  uint64_t arena_bytes = 0, arena_fixed_bytes = 0;
  uint64_t arena_limit_bytes = 0;
  uint32_t world = 1;
  uint64_t most_candidates = 1;    // the most possible compressors of any gradient
  const Offers* offers = nullptr;  // plugins that messages may name instead; null: none known
};

// Adds a group unless `input` has a group with equal facts. One pair of instances may have several
// groups: Power-SGD's facts for a matrix and for a vector differ.
void add_group(FitInput& input, FitGroup group);

// The warnings of the core although everything fits.
struct FitAdvice {
  std::vector<std::string> warnings;  // for the log
};

// FAILED_PRECONDITION for the first misfit, in the order of the lines of check_fit. It is a pure
// function, but `offers` may load plugins to write a message.
Result<FitAdvice> check_fit(const FitInput& input);

// Whether the buffers of a step fit the limit. If not, FAILED_PRECONDITION says how much they need.
// Pure.
Status check_size(const FitInput& input);

}  // namespace penstock
