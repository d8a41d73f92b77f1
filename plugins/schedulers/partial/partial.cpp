// Partial sparsification (ADTopk): small gradients stay dense where measured times say that
// compressing them costs more than it saves; dense and sparse messages of a bucket go side by side.
// Source: "ADTopk: All-Dimension Top-k Compression for High-Performance Data-Parallel DNN
// Training", HPDC 2024; rule and budget were read from its code.
#include <planning/cost.hpp>
#include <planning/scheduler.hpp>

#include "choosing.hpp"

namespace sdk = penstock::sdk;
namespace planning = penstock::planning;

namespace {

constexpr uint64_t kRoutes = planning::kWholeBucketRoutes;

using Gradients = std::vector<uint64_t>;

class Partial {
 public:
  static inline const sdk::OptionList options{
      sdk::string_option("dense", "none")
          .summary("compressor instance, among the candidates, of gradients that stay dense"),
      sdk::integer_option("bucket_count", 16)
          .at_least(1)
          .unit("gradients")
          .summary("gradients in a bucket"),
      sdk::bool_option("within_budget", true)
          .summary(
              "dense gradients of a bucket hand over no more than the compressed bucket would"),
      sdk::integer_option("profile_steps", 5)
          .at_least(1)
          .at_most(1000000)
          .unit("steps")
          .summary("steps, each way, in which candidates are measured before any is chosen")};

  explicit Partial(const sdk::Options& values)
      : dense_(values.string("dense")),
        bucket_count_(static_cast<uint64_t>(values.integer("bucket_count"))),
        within_budget_(values.boolean("within_budget")),
        profile_steps_(static_cast<uint64_t>(values.integer("profile_steps"))) {}

  void describe(penstock_scheduler_traits& traits) const {
    traits.routes = kRoutes;
    traits.flags = PENSTOCK_SCHEDULER_MEASURES | PENSTOCK_SCHEDULER_CHOOSES;
    traits.observe_every = static_cast<uint32_t>(profile_steps_);
  }

  void plan(const penstock_model& model, sdk::PlanSink& sink) {
    planning::require_plannable(model, kRoutes, "partial");
    check_dense(model);
    chooses_ = false;
    if (model.n_gradients == 0) return;
    const std::vector<Gradients> buckets = buckets_of(model);
    const bool measured = all_measured(model);
    chooses_ = measured || !has_choice(model);
    std::vector<std::vector<uint32_t>> choices;
    for (size_t b = 0; b < buckets.size(); ++b) {
      if (measured) {
        partial::Choices best = partial::choose(model, buckets[b], dense_, within_budget_);
        explain_bucket(buckets[b].size(), b, best, sink);
        choices.push_back(std::move(best.of));
      } else {
        choices.push_back(probe(model, buckets[b], b));
      }
    }
    if (!measured)
      sink.explain(has_choice(model)
                       ? sdk::text("partial: ", buckets.size(),
                                   " buckets, dense and compressed in turn: what either costs is "
                                   "measured before gradients are chosen")
                       : sdk::text("partial: ", buckets.size(), " buckets; no gradient has '",
                                   dense_, "' as a further candidate, so none stays dense"));
    for (uint32_t phase = 0; phase < model.period; ++phase)
      for (size_t b = 0; b < buckets.size(); ++b) add(model, phase, buckets[b], choices[b], sink);
  }

  // A new plan as long as candidates are being measured; the choice then stays, as the paper's
  // does.
  uint32_t observe(const penstock_measurement& measurement) const {
    const bool waits = chooses_ || measurement.step < profile_steps_;
    return waits ? PENSTOCK_KEEP_PLAN : PENSTOCK_MAKE_NEW_PLAN;
  }

 private:
  // All gradients in order of readiness, whatever the phase, for a gradient keeps its choice.
  std::vector<Gradients> buckets_of(const penstock_model& model) const {
    const Gradients all(model.order, model.order + model.n_gradients);
    if ((model.flags & PENSTOCK_MODEL_GIVEN_BUCKETS) != 0) return planning::units(model, all);
    std::vector<Gradients> buckets;
    for (uint64_t gradient : all) {
      if (buckets.empty() || buckets.back().size() >= bucket_count_) buckets.emplace_back();
      buckets.back().push_back(gradient);
    }
    return buckets;
  }

  bool has_choice(const penstock_model& model) const {
    for (uint64_t i = 0; i < model.n_gradients; ++i)
      if (partial::dense_choice(*model.gradients[i], dense_) >= 0) return true;
    return false;
  }

