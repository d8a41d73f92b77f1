#include "assignments.hpp"

#include <planning/choosing.hpp>
#include <planning/rules.hpp>

#include <algorithm>
#include <set>

namespace automatic {

namespace planning = penstock::planning;
namespace sdk = penstock::sdk;

namespace {

using Cut = std::vector<std::vector<uint64_t>>;

Choices all_with(const penstock_model& model, std::string_view name) {
  Choices choices;
  for (uint64_t i = 0; i < model.n_gradients; ++i)
    choices.push_back(planning::choice_named(*model.gradients[i], name));
  return choices;
}

std::set<std::string_view> names_of(const penstock_model& model) {
  std::set<std::string_view> names;
  for (uint64_t i = 0; i < model.n_gradients; ++i)
    for (uint64_t c = 0; c < model.gradients[i]->n_candidates; ++c)
      names.insert(sdk::view(model.gradients[i]->candidates[c]->compressor));
  return names;
}

double time_alone(const penstock_model& model, uint64_t gradient, uint32_t choice) {
  double time = 0;
  for (uint32_t phase = 0; phase < model.period; ++phase) {
    if (model.gradients[gradient]->candidates[choice]->phase_bytes[phase] == 0) continue;
    planning::Together alone(model, phase);
    alone.add(gradient, choice);
    time += alone.encode() + alone.exchange() + alone.decode();
  }
  return time;
}

Choices soonest_alone(const penstock_model& model) {
  Choices choices;
  for (uint64_t i = 0; i < model.n_gradients; ++i) {
    uint32_t best = 0;
    for (uint32_t c = 1; c < model.gradients[i]->n_candidates; ++c)
      if (time_alone(model, i, c) < time_alone(model, i, best)) best = c;
    choices.push_back(best);
  }
  return choices;
}

Choices dense_up_to(const penstock_model& model, const Choices& choices, const Choices& dense,
                    uint64_t numel) {
  Choices mixed = choices;
  for (uint64_t i = 0; i < model.n_gradients; ++i)
    if (model.gradients[i]->numel <= numel) mixed[i] = dense[i];
  return mixed;
}

planning::Plan plan_of(const penstock_model& model, const Cut& cut, uint32_t phase) {
  planning::Plan plan;
  for (const std::vector<uint64_t>& bucket : cut)
    plan.buckets.push_back(
        planning::whole_gradients(model, bucket, phase, planning::whole_bucket_route(model)));
  return plan;
}

// The cuts of a phase. Few cuts are enough to compare assignments; the plan itself is the best of
// many cuts.
std::vector<Cut> cuts_of(const penstock_model& model, uint32_t phase, bool many) {
  if (planning::are_given(model)) return {planning::units(model, phase)};
  const std::vector<uint64_t> gradients = planning::taking_part(model, phase);
  if (gradients.empty()) return {};
  if (many) return planning::cuts_by_rules(model, phase, gradients);
  return {planning::buckets_by_count(model, phase, 1), planning::buckets_by_count(model, phase, 16),
          Cut{gradients}};
}

// Fills in the plan and the forecast of an assignment.
void plan_with(const penstock_model& model, Assignment& assignment, bool many) {
  const ChosenModel chosen(model, assignment.choices);
  assignment.plan = {};
  assignment.step_us = 0;
  for (uint32_t phase = 0; phase < model.period; ++phase) {
    planning::Plan best;
    double least = 0;
    for (const Cut& cut : cuts_of(chosen.model(), phase, many)) {
      planning::Plan plan = plan_of(chosen.model(), cut, phase);
      const planning::Forecast times = planning::forecast(plan, chosen.model(), phase);
      const double step = times.backward_end + times.exposed_us;
      if (!best.buckets.empty() && !(step < least)) continue;
      best = std::move(plan);
      least = step;
    }
    assignment.step_us += least / model.period;
    for (planning::Bucket& bucket : best.buckets) {
      for (planning::Piece& piece : bucket.pieces)
        piece.choice = assignment.choices[piece.gradient];
      assignment.plan.buckets.push_back(std::move(bucket));
    }
  }
  assignment.plan.period = model.period;
}

// The assignments found so far, planned with few cuts. An assignment that equals another is not
// added.
class Ways {
 public:
  explicit Ways(const penstock_model& model) : model_(model) {}
  void add(std::string name, Choices choices) {
    for (const Assignment& assignment : assignments_)
      if (assignment.choices == choices) return;
    assignments_.push_back({std::move(name), std::move(choices), {}, 0});
    plan_with(model_, assignments_.back(), false);
  }
  const Assignment& shortest_since(size_t first) const {
    return *std::min_element(
        assignments_.begin() + static_cast<ptrdiff_t>(first), assignments_.end(),
        [](const Assignment& a, const Assignment& b) { return a.step_us < b.step_us; });
  }
  std::vector<Assignment>& all() { return assignments_; }

 private:
  const penstock_model& model_;
  std::vector<Assignment> assignments_;
};

}  // namespace

std::vector<Assignment> assignments_of(const penstock_model& model, std::string_view dense,
                                       uint64_t most) {
  Ways assignments(model);
  const Choices all_dense = all_with(model, dense);
  assignments.add(sdk::text("all '", dense, "'"), all_dense);
  for (std::string_view name : names_of(model))
    assignments.add(sdk::text("all '", name, "'"), all_with(model, name));
  if (assignments.all().size() > 1) {
    const Assignment best = assignments.shortest_since(1);
    for (uint64_t numel : {1u << 10, 1u << 14, 1u << 18})
      assignments.add(sdk::text(best.name, ", up to ", numel, " elements '", dense, "'"),
                      dense_up_to(model, best.choices, all_dense, numel));
  }
  assignments.add("each gradient by the choice that is fastest for it alone", soonest_alone(model));

  std::vector<Assignment>& all = assignments.all();
  const auto by_step = [](const Assignment& a, const Assignment& b) {
    return a.step_us < b.step_us;
  };
  std::stable_sort(all.begin() + 1, all.end(), by_step);
  all.resize(std::min<size_t>(all.size(), most + 1));
  for (Assignment& assignment : all) plan_with(model, assignment, true);
  std::stable_sort(all.begin() + 1, all.end(), by_step);
  const double limit = all.front().step_us;
  std::erase_if(all, [&](const Assignment& assignment) {
    return &assignment != &all.front() && !(assignment.step_us < limit);
  });
  return std::move(all);
}

}  // namespace automatic
