// Asks the built schedulers for plans, so that an oracle in another language can compare its plans.
// One question per line of standard input, one answer per line of standard output:
//
//   {"scheduler": "fgbuff", "options": {"mode": "planned"}, "model": {...}, "measurements": [...]}
//   {"buckets": [{"phase": 0, "route": 1, "launch": 1,
//                 "pieces": [[gradient, first, numel, choice], ...]}, ...],
//    "messages": [...], "explanation": [...], "exposed_us": 12.5, "planned_us": 80.1,
//    "decisions": [...]}
//
// "options" and "measurements" may be absent. exposed_us is the forecast of planning::timeline, and
// planned_us the duration of the plugin's call. The instance receives the measurements after it has
// planned. A decision is 1 for a new plan, which the probe then asks for. A scheduler that refuses
// gives {"error": "...", "code": N}. An invalid question gives {"error": "..."}. Every question has
// a new instance.
//
// plan_probe finds the plugins in PENSTOCK_PLUGIN_DIRECTORY, or in its own build.
#include <chrono>
#include <iostream>
#include <map>
#include <planning/forecast.hpp>

#include "plan_probe_json.hpp"

namespace penstock::test {
namespace {

using nlohmann::json;

class Probe {
 public:
  json answer(const json& question) {
    const LoadedPlugin& plugin = loaded(question.at("scheduler").get<std::string>());
    const OptionSettings options = options_from(question.value("options", json::object()));
    const Instance<penstock_scheduler> scheduler(plugin.scheduler(), *plugin.module, options);
    const planning::OwnedModel owned(model_from(question.at("model")));
    planning::PlanRecorder recorder;
    const auto start = std::chrono::steady_clock::now();
    const Outcome outcome =
        take(scheduler.table().plan(scheduler.self(), &owned.model(), recorder.sink()));
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    if (!outcome.ok()) return {{"error", outcome.message}, {"code", outcome.code}};
    json result = json_of(recorder.plan());
    result["planned_us"] = took.count();
    result["exposed_us"] = planning::exposed_us(recorder.plan(), owned.model());
    if (question.contains("measurements"))
      result["decisions"] = decisions(scheduler, owned.model(), question.at("measurements"));
    return result;
  }

 private:
  const LoadedPlugin& loaded(const std::string& name) {
    const auto [place, is_new] = loaded_.try_emplace(name);
    if (is_new) place->second = load_plugin("scheduler", name);
    return place->second;
  }

  static json decisions(const Instance<penstock_scheduler>& scheduler, const penstock_model& model,
                        const json& measurements) {
    if (scheduler.table().observe == nullptr) throw std::invalid_argument("it does not observe");
    json result = json::array();
    for (const json& entry : measurements) {
      const penstock_measurement measurement = measurement_from(entry);
      uint32_t decision = PENSTOCK_KEEP_PLAN;
      Outcome outcome = take(scheduler.table().observe(scheduler.self(), &measurement, &decision));
      planning::PlanRecorder recorder;
      if (outcome.ok() && decision == PENSTOCK_MAKE_NEW_PLAN)
        outcome = take(scheduler.table().plan(scheduler.self(), &model, recorder.sink()));
      if (!outcome.ok()) throw std::runtime_error(outcome.message);
      result.push_back(decision);
    }
    return result;
  }

  std::map<std::string, LoadedPlugin> loaded_;
};

int run() {
  Probe probe;
  for (std::string line; std::getline(std::cin, line);) {
    json answer;
    try {
      answer = probe.answer(json::parse(line));
    } catch (const std::exception& problem) {
      answer = {{"error", problem.what()}};
    }
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace penstock::test

int main() {
  return penstock::test::run();
}
