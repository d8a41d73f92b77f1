// The base of schedulers that choose, gradient by gradient, between the configured compressor and a
// further candidate that stays dense. The cost of both must be measured before the choice, because
// a candidate that never ran would seem to cost nothing. Such a scheduler has
//
//   class Method : public planning::ChoosingScheduler<Method> {
//    public:
//     static constexpr const char* kName = "method";
//     static inline const sdk::OptionList options{dense_option(), ..., profile_steps_option()};
//     explicit Method(const sdk::Options& values);
//     planning::Plan choose(const penstock_model& model) const;  // after all measurements
//   };
//
// and may define its own `all_measured` and `probe` if it chooses among more than two candidates.
// A choice is final. All functions are [plan].
#pragma once

#include "planning/cost.hpp"
#include "planning/scheduler.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::planning {

// The index of a gradient's candidate `dense`, or -1 if it has no such candidate behind the first.
inline int64_t dense_choice(const penstock_gradient_model& gradient, std::string_view dense) {
  for (uint64_t i = 1; i < gradient.n_candidates; ++i)
    if (sdk::view(gradient.candidates[i]->compressor) == dense) return static_cast<int64_t>(i);
  return -1;
}

inline bool has_choice(const penstock_model& model, std::string_view dense) {
  for (uint64_t i = 0; i < model.n_gradients; ++i)
    if (dense_choice(*model.gradients[i], dense) >= 0) return true;
  return false;
}

// Throws INVALID_ARGUMENT, in the name of a scheduler, if gradients have several candidates but
// `dense` can be chosen for no gradient: the scheduler would have no effect.
inline void require_candidate(const penstock_model& model, std::string_view dense,
                              const char* name) {
  if (has_choice(model, dense)) return;
  for (uint64_t i = 0; i < model.n_gradients; ++i) {
    const penstock_gradient_model& gradient = *model.gradients[i];
    if (gradient.n_candidates < 2) continue;
    std::string names;
    for (uint64_t c = 0; c < gradient.n_candidates; ++c)
      names +=
          sdk::text(c == 0 ? "" : ", ", "\"", sdk::view(gradient.candidates[c]->compressor), "\"");
    throw sdk::invalid_argument(
        "scheduler/", name, ": dense is \"", dense, "\", but the candidates of gradient '",
        sdk::view(gradient.name), "' are ", names,
        "; expected a candidate after the first, because the first compresses");
  }
}

// The index of the candidate with this name, or 0, the configured candidate, if there is none.
inline uint32_t choice_named(const penstock_gradient_model& gradient, std::string_view name) {
  for (uint64_t i = 0; i < gradient.n_candidates; ++i)
    if (sdk::view(gradient.candidates[i]->compressor) == name) return static_cast<uint32_t>(i);
  return 0;
}

// The candidates of a gradient without a measurement.
inline std::vector<uint32_t> unmeasured(const penstock_gradient_model& gradient) {
  std::vector<uint32_t> choices;
  for (uint32_t c = 0; c < gradient.n_candidates; ++c)
    if (!is_measured(*gradient.candidates[c])) choices.push_back(c);
  return choices;
}

// Whether every candidate has run, for each gradient with several candidates.
inline bool are_all_measured(const penstock_model& model) {
  if (!is_measured(model)) return false;
  for (uint64_t i = 0; i < model.n_gradients; ++i)
    if (model.gradients[i]->n_candidates > 1 && !unmeasured(*model.gradients[i]).empty())
      return false;
  return true;
}

// All gradients in order of readiness, of all phases, because a gradient keeps its choice.
inline std::vector<uint64_t> in_order(const penstock_model& model) {
  return {model.order, model.order + model.n_gradients};
}

// All gradients in order of readiness, in buckets of `count`; given buckets stay whole.
inline Buckets buckets_in_order(const penstock_model& model, uint64_t count) {
  if (are_given(model)) return units(model, in_order(model));
  Buckets buckets;
  for (uint64_t gradient : in_order(model)) {
    if (buckets.empty() || buckets.back().size() >= count) buckets.emplace_back();
    buckets.back().push_back(gradient);
  }
  return buckets;
}

