// ACP-SGD: the two factors of Power-SGD take turns. One factor is sent per step, projected on the
// other, which all ranks know from the step before.
// Source: Zhang, Zhang, Shi, Chu, Li, "Evaluation and Optimization of Gradient Compression for
// Distributed Deep Learning", ICDCS 2023. See README.md for where this differs and why.
#include <kernels/factored.hpp>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;
namespace plugins = penstock::plugins;
namespace low_rank = penstock::kernels::low_rank;

namespace {

// Over ranks i, with orthonormal P and Q that are equal on all of them:
//   phase 0:  P_i = M_i Q,    sum = sum_i P_i,  out = sum Q^T,  P = orthogonalise(sum)
//   phase 1:  Q_i = M_i^T P,  sum = sum_i Q_i,  out = P sum^T,  Q = orthogonalise(sum)
// What rank i takes out of work is its own share, P_i Q^T or P Q_i^T.
class AcpSgd {
 public:
  static inline const sdk::OptionList options{
      sdk::integer_option("rank", 4)
          .at_least(1)
          .at_most(plugins::kMaxRank)
          .summary("columns of the factors; at most the smaller side of the matrix"),
      sdk::real_option("minimum_compression_rate", 0)
          .at_least(0)
          .summary("factor a gradient only where both factors together have this many times fewer "
                   "elements; 0: every gradient of two or more dimensions")};

  explicit AcpSgd(const sdk::Options& values)
      : rule_{static_cast<uint64_t>(values.integer("rank")),
              values.real("minimum_compression_rate")},
        path_(kernels::code_path_named(sdk::code_path("low_rank"))) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
  }

  void plan(const sdk::PlanCall& call, const sdk::Item& item, sdk::CompressorNeed& need) {
    need.period = 2;
    const uint64_t rank = rule_.rank_of(item);
    if (rank == 0) return plugins::plan_dense(item, need);
    need.round(PENSTOCK_COMBINE_SUM)
        .section(PENSTOCK_ROLE_FACTOR, PENSTOCK_FLOAT32, entries(call.phase, item))
        .same_bits();
    need.states.add("p", item.rows(), rank, PENSTOCK_STATE_REPLICATED);
    need.states.add("q", item.cols(), rank, PENSTOCK_STATE_REPLICATED);
    need.scratch_bytes = plugins::FactorScratch::bytes(plugins::shape_of(item, rank));
  }

  void encode(const sdk::Call& call, const sdk::Items& items, sdk::PayloadWriters& payloads) {
    for (uint64_t i = 0; i < items.size(); ++i) {
      sdk::PayloadWriter payload = payloads[i];
      const uint64_t rank = rule_.rank_of(items[i]);
      if (rank == 0)
        plugins::encode_dense(items[i], payload);
      else
        encode_factor(call, items[i], rank, payload.room<float>(0).data());
      payload.kind(rank == 0 ? PENSTOCK_PAYLOAD_DENSE : PENSTOCK_PAYLOAD_CODED);
      payload.count(0, payload.room<float>(0).size());
    }
  }

  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    for (uint64_t i = 0; i < items.size(); ++i)  // all sizes before any state changes
      plugins::summed_entries(payloads.at(i, 0), entries(call.step->phase, items[i]));
    for (uint64_t i = 0; i < items.size(); ++i) {
      const uint64_t rank = rule_.rank_of(items[i]);
      if (rank == 0)
        plugins::decode_dense(items[i], payloads.at(i, 0));
      else
        decode_factor(call, items[i], rank, payloads.at(i, 0));
    }
  }

 private:
  enum State : uint64_t { kLeft = 0, kRight = 1 };

  // Phase 0 sends the left factor, phase 1 the right one.
  static bool sends_left(uint32_t phase) { return phase == 0; }

  uint64_t entries(uint32_t phase, const sdk::Item& item) const {
    const uint64_t rank = rule_.rank_of(item);
    if (rank == 0) return item.numel();
    return rank * (sends_left(phase) ? item.rows() : item.cols());
  }

  // The factor that all ranks know: the one that is not sent in this phase.
  const float* known_factor(const sdk::Call& call, const sdk::Item& item, uint64_t rank,
                            const plugins::FactorScratch& scratch) const {
    const bool right = sends_left(call.step->phase);
    return plugins::factor_in_use(call, item, item.state(right ? kRight : kLeft), rank,
                                  right ? kernels::kStreamRightFactor : kernels::kStreamLeftFactor,
                                  scratch, path_);
  }

  void encode_factor(const sdk::Call& call, const sdk::Item& item, uint64_t rank,
                     float* sent) const {
    const low_rank::Shape shape = plugins::shape_of(item, rank);
    const plugins::FactorScratch scratch(call, shape);
    const float* const known = known_factor(call, item, rank, scratch);
    float* const work = item.work().data();
    float* const room = scratch.kernels();
    if (!sends_left(call.step->phase)) {
      low_rank::multiply_transposed(shape, work, known, sent, room, path_);
      if (item.keeps()) low_rank::take_out(shape, work, known, sent, room, path_);
    } else if (item.keeps()) {
      low_rank::multiply_and_take_out(shape, work, known, sent, room, path_);
    } else {
      low_rank::multiply(shape, work, known, sent, room, path_);
    }
  }

  void decode_factor(const sdk::Call& call, const sdk::Item& item, uint64_t rank,
                     const sdk::PayloadReader& payload) const {
    const bool left = sends_left(call.step->phase);
    const std::span<const float> sum =
        plugins::summed_entries(payload, entries(call.step->phase, item));
    if (sum.empty()) {
      plugins::clear(item.out());
      return;
    }
    const low_rank::Shape shape = plugins::shape_of(item, rank);
    const plugins::FactorScratch scratch(call, shape);
    const float* const known = known_factor(call, item, rank, scratch);
    low_rank::expand(shape, left ? sum.data() : known, left ? known : sum.data(), 1.0f,
                     item.out().data(), scratch.kernels(), path_);
    if ((call.flags & PENSTOCK_DECODE_OWN) == 0)
      plugins::keep_factor(call, item, sum, item.state(left ? kLeft : kRight), rank,
                           left ? kernels::kStreamLeftFactor : kernels::kStreamRightFactor, scratch,
                           path_);
  }

  plugins::FactorRule rule_;
  kernels::CodePath path_;
};

}  // namespace

PENSTOCK_COMPRESSOR(AcpSgd, "compressor/acpsgd", "0.1.0",
                    "one thin factor per matrix and step, left and right in turn; others dense",
                    "Zhang et al., Evaluation and Optimization of Gradient Compression for "
                    "Distributed Deep Learning, ICDCS 2023");
