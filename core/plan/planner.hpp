// Asking a scheduler for a plan.
#pragma once

#include "core/plan/plan.hpp"
#include "core/plugin/instances.hpp"

#include <planning/model.hpp>

namespace penstock {

// Whether a scheduler was built with the headers in which models have lines and volumes, and
// measurements wire and wait: an older one refuses what it does not know.
bool reads_lines(const SchedulerInstance& scheduler);

// Whether it looks at what compressors take: it plans from measured times, or chooses.
bool looks_at_costs(const SchedulerInstance& scheduler);

// [plan] Calls the scheduler and checks what it writes; the plan has the model's period.
Result<Plan> make_plan(SchedulerInstance& scheduler, const penstock_model& model);

}  // namespace penstock
