// Models and plans as JSON, for plan_probe. The names are the members of planning::ModelEntries and
// penstock_measurement, and an absent member has its default value. A number that JSON cannot write
// is a text: "nan", "inf", "-inf". An unknown key is an error, because otherwise a misspelt
// question would get a wrong answer.
#pragma once

#include <penstock/scheduler.h>

#include <nlohmann/json.hpp>
#include <planning/model.hpp>
#include <planning/plan.hpp>
#include <string>
#include <testing/instances.hpp>

namespace penstock::test {

// A model, checked so far that planning::OwnedModel can read it: it has bytes for each phase of the
// period. Both functions throw std::invalid_argument or nlohmann's exceptions, with the wrong key.
planning::ModelEntries model_from(const nlohmann::json& json);

penstock_measurement measurement_from(const nlohmann::json& json);

// The texts of the settings point into `json`.
OptionSettings options_from(const nlohmann::json& json);

nlohmann::json json_of(const planning::Plan& plan);

}  // namespace penstock::test
