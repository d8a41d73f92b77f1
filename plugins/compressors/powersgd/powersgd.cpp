// Power-SGD: a gradient M[rows x cols] travels as two thin factors, P[rows x r] and Q[cols x r],
// found by one step of subspace iteration that starts from the Q of the step before. Source:
// Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
// Optimization", NeurIPS 2019. See README.md for where this differs and why.
#include <methods/low_rank.hpp>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

// Algorithm 1 of the paper, over ranks i:
//   round 0:  P = orthogonalise(sum_i M_i Q)
//   round 1:  Q_i = M_i^T P,  sum = sum_i Q_i,  out = P sum^T,  Q = orthogonalise(sum)
// and rank i subtracts its own share of this, P Q_i^T, from work.
class PowerSgd : public sdk::LowRankCompressor<PowerSgd> {
 public:
  static inline const sdk::OptionList options{
      rank_option(),
      rate_option(2,
                  "factor a gradient only where that sends this many times fewer elements; 0: "
                  "every gradient of two or more dimensions"),
      type_option(),
      sdk::bool_option("warm_start", true)
          .summary("start from the last step's right factor; otherwise from a new random one")};

  explicit PowerSgd(const sdk::Options& values)
      : LowRankCompressor(values, values.real("minimum_compression_rate")),
        warm_start_(values.boolean("warm_start")) {}

  static constexpr bool kFolds = true;
  static constexpr bool kInspects = true;

  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    if (!coded(item)) return plan_dense(item, need);
    plan_factor(entries(0, 0, item), need);
    plan_factor(entries(0, 1, item), need);
    plan_kept(item, kLeft, need);
    if (warm_start_) plan_kept(item, kRight, need);
  }

  uint64_t entries(uint32_t, uint32_t round, const sdk::Item& item) const {
    return rank_of(item) * (round == 0 ? item.rows() : item.cols());
  }

  // Items are encoded one after the other: products of tall, thin factors are bound by reading the
  // matrix, so on the CPU stacking items of equal shape gains nothing.
  template <typename Factors>
  void encode_factor(const sdk::Call& call, const sdk::Item& item, const Factors& factors,
                     const sdk::PayloadWriter& payload, const kernels::Fold* fold) const {
    const std::span<float> sent = factors.to_send(payload, entries(0, call.round, item));
    if (call.round == 0) {
      factors.multiply(right_factor(item, factors), sent.data(), fold);
      factors.send(sent, payload);
    } else {
      encode_right(item, factors, sent, payload);
    }
  }

  template <typename Factors>
  void decode_factor(const sdk::Call& call, const sdk::Item& item, const Factors& factors,
                     std::span<const float> sum) const {
    if (call.round == 0)
      decode_left(call, item, factors, sum);
    else
      decode_right(call, item, factors, sum);
  }

 private:
  // Q of P_i = M_i Q
  template <typename Factors>
  const float* right_factor(const sdk::Item& item, const Factors& factors) const {
    constexpr auto kStream = kernels::kStreamRightFactor;
    if (warm_start_) return factors.in_use(item.state(kRight), kStream);
    return factors.draw(item.cols(), factors.of_this_step(kStream));
  }

  // Q_i = M_i^T P. This rank's own payload, P Q_i^T with the rounded Q_i, is subtracted from work.
  // Subtracting the average instead would also conserve the sum over ranks, but the distance of
  // each rank from the average gradient would then stay in its work for ever and grow like a random
  // walk.
  template <typename Factors>
  void encode_right(const sdk::Item& item, const Factors& factors, std::span<float> q,
                    const sdk::PayloadWriter& payload) const {
    const float* const p = item.state(kLeft).data();
    factors.multiply_transposed(p, q.data(), nullptr);
    factors.send(q, payload);
    if (item.keeps()) factors.take_out(p, q.data());
  }

  // P = orthogonalise(sum_i P_i). Columns that depend on other columns become zero, because the
  // other columns span everything that was found.
  template <typename Factors>
  void decode_left(const sdk::Call& call, const sdk::Item& item, const Factors& factors,
                   std::span<const float> sum) const {
    if ((call.flags & PENSTOCK_DECODE_OWN) != 0)  // round 0 subtracted nothing from work
      return factors.clear(item.out());
    const std::span<float> p = item.state(kLeft);
    if (sum.empty()) return factors.clear(p);
    factors.copy(sum, p);
    factors.orthogonalise(p);
  }

  // out = P (sum_i Q_i)^T
  template <typename Factors>
  void decode_right(const sdk::Call& call, const sdk::Item& item, const Factors& factors,
                    std::span<const float> sum) const {
    if (sum.empty()) return factors.clear(item.out());
    factors.expand(item.state(kLeft).data(), sum.data());
    if (warm_start_ && (call.flags & PENSTOCK_DECODE_OWN) == 0)
      factors.keep(sum, item.state(kRight), kernels::kStreamRightFactor);
  }

  bool warm_start_;
};

}  // namespace

PENSTOCK_COMPRESSOR(PowerSgd, "compressor/powersgd", "0.1.0",
                    "two thin factors per matrix by subspace iteration; other gradients dense",
                    "Vogels et al., PowerSGD: Practical Low-Rank Gradient Compression for "
                    "Distributed Optimization, NeurIPS 2019");
