// For tests: the input that the scheduler `witness` (tests/plugins) received.
#pragma once

#include "core/set/testing.hpp"

#include <nlohmann/json.hpp>

#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace penstock::testing {

using Figures = std::map<std::string, std::vector<double>>;

// The lines "name value" in the scheduler's explanation of the plan in force.
inline Figures figures_of(Set& set) {
  Figures figures;
  const auto report = set.report();
  EXPECT_TRUE(report.ok());
  const auto json = nlohmann::json::parse(report.value());
  for (const auto& line : json.at("explanation")) {
    std::istringstream words(line.get<std::string>());
    std::string name;
    double value = 0;
    words >> name >> value;
    figures[name].push_back(value);
  }
  return figures;
}

}  // namespace penstock::testing
