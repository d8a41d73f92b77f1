// Tensor fusion by size: gradients share a bucket until a byte limit is reached.
// Source: Sergeev & Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow",
// arXiv:1802.05799, 2018 (the static part). Limits that follow the compression ratio: Zhang et al.,
// "Evaluation and Optimization of Gradient Compression for Distributed Deep Learning" (ACP-SGD),
// ICDCS 2023.
#include <planning/scheduler.hpp>

namespace sdk = penstock::sdk;
namespace planning = penstock::planning;

namespace {

struct Sizes {
  uint64_t payload = 0;  // bytes sent in the phase
  uint64_t dense = 0;
};

Sizes sizes_of(const penstock_model& model, uint32_t phase) {
  Sizes sizes;
  for (uint64_t gradient : planning::taking_part(model, phase)) {
    const penstock_gradient_model& facts = *model.gradients[gradient];
    sizes.payload = planning::saturating_add(sizes.payload, planning::payload_bytes(facts, phase));
    sizes.dense = planning::saturating_add(sizes.dense, facts.bytes);
  }
  return sizes;
}

class Fusion : public planning::Scheduler<Fusion> {
 public:
  static constexpr const char* kName = "fusion";
  static inline const sdk::OptionList options{
      sdk::integer_option("threshold_bytes", 26214400)
          .at_least(0)
          .unit("bytes")
          .summary(
              "most uncompressed bytes in a bucket; 0 sends every gradient in its own bucket")};

  explicit Fusion(const sdk::Options& values)
      : threshold_(static_cast<uint64_t>(values.integer("threshold_bytes"))) {}

  planning::Buckets buckets(const penstock_model& model, uint32_t phase) const {
    const uint64_t most = limit(sizes_of(model, phase));
    planning::Buckets buckets;
    uint64_t bucket_bytes = 0;
    for (uint64_t gradient : planning::taking_part(model, phase)) {
      const uint64_t bytes = planning::payload_bytes(*model.gradients[gradient], phase);
      bucket_bytes = planning::saturating_add(bucket_bytes, bytes);
      if (buckets.empty() || threshold_ == 0 || bucket_bytes > most) {
        buckets.emplace_back();
        bucket_bytes = bytes;
      }
      buckets.back().push_back(gradient);
    }
    return buckets;
  }

  std::string reason(const penstock_model& model, const planning::Plan& made,
                     uint32_t phase) const {
    const Sizes sizes = sizes_of(model, phase);
    return sdk::text(n_buckets(made, phase), " buckets of at most ", limit(sizes),
                     " bytes of payload (threshold ", threshold_, " bytes, scaled by ",
                     sizes.payload, " bytes of payload for ", sizes.dense, " bytes of gradients)");
  }

 private:
  // The threshold in payload bytes: T * payload / dense, so that compression does not change the
  // number of buckets of a phase. Payloads are whole bytes, so rounding down decides nothing.
  uint64_t limit(const Sizes& sizes) const {
    if (sizes.dense == 0) return threshold_;
    __extension__ using Wide = unsigned __int128;
    const Wide scaled = Wide{threshold_} * sizes.payload / sizes.dense;
    return scaled > UINT64_MAX ? UINT64_MAX : static_cast<uint64_t>(scaled);
  }

  uint64_t threshold_;
};

}  // namespace

PENSTOCK_SCHEDULER(Fusion, "scheduler/fusion", "0.1.0",
                   "joins gradients in order of readiness up to a byte limit",
                   "Sergeev & Del Balso, Horovod, arXiv:1802.05799, 2018");
