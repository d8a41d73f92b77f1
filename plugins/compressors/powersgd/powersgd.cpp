// Power-SGD: a gradient M[rows x cols] travels as two thin factors, P[rows x r] and Q[cols x r],
// found by one step of subspace iteration that starts from the Q of the step before. Source:
// Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
// Optimization", NeurIPS 2019. See README.md for where this differs and why.
#include <methods/agreed.hpp>
#include <methods/low_rank.hpp>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;
namespace low_rank = penstock::kernels::low_rank;

namespace {

// Algorithm 1 of the paper, over ranks i:
//   round 0:  P = orthogonalise(sum_i M_i Q)
//   round 1:  Q_i = M_i^T P,  sum = sum_i Q_i,  out = P sum^T,  Q = orthogonalise(sum)
// and what rank i takes out of work is its own share of that, P Q_i^T.
class PowerSgd : public sdk::FoldingEncoder<PowerSgd> {
 public:
  static inline const sdk::OptionList options{
      sdk::integer_option("rank", 4)
          .at_least(1)
          .at_most(sdk::kMaxRank)
          .summary("columns of the factors; at most the smaller side of the matrix"),
      sdk::real_option("minimum_compression_rate", 2)
          .at_least(0)
          .summary("factor a gradient only where that sends this many times fewer elements; 0: "
                   "every gradient of two or more dimensions"),
      sdk::bool_option("warm_start", true)
          .summary("start from the last step's right factor; otherwise from a new random one")};

