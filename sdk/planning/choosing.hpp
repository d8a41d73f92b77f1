// The base of schedulers that choose, gradient by gradient, between the configured compressor and a
// further candidate that stays dense. What either costs must be measured before anything is chosen:
// a candidate that never ran would pass for free. Such a scheduler has
//
//   class Method : public planning::ChoosingScheduler<Method> {
//    public:
//     static constexpr const char* kName = "method";
//     static inline const sdk::OptionList options{dense_option(), ..., profile_steps_option()};
//     explicit Method(const sdk::Options& values);
//     planning::Plan choose(const penstock_model& model) const;  // once all is measured
//   };
//
// and may have `all_measured` and `probe` of its own, where it chooses among more than two. A
// choice stays once it is made. All functions are [plan].
#pragma once

#include "planning/cost.hpp"
#include "planning/scheduler.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::planning {

// The index of the candidate `dense` of a gradient, or -1 where it has none or has nothing else.
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

// Throws INVALID_ARGUMENT, in the name of a scheduler, where gradients have candidates but `dense`
// is none that can be chosen: it would do nothing.
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

// The index of the candidate of that name, or of the configured one where there is none.
inline uint32_t choice_named(const penstock_gradient_model& gradient, std::string_view name) {
  for (uint64_t i = 0; i < gradient.n_candidates; ++i)
    if (sdk::view(gradient.candidates[i]->compressor) == name) return static_cast<uint32_t>(i);
  return 0;
}

// Candidates that have not run.
inline std::vector<uint32_t> unmeasured(const penstock_gradient_model& gradient) {
  std::vector<uint32_t> choices;
  for (uint32_t c = 0; c < gradient.n_candidates; ++c)
    if (!is_measured(*gradient.candidates[c])) choices.push_back(c);
  return choices;
}

// Whether all candidates have run of those gradients that have several.
inline bool are_all_measured(const penstock_model& model) {
  if (!is_measured(model)) return false;
  for (uint64_t i = 0; i < model.n_gradients; ++i)
    if (model.gradients[i]->n_candidates > 1 && !unmeasured(*model.gradients[i]).empty())
      return false;
  return true;
}

// All gradients in order of readiness, whatever the phase, for a gradient keeps its choice.
inline std::vector<uint64_t> in_order(const penstock_model& model) {
  return {model.order, model.order + model.n_gradients};
}

// Those, so many together; given buckets stay whole.
inline Buckets buckets_in_order(const penstock_model& model, uint64_t count) {
  if (are_given(model)) return units(model, in_order(model));
  Buckets buckets;
  for (uint64_t gradient : in_order(model)) {
    if (buckets.empty() || buckets.back().size() >= count) buckets.emplace_back();
    buckets.back().push_back(gradient);
  }
  return buckets;
}

// What goes together while candidates are measured, unless a method says otherwise.
inline Buckets probed_buckets(const penstock_model& model) {
  constexpr uint64_t kTogether = 16;
  return buckets_in_order(model, kTogether);
}

// Whether a piece has anything to send in the phase. One that sends nothing in any has its place in
// phase 0.
inline bool takes_part(const penstock_model& model, const Piece& piece, uint32_t phase) {
  const uint64_t* bytes = model.gradients[piece.gradient]->candidates[piece.choice]->phase_bytes;
  if (bytes[phase] != 0) return true;
  return phase == 0 && std::all_of(bytes, bytes + model.period, [](uint64_t n) { return n == 0; });
}

// A plan with the same buckets in every phase, each with those of its pieces that take part: a
// gradient keeps its cuts and its choice whatever the phase.
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

// A plan in which bucket after bucket takes another candidate that has not run; where there is one
// bucket, gradient after gradient. So as many rounds as there are candidates measure all. The
// caller explains.
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

// What to say of one.
inline std::string probing_words(const penstock_model& model, const Plan& plan,
                                 std::string_view dense, const char* name) {
  return sdk::text(
      name, ": ", plan.buckets.size(), " buckets",
      has_choice(model, dense)
          ? ", candidates in alternation: the cost of each is measured before the choice"
          : sdk::text("; no gradient has '", dense,
                      "' as a further candidate, so there is nothing to choose"));
}

// Writes buckets and explanation of a plan that was made as values.
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

  // A new plan as long as candidates are being measured.
  uint32_t observe(const penstock_measurement& measurement) const {
    const bool waits = chooses_ || measurement.step < profile_steps_;
    return waits ? PENSTOCK_KEEP_PLAN : PENSTOCK_MAKE_NEW_PLAN;
  }

  Buckets probed_buckets(const penstock_model& model) const {
    return planning::probed_buckets(model);
  }

  // Of every gradient that has a choice, both ways.
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

  // What has not run yet runs now; of what is equally known every second bucket goes dense, or
  // where there is only one bucket, every second gradient. So two rounds at most measure all.
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
  bool chooses_ = false;  // the plan in force is the one that stays
};

}  // namespace penstock::planning
