// Requests a plan from a scheduler.
#pragma once

#include "core/plan/plan.hpp"
#include "core/plugin/instances.hpp"

#include <planning/model.hpp>

namespace penstock {

// Whether a scheduler was built with headers in which models have lines and volumes, and
// measurements have wire and wait: an older scheduler refuses unknown fields.
bool reads_lines(const SchedulerInstance& scheduler);

// Whether it reads the costs of compressors: it plans from measured times, or chooses compressors.
bool looks_at_costs(const SchedulerInstance& scheduler);

// [plan] Calls the scheduler and checks its output; the plan has the model's period.
Result<Plan> make_plan(SchedulerInstance& scheduler, const penstock_model& model);

}  // namespace penstock
