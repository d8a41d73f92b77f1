// Functions that read a penstock_model for schedulers, and a builder that owns a model, for
// simulators and tests.
#pragma once

#include <penstock/compressor.h>
#include <penstock/scheduler.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace penstock::planning {

// ---- Reading ----

// Returns the fault of a model, as a sentence for an error; empty if a plan can be made. It checks
// everything that a planner relies on, so that the planner need not check again: pointers, that the
// order is a permutation, candidates, the period, and that the requested route is in `routes` (a
// bit per PENSTOCK_ROUTE_*). Times and cost lines are never a fault: see usable() in cost.hpp.
std::string find_problem(const penstock_model& model, uint64_t routes);

// The bit of a route in a mask.
constexpr uint64_t route_bit(uint32_t route) {
  return uint64_t{1} << route;
}

// The routes for a scheduler that only forms buckets: each route carries a bucket as a whole.
constexpr uint64_t kWholeBucketRoutes = route_bit(PENSTOCK_ROUTE_FLAT) |
                                        route_bit(PENSTOCK_ROUTE_HIERARCHICAL) |
                                        route_bit(PENSTOCK_ROUTE_SHARD);

// The route that the scheme requests, or flat if the scheme leaves the choice.
inline uint32_t whole_bucket_route(const penstock_model& model) {
  return model.route == 0 ? uint32_t{PENSTOCK_ROUTE_FLAT} : model.route;
}

// Bytes that a rank sends for a gradient in a phase, with its configured compressor.
uint64_t payload_bytes(const penstock_gradient_model& gradient, uint32_t phase);

// Gradients that send data in `phase`, in order of readiness. A gradient that sends no data in any
// phase (it has no elements) takes part in phase 0: every gradient has a place in a plan.
std::vector<uint64_t> taking_part(const penstock_model& model, uint32_t phase);

// The units that must not be divided, in order of readiness: with GIVEN_BUCKETS the given buckets,
// each at the place of its last member, otherwise single gradients. Members are in order of
// readiness.
std::vector<std::vector<uint64_t>> units(const penstock_model& model, uint32_t phase);
// The units of these gradients, which must be in order of readiness.
std::vector<std::vector<uint64_t>> units(const penstock_model& model,
                                         const std::vector<uint64_t>& gradients);

// The time in microseconds at which each of `gradients` is ready: the running maximum, because the
// order is agreed and a decreasing time is noise. An invalid time counts as zero.
std::vector<double> ready_times(const penstock_model& model,
                                const std::vector<uint64_t>& gradients);

// Buckets of `count` gradients each (at least one), in order of readiness; the last may hold fewer.
// A scheduler plans these as long as no times are measured.
std::vector<std::vector<uint64_t>> buckets_by_count(const penstock_model& model, uint32_t phase,
                                                    uint64_t count);

// Cuts `gradients` into runs of `counts`, which are positive and add up to their number.
std::vector<std::vector<uint64_t>> runs_of(const std::vector<uint64_t>& gradients,
                                           const std::vector<uint64_t>& counts);

// The time at which each of `gradients` would be ready if backward took the time `backward` and
// each gradient took a part in proportion to its elements, in the unit of `backward`. If there are
// no elements, all gradients are ready at once.
std::vector<double> ready_by_elements(const penstock_model& model,
                                      const std::vector<uint64_t>& gradients, double backward);

// Gradients in the order in which the next forward needs them: by measured forward times if all are
// known, otherwise in the reverse of the order of readiness.
std::vector<uint64_t> forward_order(const penstock_model& model);

// a + b, or the largest number if a + b would overflow.
constexpr uint64_t saturating_add(uint64_t a, uint64_t b) {
  return a + b < a ? UINT64_MAX : a + b;
}

// ---- Owning ----

struct CandidateEntry {
  std::string compressor = "none";
  std::vector<uint64_t> phase_bytes;  // [period]
  double encode_fixed_us = -1;        // negative: unmeasured
  double encode_per_element_us = -1;
  double decode_fixed_us = -1;
  double decode_per_element_us = -1;
  uint64_t part_alignment = 1;
  uint32_t combine = PENSTOCK_COMBINE_SUM;
  uint32_t n_rounds = 1;
  uint64_t routes = kWholeBucketRoutes | route_bit(PENSTOCK_ROUTE_SPLIT);
};

struct GradientEntry {
  std::string name;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;  // uncompressed
  std::vector<CandidateEntry> candidates;
  double ready_us = -1;
  double forward_us = -1;
  uint32_t dtype = PENSTOCK_FLOAT32;
  uint32_t given_bucket = PENSTOCK_NO_BUCKET;
};

// A float32 gradient of one dimension, sent uncompressed.
GradientEntry dense_gradient(std::string name, uint64_t numel, double ready_us = -1);

struct LinkEntry {
  double alpha_us = 0;
  double beta_us_per_byte = 0;
  uint32_t level = PENSTOCK_LEVEL_WORLD;
  uint32_t pattern = 0;  // of a line; 0 among the links
  uint64_t bytes_from = 0;
};

struct ModelEntries {
  std::vector<GradientEntry> gradients;  // in order of registration
  std::vector<uint64_t> order;           // empty: the reverse of registration
  std::vector<LinkEntry> links;          // one for each level
  std::vector<LinkEntry> lines;          // per level, pattern and class of size
  // As in penstock_model; the data behind volume_context must outlive the model.
  decltype(penstock_model::volume) volume = nullptr;
  void* volume_context = nullptr;
  double backward_us = 0;
  double forward_us = 0;
  uint32_t world = 1;
  uint32_t hosts = 1;
  uint32_t ranks_per_host = 1;
  uint32_t period = 1;
  uint32_t route = 0;
  uint32_t flags = 0;
};

// Owns a penstock_model and all data that it points to. The model is valid as long as this object.
class OwnedModel {
 public:
  explicit OwnedModel(ModelEntries entries);
  ~OwnedModel();
  OwnedModel(OwnedModel&&) noexcept;
  OwnedModel& operator=(OwnedModel&&) noexcept;
  const penstock_model& model() const;

 private:
  struct Storage;
  std::unique_ptr<Storage> storage_;
};

}  // namespace penstock::planning