// The default buckets while candidates are measured.
inline Buckets probed_buckets(const penstock_model& model) {
  constexpr uint64_t kTogether = 16;
  return buckets_in_order(model, kTogether);
}

// Whether a piece takes part in a phase: if it sends data in this phase. A piece that sends no data
// in any phase takes part in phase 0.
inline bool takes_part(const penstock_model& model, const Piece& piece, uint32_t phase) {
  const uint64_t* bytes = model.gradients[piece.gradient]->candidates[piece.choice]->phase_bytes;
  if (bytes[phase] != 0) return true;
  return phase == 0 && std::all_of(bytes, bytes + model.period, [](uint64_t n) { return n == 0; });
}

// A plan with these buckets in every phase; a bucket has the pieces that take part in the phase. A
// gradient keeps its cuts and its choice in all phases.
inline Plan in_every_phase(const penstock_model& model,
                           const std::vector<std::vector<Piece>>& buckets) {
  Plan plan;
  plan.period = model.period;
  for (uint32_t phase = 0; phase < model.period; ++phase)
    for (const std::vector<Piece>& pieces : buckets) {
      Bucket bucket{{}, whole_bucket_route(model), phase, PENSTOCK_LAUNCH_READY};
      std::copy_if(pieces.begin(), pieces.end(), std::back_inserter(bucket.pieces),
                   [&](const Piece& piece) { return takes_part(model, piece, phase); });
      if (!bucket.pieces.empty()) plan.buckets.push_back(std::move(bucket));
    }
  return plan;
}

// A plan in which successive buckets take different unmeasured candidates; if there is one bucket,
// successive gradients do. So as many plans as there are candidates measure all candidates. The
// caller adds the explanation.
inline Plan probing_plan(const penstock_model& model) {
  const Buckets buckets = probed_buckets(model);
  std::vector<std::vector<Piece>> pieces(buckets.size());
  for (size_t b = 0; b < buckets.size(); ++b)
    for (size_t i = 0; i < buckets[b].size(); ++i) {
      const penstock_gradient_model& gradient = *model.gradients[buckets[b][i]];
      const std::vector<uint32_t> open = unmeasured(gradient);
      const size_t turn = buckets.size() == 1 ? i : b;
      const bool probes = gradient.n_candidates > 1 && !open.empty();
      pieces[b].push_back(
          {buckets[b][i], 0, gradient.numel, probes ? open[turn % open.size()] : 0});
    }
  return in_every_phase(model, pieces);
}

// The explanation of a probing plan.
inline std::string probing_words(const penstock_model& model, const Plan& plan,
                                 std::string_view dense, const char* name) {
  return sdk::text(
      name, ": ", plan.buckets.size(), " buckets",
      has_choice(model, dense)
          ? ", candidates in alternation: the cost of each is measured before the choice"
          : sdk::text("; no gradient has '", dense,
                      "' as a further candidate, so there is nothing to choose"));
}

// Writes the buckets and the explanation of `plan` to a sink.
inline void write(const Plan& plan, sdk::PlanSink& sink) {
  for (const std::string& line : plan.explanation) sink.explain(line);
  for (const Bucket& bucket : plan.buckets) {
    std::vector<penstock_piece> pieces;
    for (const Piece& piece : bucket.pieces) {
      penstock_piece written{};
      written.struct_size = sizeof written;
      written.gradient = piece.gradient;
      written.first = piece.first;
      written.numel = piece.numel;
      written.choice = piece.choice;
      written.device_type = PENSTOCK_DEVICE_CPU;
      pieces.push_back(written);
    }
    std::vector<const penstock_piece*> pointers;
    for (const penstock_piece& piece : pieces) pointers.push_back(&piece);
    penstock_bucket written{};
    written.struct_size = sizeof written;
    written.pieces = pointers.data();
    written.n_pieces = pointers.size();
    written.route = bucket.route;
    written.phase = bucket.phase;
    written.launch = bucket.launch;
    sink.add_bucket(written);
  }
}

template <typename Method>
class ChoosingScheduler {
 public:
  static constexpr uint64_t kRoutes = kWholeBucketRoutes;

