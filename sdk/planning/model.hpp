// Reading a penstock_model, and owning one: what every scheduler asks of it, and a builder for
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

// What is wrong with a model, as a sentence for an error; empty when a plan can be made of it.
// Checks all that a planner relies on, so that it need not look again: pointers, the order being a
// permutation, candidates, the period, and that the route asked for is one of `routes` (a bit per
// PENSTOCK_ROUTE_*). Times and cost lines are never a problem: see usable() in cost.hpp.
std::string find_problem(const penstock_model& model, uint64_t routes);

// The bit of a route in a mask.
constexpr uint64_t route_bit(uint32_t route) {
  return uint64_t{1} << route;
}

// The routes of a scheduler that only says what travels together: each takes a bucket whole.
constexpr uint64_t kWholeBucketRoutes = route_bit(PENSTOCK_ROUTE_FLAT) |
                                        route_bit(PENSTOCK_ROUTE_HIERARCHICAL) |
                                        route_bit(PENSTOCK_ROUTE_SHARD);

// The route that the scheme asks for, or flat where it leaves the choice.
inline uint32_t whole_bucket_route(const penstock_model& model) {
  return model.route == 0 ? uint32_t{PENSTOCK_ROUTE_FLAT} : model.route;
}

// Bytes that a rank hands over for a gradient in a phase, with its configured compressor.
uint64_t payload_bytes(const penstock_gradient_model& gradient, uint32_t phase);

// Gradients that send something in `phase`, in order of readiness. One that sends nothing in any
// phase (it has no elements) takes part in phase 0: every gradient has a place in a plan.
std::vector<uint64_t> taking_part(const penstock_model& model, uint32_t phase);

// What may not be divided, in order of readiness: with GIVEN_BUCKETS the given buckets, each at the
// place of its last member, otherwise single gradients. Members are in order of readiness.
std::vector<std::vector<uint64_t>> units(const penstock_model& model, uint32_t phase);
// The same of these gradients, which are in order of readiness.
std::vector<std::vector<uint64_t>> units(const penstock_model& model,
                                         const std::vector<uint64_t>& gradients);

// When each of `gradients` is ready, in microseconds: the running maximum, because their order is
// agreed and a time that runs backwards is noise. What is no time counts as zero.
std::vector<double> ready_times(const penstock_model& model,
                                const std::vector<uint64_t>& gradients);

// Buckets of `count` gradients each (at least one), in order of readiness; the last may hold fewer.
// What a scheduler plans as long as nothing is measured.
std::vector<std::vector<uint64_t>> buckets_by_count(const penstock_model& model, uint32_t phase,
                                                    uint64_t count);

// Cuts `gradients` into runs of `counts`, which are positive and add up to their number.
std::vector<std::vector<uint64_t>> runs_of(const std::vector<uint64_t>& gradients,
                                           const std::vector<uint64_t>& counts);

// When each of `gradients` would be ready if backward took `backward` time in all and each took its
// share by elements: in the unit of `backward`. Without any element all are ready at once.
std::vector<double> ready_by_elements(const penstock_model& model,
                                      const std::vector<uint64_t>& gradients, double backward);

// Gradients in the order in which the next forward needs them: by measured forward times where all
// are known, otherwise the reverse of the order of readiness.
std::vector<uint64_t> forward_order(const penstock_model& model);

// a + b, or the largest number where that would overflow.
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

// A float32 gradient of one dimension that is sent as it is.
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
  // As in penstock_model; what it needs outlives the model.
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

// A penstock_model with all it points to. The model is valid as long as this object is.
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