  explicit PowerSgd(const sdk::Options& values)
      : rule_{static_cast<uint64_t>(values.integer("rank")),
              values.real("minimum_compression_rate")},
        warm_start_(values.boolean("warm_start")),
        on_(sdk::agreed_execution("low_rank")) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
    traits.folds = sdk::kAllFolds;
  }

  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    const uint64_t rank = rule_.rank_of(item);
    if (rank == 0) return sdk::plan_dense(item, need);
    const uint64_t p = item.rows() * rank, q = item.cols() * rank;
    need.round(PENSTOCK_COMBINE_SUM).section(PENSTOCK_ROLE_FACTOR, PENSTOCK_FLOAT32, p).same_bits();
    need.round(PENSTOCK_COMBINE_SUM).section(PENSTOCK_ROLE_FACTOR, PENSTOCK_FLOAT32, q).same_bits();
    need.states.add("p", item.rows(), rank, PENSTOCK_STATE_REPLICATED);
    if (warm_start_) need.states.add("q", item.cols(), rank, PENSTOCK_STATE_REPLICATED);
    need.scratch_bytes = sdk::FactorScratch::bytes(sdk::shape_of(item, rank));
  }

  // Products of tall, thin factors are bound by reading the matrix, so on the CPU equal shapes gain
  // nothing from being stacked: one item after the other.
  void encode_item(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload,
                   const kernels::Fold* fold) {
    const uint64_t rank = rule_.rank_of(item);
    const std::span<float> sent = payload.room<float>(0);
    if (rank == 0)
      sdk::encode_dense(item, payload, on_.path, fold);
    else if (call.round == 0)
      encode_left(call, item, rank, sent, fold);
    else
      encode_right(call, item, rank, sent);
    payload.kind(rank == 0 ? PENSTOCK_PAYLOAD_DENSE : PENSTOCK_PAYLOAD_CODED);
    payload.count(0, sent.size());
  }

  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    for (uint64_t i = 0; i < items.size(); ++i)  // all sizes before any state changes
      sdk::summed_entries(payloads.at(i, 0), entries(call, items[i]));
    for (uint64_t i = 0; i < items.size(); ++i) {
      const sdk::PayloadReader payload = payloads.at(i, 0);
      const uint64_t rank = rule_.rank_of(items[i]);
      if (rank == 0)
        sdk::decode_dense(items[i], payload);
      else if (call.round == 0)
        decode_left(call, items[i], rank, payload);
      else
        decode_right(call, items[i], rank, payload);
    }
  }

 private:
  enum State : uint64_t { kLeft = 0, kRight = 1 };

  uint64_t entries(const sdk::Call& call, const sdk::Item& item) const {
    const uint64_t rank = rule_.rank_of(item);
    if (rank == 0) return item.numel();
    return rank * (call.round == 0 ? item.rows() : item.cols());
  }

  // P_i = M_i Q
  void encode_left(const sdk::Call& call, const sdk::Item& item, uint64_t rank, std::span<float> p,
                   const kernels::Fold* fold) const {
    const low_rank::Shape shape = sdk::shape_of(item, rank);
    const sdk::FactorScratch scratch(call, shape);
    const float* q = scratch.factor();
    if (warm_start_)
      q = sdk::factor_in_use(call, item, item.state(kRight), rank, kernels::kStreamRightFactor,
                             scratch, on_.path);
    else
      kernels::draw_factor(scratch.factor(), shape.cols, rank, fresh_right(call, item),
                           scratch.kernels(), on_.path);
    low_rank::multiply(shape, item.work().data(), q, p.data(), scratch.kernels(), on_, fold);
  }

  // Q_i = M_i^T P, and what this payload stands for leaves work: P Q_i^T, of this rank alone.
  // Taking out the average instead would conserve the sum over ranks too, but each rank's distance
  // from the average gradient would then stay in its work for ever and grow like a random walk.
  void encode_right(const sdk::Call& call, const sdk::Item& item, uint64_t rank,
                    std::span<float> q) const {
    const low_rank::Shape shape = sdk::shape_of(item, rank);
    const sdk::FactorScratch scratch(call, shape);
    const float* const p = item.state(kLeft).data();
    low_rank::multiply_transposed(shape, item.work().data(), p, q.data(), scratch.kernels(), on_);
    if (item.keeps())
      low_rank::take_out(shape, item.work().data(), p, q.data(), scratch.kernels(), on_);
  }

  // P = orthogonalise(sum_i P_i). Columns that depend on others become zero: the others span all
  // that was found.
  void decode_left(const sdk::Call& call, const sdk::Item& item, uint64_t rank,
                   const sdk::PayloadReader& payload) const {
    if ((call.flags & PENSTOCK_DECODE_OWN) != 0) {  // round 0 took nothing out of work
      sdk::clear(item.out());
      return;
    }
    const std::span<float> p = item.state(kLeft);
    const std::span<const float> sum = sdk::summed_entries(payload, p.size());
    sdk::clear(p);
    std::copy(sum.begin(), sum.end(), p.begin());
    const sdk::FactorScratch scratch(call, sdk::shape_of(item, rank));
    low_rank::orthogonalise(p.data(), item.rows(), rank, scratch.kernels(), on_.path);
  }

  // out = P (sum_i Q_i)^T
  void decode_right(const sdk::Call& call, const sdk::Item& item, uint64_t rank,
                    const sdk::PayloadReader& payload) const {
    const std::span<const float> sum = sdk::summed_entries(payload, item.cols() * rank);
    if (sum.empty()) {
      sdk::clear(item.out());
      return;
    }
    const low_rank::Shape shape = sdk::shape_of(item, rank);
    const sdk::FactorScratch scratch(call, shape);
    low_rank::expand(shape, item.state(kLeft).data(), sum.data(), 1.0f, item.out().data(),
                     scratch.kernels(), on_);
    if (warm_start_ && (call.flags & PENSTOCK_DECODE_OWN) == 0)
      sdk::keep_factor(call, item, sum, item.state(kRight), rank, kernels::kStreamRightFactor,
                       scratch, on_.path);
  }

  static kernels::FactorSource fresh_right(const sdk::Call& call, const sdk::Item& item) {
    return {call.step->seed, item.c().gradient,
            kernels::stream_of_step(kernels::kStreamRightFactor, call.step->index)};
  }

  sdk::FactorRule rule_;
  bool warm_start_;
  kernels::Execution on_;
};

}  // namespace

PENSTOCK_COMPRESSOR(PowerSgd, "compressor/powersgd", "0.1.0",
                    "two thin factors per matrix by subspace iteration; other gradients dense",
                    "Vogels et al., PowerSGD: Practical Low-Rank Gradient Compression for "
                    "Distributed Optimization, NeurIPS 2019");