  static sdk::Option dense_option() {
    return sdk::string_option("dense", "none")
        .summary("compressor instance, among the candidates, of gradients that stay dense");
  }
  static sdk::Option profile_steps_option() {
    return sdk::integer_option("profile_steps", 5)
        .at_least(1)
        .at_most(1000000)
        .unit("steps")
        .summary("steps for each measured assignment of candidates, before the choice");
  }

  void describe(penstock_scheduler_traits& traits) const {
    traits.routes = Method::kRoutes;
    traits.flags = PENSTOCK_SCHEDULER_MEASURES | PENSTOCK_SCHEDULER_CHOOSES;
    traits.observe_every = static_cast<uint32_t>(profile_steps_);
  }

  void plan(const penstock_model& model, sdk::PlanSink& sink) {
    require_plannable(model, Method::kRoutes, Method::kName);
    require_candidate(model, dense_, Method::kName);
    chooses_ = false;
    if (model.n_gradients == 0) return;
    const auto& method = static_cast<const Method&>(*this);
    const bool measured = has_choice(model, dense_) && method.all_measured(model);
    chooses_ = measured || !has_choice(model, dense_);
    write(measured ? method.choose(model) : method.probe(model), sink);
  }

  // Asks for a new plan as long as candidates are being measured.
  uint32_t observe(const penstock_measurement& measurement) const {
    const bool waits = chooses_ || measurement.step < profile_steps_;
    return waits ? PENSTOCK_KEEP_PLAN : PENSTOCK_MAKE_NEW_PLAN;
  }

  Buckets probed_buckets(const penstock_model& model) const {
    return planning::probed_buckets(model);
  }

  // Whether both candidates have run, for every gradient with a choice.
  bool all_measured(const penstock_model& model) const {
    if (!is_measured(model)) return false;
    for (uint64_t i = 0; i < model.n_gradients; ++i) {
      const penstock_gradient_model& gradient = *model.gradients[i];
      const int64_t dense = dense_choice(gradient, dense_);
      if (dense >= 0 && !(planning::is_measured(*gradient.candidates[0]) &&
                          planning::is_measured(*gradient.candidates[dense])))
        return false;
    }
    return true;
  }

  // A plan that measures. If only one candidate of a gradient has run, the other one is planned.
  // Otherwise every second bucket is dense, or if there is only one bucket, every second gradient.
  // So at most two such plans measure all candidates.
  Plan probe(const penstock_model& model) const {
    const Buckets buckets = static_cast<const Method&>(*this).probed_buckets(model);
    std::vector<std::vector<Piece>> pieces(buckets.size());
    for (size_t b = 0; b < buckets.size(); ++b)
      for (size_t i = 0; i < buckets[b].size(); ++i)
        pieces[b].push_back({buckets[b][i], 0, model.gradients[buckets[b][i]]->numel,
                             probed_choice(*model.gradients[buckets[b][i]],
                                           (buckets.size() == 1 ? i : b) % 2 == 1)});
    Plan plan = in_every_phase(model, pieces);
    const std::string count = sdk::text(Method::kName, ": ", buckets.size(), " buckets");
    plan.explanation = {has_choice(model, dense_)
                            ? count +
                                  ", dense and compressed in alternation: the costs of both are "
                                  "measured before gradients are chosen"
                            : sdk::text(count, "; no gradient has '", dense_,
                                        "' as a further candidate, so none stays dense")};
    return plan;
  }

 protected:
  explicit ChoosingScheduler(const sdk::Options& values)
      : dense_(values.string("dense")),
        profile_steps_(static_cast<uint64_t>(values.integer("profile_steps"))) {}

  const std::string& dense() const { return dense_; }

 private:
  uint32_t probed_choice(const penstock_gradient_model& gradient, bool dense_in_turn) const {
    const int64_t dense = dense_choice(gradient, dense_);
    if (dense < 0) return 0;
    const bool first_is_known = planning::is_measured(*gradient.candidates[0]);
    const bool dense_is_known = planning::is_measured(*gradient.candidates[dense]);
    const bool takes_dense = first_is_known != dense_is_known ? first_is_known : dense_in_turn;
    return takes_dense ? static_cast<uint32_t>(dense) : 0;
  }

  std::string dense_;
  uint64_t profile_steps_;
  bool chooses_ = false;  // the plan in force is final
};

}  // namespace penstock::planning