  // Where gradients have candidates, `dense` must be one that can be chosen, or it would do
  // nothing.
  void check_dense(const penstock_model& model) const {
    if (has_choice(model)) return;
    for (uint64_t i = 0; i < model.n_gradients; ++i) {
      const penstock_gradient_model& gradient = *model.gradients[i];
      if (gradient.n_candidates < 2) continue;
      std::string names;
      for (uint64_t c = 0; c < gradient.n_candidates; ++c)
        names += sdk::text(c == 0 ? "" : ", ", "\"", sdk::view(gradient.candidates[c]->compressor),
                           "\"");
      throw sdk::invalid_argument(
          "scheduler/partial: dense is \"", dense_, "\", but the candidates of gradient '",
          sdk::view(gradient.name), "' are ", names,
          "; expected one of them, other than the first, which is what compresses");
    }
  }

  // Of every gradient that has a choice, both ways. A candidate that never ran would pass for free.
  bool all_measured(const penstock_model& model) const {
    if ((model.flags & PENSTOCK_MODEL_MEASURED) == 0 || !has_choice(model)) return false;
    for (uint64_t i = 0; i < model.n_gradients; ++i) {
      const penstock_gradient_model& gradient = *model.gradients[i];
      const int64_t dense = partial::dense_choice(gradient, dense_);
      if (dense >= 0 && !(planning::is_measured(*gradient.candidates[0]) &&
                          planning::is_measured(*gradient.candidates[dense])))
        return false;
    }
    return true;
  }

  // What has not run yet runs now; of what is equally known every second bucket goes dense, or
  // where there is only one bucket, every second gradient. So two rounds at most measure all.
  std::vector<uint32_t> probe(const penstock_model& model, const Gradients& bucket,
                              size_t b) const {
    const bool alone = bucket.size() == model.n_gradients;
    std::vector<uint32_t> choices(bucket.size(), 0);
    for (size_t i = 0; i < bucket.size(); ++i) {
      const penstock_gradient_model& gradient = *model.gradients[bucket[i]];
      const int64_t dense = partial::dense_choice(gradient, dense_);
      if (dense < 0) continue;
      const bool first_is_known = planning::is_measured(*gradient.candidates[0]);
      const bool dense_is_known = planning::is_measured(*gradient.candidates[dense]);
      const bool turn = (alone ? i : b) % 2 == 1;
      if (first_is_known != dense_is_known ? first_is_known : turn)
        choices[i] = static_cast<uint32_t>(dense);
    }
    return choices;
  }

  // What of the bucket takes part in the phase. A gradient that sends nothing in any has its place
  // in phase 0.
  static void add(const penstock_model& model, uint32_t phase, const Gradients& bucket,
                  const std::vector<uint32_t>& choices, sdk::PlanSink& sink) {
    std::vector<penstock_piece> pieces;
    for (size_t i = 0; i < bucket.size(); ++i) {
      const penstock_gradient_model& gradient = *model.gradients[bucket[i]];
      const uint64_t* bytes = gradient.candidates[choices[i]]->phase_bytes;
      const bool never =
          std::all_of(bytes, bytes + model.period, [](uint64_t n) { return n == 0; });
      if (bytes[phase] == 0 && !(never && phase == 0)) continue;
      penstock_piece piece{};
      piece.struct_size = sizeof piece;
      piece.gradient = bucket[i];
      piece.numel = gradient.numel;
      piece.choice = choices[i];
      piece.device_type = PENSTOCK_DEVICE_CPU;
      pieces.push_back(piece);
    }
    if (pieces.empty()) return;
    std::vector<const penstock_piece*> pointers;
    for (const penstock_piece& piece : pieces) pointers.push_back(&piece);
    penstock_bucket planned{};
    planned.struct_size = sizeof planned;
    planned.pieces = pointers.data();
    planned.n_pieces = pointers.size();
    planned.route = planning::whole_bucket_route(model);
    planned.phase = phase;
    planned.launch = PENSTOCK_LAUNCH_READY;
    sink.add_bucket(planned);
  }

  static void explain_bucket(size_t n_gradients, size_t b, const partial::Choices& best,
                             sdk::PlanSink& sink) {
    sink.explain(sdk::text("partial: bucket ", b, ": ", best.n_dense, " of ", n_gradients,
                           " gradients dense; encode, exchange and decode take ", best.time_us,
                           " us, all compressed ", best.sparse_time_us, " us"));
  }

  std::string dense_;
  uint64_t bucket_count_;
  bool within_budget_;
  uint64_t profile_steps_;
  bool chooses_ = false;  // the plan in force is the one that stays
};

}  // namespace

PENSTOCK_SCHEDULER(
    Partial, "scheduler/partial", "0.1.0",
    "keeps small gradients dense where compressing them costs more than it saves; idea from "
    "the paper, thresholds and budget from its code, measured times ours",
    "ADTopk, HPDC 2024: partial sparsification and hybrid collective");
