// Asking a scheduler for a plan: builds the C view of the model and collects what the scheduler
// writes.
#pragma once

#include "core/plan/plan.hpp"
#include "core/plugin/instances.hpp"

#include <string>
#include <vector>

namespace penstock {

struct CandidateFacts {
  std::string compressor;
  std::vector<uint64_t> phase_bytes;
  uint64_t part_alignment = 0;
  uint32_t combine = 0;
  uint32_t n_rounds = 0;
  // Negative while the compressor has not run.
  double encode_fixed_us = -1, encode_per_element_us = -1;
  double decode_fixed_us = -1, decode_per_element_us = -1;
};

struct GradientModelFacts {
  std::string name;
  std::vector<int64_t> shape;
  uint64_t numel = 0;
  uint32_t dtype = PENSTOCK_FLOAT32;
  uint32_t given_bucket = PENSTOCK_NO_BUCKET;
  double ready_us = -1;
  double forward_us = -1;
  std::vector<CandidateFacts> candidates;
};

struct LinkFacts {
  double alpha_us = 0;
  double beta_us_per_byte = 0;
  uint32_t level = PENSTOCK_LEVEL_WORLD;
};

struct ModelFacts {
  std::vector<GradientModelFacts> gradients;  // in order of registration
  std::vector<uint64_t> order;                // in which they become ready
  std::vector<LinkFacts> links;
  double backward_us = 0, forward_us = 0;
  uint32_t world = 1, hosts = 1, ranks_per_host = 1;
  uint32_t period = 1;
  uint32_t route = 0;
  uint32_t flags = 0;
};

// [plan] Calls the scheduler and checks what it gives.
Result<Plan> make_plan(SchedulerInstance& scheduler, const ModelFacts& model);

}  // namespace penstock
