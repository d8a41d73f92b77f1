// Models and plans as JSON, for plan_probe. The names are those of planning::ModelEntries and of
// penstock_measurement; what is absent has its default there. A number that JSON cannot write is a
// text: "nan", "inf", "-inf". A key that is not known is an error, as silence would plan something
// else than was asked.
#pragma once

#include <penstock/scheduler.h>

#include <nlohmann/json.hpp>
#include <planning/model.hpp>
#include <planning/plan.hpp>
#include <string>
#include <testing/instances.hpp>

namespace penstock::test {

// A model, checked as far as it must be to be owned: bytes for each phase of the period. All of
// these throw std::invalid_argument or nlohmann's exceptions with the key at fault.
planning::ModelEntries model_from(const nlohmann::json& json);

penstock_measurement measurement_from(const nlohmann::json& json);

// The texts of the settings point into `json`.
OptionSettings options_from(const nlohmann::json& json);

nlohmann::json json_of(const planning::Plan& plan);

}  // namespace penstock::test
