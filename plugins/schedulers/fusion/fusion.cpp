// Tensor fusion by size: gradients share a bucket until a byte limit is reached.
// Source: Sergeev & Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow",
// arXiv:1802.05799, 2018 (the static part). Limits that follow the compression ratio: Zhang et al.,
// "Evaluation and Optimization of Gradient Compression for Distributed Deep Learning" (ACP-SGD),
// ICDCS 2023.
#include <penstock/scheduler.hpp>

#include <planning/model.hpp>

namespace sdk = penstock::sdk;
namespace planning = penstock::planning;

namespace {

constexpr uint64_t kRoutes = planning::kWholeBucketRoutes;

struct Sizes {
  uint64_t payload = 0;  // bytes handed over in the phase
  uint64_t dense = 0;
};

Sizes sizes_of(const penstock_model& model, const std::vector<std::vector<uint64_t>>& units,
               uint32_t phase) {
  Sizes sizes;
  for (const std::vector<uint64_t>& unit : units)
    for (uint64_t gradient : unit) {
      const penstock_gradient_model& facts = *model.gradients[gradient];
      sizes.payload =
          planning::saturating_add(sizes.payload, planning::payload_bytes(facts, phase));
      sizes.dense = planning::saturating_add(sizes.dense, facts.bytes);
    }
  return sizes;
}

class Fusion {
 public:
  static inline const sdk::OptionList options{
      sdk::integer_option("threshold_bytes", 26214400)
          .at_least(0)
          .unit("bytes")
          .summary("most uncompressed bytes in a bucket; 0 sends every gradient alone")};

  explicit Fusion(const sdk::Options& values)
      : threshold_(static_cast<uint64_t>(values.integer("threshold_bytes"))) {}

  void describe(penstock_scheduler_traits& traits) const { traits.routes = kRoutes; }

  void plan(const penstock_model& model, sdk::PlanSink& sink) const {
    const std::string problem = planning::find_problem(model, kRoutes);
    if (!problem.empty()) throw sdk::invalid_argument("scheduler/fusion: ", problem);
    if (model.n_gradients == 0) return;
    for (uint32_t phase = 0; phase < model.period; ++phase) plan_phase(model, phase, sink);
  }

 private:
  // The threshold in payload bytes: T * payload / dense, so that a phase has as many buckets as it
  // would have without compression. Payloads are whole bytes, so rounding down decides nothing.
  uint64_t limit(const Sizes& sizes) const {
    if (sizes.dense == 0) return threshold_;
    __extension__ using Wide = unsigned __int128;
    const Wide scaled = Wide{threshold_} * sizes.payload / sizes.dense;
    return scaled > UINT64_MAX ? UINT64_MAX : static_cast<uint64_t>(scaled);
  }

  void plan_phase(const penstock_model& model, uint32_t phase, sdk::PlanSink& sink) const {
    const auto units = planning::units(model, phase);
    const Sizes sizes = sizes_of(model, units, phase);
    const uint64_t limit_bytes = limit(sizes);
    // Given buckets are neither divided nor joined.
    const bool alone = threshold_ == 0 || (model.flags & PENSTOCK_MODEL_GIVEN_BUCKETS) != 0;
    const uint32_t route = planning::whole_bucket_route(model);

    std::vector<uint64_t> bucket;
    uint64_t bucket_bytes = 0;
    uint64_t n_buckets = 0;
    const auto close = [&] {
      if (bucket.empty()) return;
      sink.add_bucket(model, phase, bucket, route, PENSTOCK_LAUNCH_READY);
      bucket.clear();
      bucket_bytes = 0;
      ++n_buckets;
    };
    for (const std::vector<uint64_t>& unit : units) {
      uint64_t bytes = 0;
      for (uint64_t gradient : unit)
        bytes = planning::saturating_add(
            bytes, planning::payload_bytes(*model.gradients[gradient], phase));
      if (alone || planning::saturating_add(bucket_bytes, bytes) > limit_bytes) close();
      bucket.insert(bucket.end(), unit.begin(), unit.end());
      bucket_bytes = planning::saturating_add(bucket_bytes, bytes);
    }
    close();
    sink.explain(sdk::text("fusion: phase ", phase, ": ", n_buckets, " buckets of at most ",
                           limit_bytes, " bytes of payload (threshold ", threshold_,
                           " bytes, scaled by ", sizes.payload, " bytes of payload for ",
                           sizes.dense, " bytes of gradients)"));
  }

  uint64_t threshold_;
};

}  // namespace

PENSTOCK_SCHEDULER(Fusion, "scheduler/fusion", "0.1.0",
                   "joins gradients in order of readiness up to a byte limit",
                   "Sergeev & Del Balso, Horovod, arXiv:1802.05799, 2018");
