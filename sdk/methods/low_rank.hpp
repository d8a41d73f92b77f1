// Power-SGD and its relatives: matrices are sent as thin factors, other gradients uncompressed.
#pragma once

#include <kernels/factor.hpp>
#include <kernels/low_rank.hpp>
#include <methods/device/low_rank.hpp>
#include <methods/summed.hpp>

namespace penstock::sdk {

namespace low_rank = kernels::low_rank;

// The factors of one item during a call on the CPU. The call's scratch is used for one item after
// the other: it holds a factor, then the scratch of the kernels. device/low_rank.hpp has a class
// with an equal interface for a device; methods call either class.
class Factors {
 public:
  static uint64_t scratch_bytes(const low_rank::Shape& shape) {
    const uint64_t longest = std::max(shape.rows, shape.cols);
    const uint64_t kernels = std::max(low_rank::scratch_floats(shape),
                                      low_rank::orthogonalise_scratch_floats(longest, shape.rank));
    return (factor_floats(shape) + kernels) * sizeof(float);
  }
  Factors(const Call& call, const Item& item, uint64_t rank, const kernels::Execution& on)
      : shape{item.rows(), item.cols(), rank},
        call_(call),
        item_(item),
        on_(on),
        drawn_(call.scratch<float>(scratch_bytes(shape) / sizeof(float)).data()),
        scratch_(drawn_ + factor_floats(shape)) {}

  const low_rank::Shape shape;

  // ---- Factors that are kept ----

  // Orthonormal random columns, equal on all ranks; valid until the next call.
  const float* draw(uint64_t rows, uint64_t stream) const {
    kernels::draw_factor(drawn_, rows, shape.rank, source(stream), scratch_, on_.path);
    return drawn_;
  }
  // The factor to use: the state, or, while the state is all zero, a factor drawn with equal bits
  // on every rank. Encode must not write replicated state, so it draws again until decode has a
  // factor to store.
  const float* in_use(std::span<const float> state, kernels::RandomStream stream) const {
    if (!kernels::all_zero(state.data(), state.size())) return state.data();
    return draw(state.size() / shape.rank, stream);
  }
  // Stores the summed factor for the next step: orthonormal, and dead columns are replaced by
  // random columns from this step's stream. A sum of zeros does not show where the gradient lies,
  // so it leaves the state unchanged.
  void keep(std::span<const float> sum, std::span<float> state,
            kernels::RandomStream stream) const {
    if (kernels::all_zero(sum.data(), sum.size())) return;
    copy(sum, state);
    kernels::renew_factor(state.data(), state.size() / shape.rank, shape.rank,
                          source(of_this_step(stream)), scratch_, on_.path);
  }
  // Makes the columns orthonormal. Columns that depend on other columns become zero.
  void orthogonalise(std::span<float> factor) const {
    low_rank::orthogonalise(factor.data(), factor.size() / shape.rank, shape.rank, scratch_,
                            on_.path);
  }
  void copy(std::span<const float> from, std::span<float> to) const {
    std::copy(from.begin(), from.end(), to.begin());
  }
  void clear(std::span<float> values) const { sdk::clear(values); }
  uint64_t of_this_step(kernels::RandomStream stream) const {
    return kernels::stream_of_step(stream, call_.step->index);
  }

  // ---- Products with work, M ----

  // p = M q, after `fold` unless it is null. The next two functions apply `fold` in this way too.
  void multiply(const float* q, float* p, const kernels::Fold* fold) const {
    low_rank::multiply(shape, work(), q, p, scratch_, on_, fold);
  }
  // q = M^T p.
  void multiply_transposed(const float* p, float* q, const kernels::Fold* fold) const {
    low_rank::multiply_transposed(shape, work(), p, q, scratch_, on_, fold);
  }
  // p = M q, then M -= p q^T.
  void multiply_and_take_out(const float* q, float* p, const kernels::Fold* fold) const {
    low_rank::multiply_and_take_out(shape, work(), q, p, scratch_, on_, fold);
  }
  // M -= p q^T.
  void take_out(const float* p, const float* q) const {
    low_rank::take_out(shape, work(), p, q, scratch_, on_);
  }
  // out = p q^T, times the result's scale.
  void expand(const float* p, const float* q) const {
    low_rank::expand(shape, p, q, call_.result_scale(), item_.out().data(), scratch_, on_);
  }

 private:
  static uint64_t factor_floats(const low_rank::Shape& shape) {  // a multiple of 64 bytes
    return (std::max(shape.rows, shape.cols) * shape.rank + 15) / 16 * 16;
  }
  kernels::FactorSource source(uint64_t stream) const {
    return {call_.step->seed, item_.c().gradient, stream};
  }
  float* work() const { return item_.work().data(); }

  const Call& call_;
  const Item& item_;
  const kernels::Execution& on_;
  float* const drawn_;    // room for the longer factor
  float* const scratch_;  // of kernels
};

// The base of compressors that send factors. It codes gradients of two or more dimensions whose
// factors together, times `minimum_rate`, have fewer elements than the gradient; a rate of 0 codes
// every gradient of two or more dimensions.
template <typename Method>
class LowRankCompressor : public SummedCompressor<Method> {
 public:
  static Option rank_option() {
    return integer_option("rank", 4)
        .at_least(1)
        .at_most(256)  // beyond it factors are no longer thin
        .summary("columns of the factors; at most the smaller side of the matrix");
  }
  static Option rate_option(double value, const char* summary) {
    return real_option("minimum_compression_rate", value).at_least(0).summary(summary);
  }

  void describe(penstock_compressor_traits& traits) const {
    SummedCompressor<Method>::describe(traits);
    traits.device_types = device::kWhereKernelsAre;
  }
  bool coded(const Item& item) const { return rank_of(item) != 0; }

 protected:
  enum State : uint64_t { kLeft = 0, kRight = 1 };

  LowRankCompressor(const Options& values, double minimum_rate)
      : SummedCompressor<Method>("low_rank"),
        rank_(static_cast<uint64_t>(values.integer("rank"))),
        minimum_rate_(minimum_rate) {}

  // The number of columns of the factors of `item`, or 0 if it is sent dense.
  uint64_t rank_of(const Item& item) const {
    if (item.n_dims() < 2 || item.numel() == 0) return 0;
    const uint64_t columns = std::min({rank_, item.rows(), item.cols()});
    const double factors = static_cast<double>(item.rows() + item.cols()) * columns;
    const double elements = static_cast<double>(item.rows()) * item.cols();
    return factors * minimum_rate_ < elements ? columns : 0;
  }
  // Calls use(factors) with the item's factors, on the CPU or the device where the call works.
  template <typename Use>
  void with_factors(const Call& call, const Item& item, Use&& use) const {
    if constexpr (device::kHasKernels)
      if (call.on_device()) return use(device::Factors(call, item, rank_of(item)));
    use(Factors(call, item, rank_of(item), this->on()));
  }

  // Plans a factored item: a round for one factor, state for a kept factor, scratch for Factors.
  static void plan_factor(uint64_t entries, CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_SUM)
        .section(PENSTOCK_ROLE_FACTOR, PENSTOCK_FLOAT32, entries)
        .same_bits();
  }
  void plan_kept(const Item& item, State side, CompressorNeed& need) const {
    need.states.add(side == kLeft ? "p" : "q", side == kLeft ? item.rows() : item.cols(),
                    rank_of(item), PENSTOCK_STATE_REPLICATED);
    const low_rank::Shape shape{item.rows(), item.cols(), rank_of(item)};
    need.scratch_bytes = Factors::scratch_bytes(shape);
    if constexpr (device::kHasKernels)
      need.scratch_bytes = std::max(need.scratch_bytes, device::Factors::scratch_bytes(shape));
  }

 private:
  uint64_t rank_;
  double minimum_rate_;
};

// The base of methods that send one factor per step: ACP-SGD and the alternating form of Power-SGD.
// Each method derives from this class and defines which factor comes first.
//
// P and Q are orthonormal and equal on all ranks i. The sent factor is a projection on the other
// factor, which all ranks know from the step before:
//   left is sent:   P_i = M_i Q,    sum = sum_i P_i,  out = sum Q^T,  P = orthogonalise(sum)
//   right is sent:  Q_i = M_i^T P,  sum = sum_i Q_i,  out = P sum^T,  Q = orthogonalise(sum)
// Rank i takes its own share out of work, P_i Q^T or P Q_i^T.
class AlternatingFactors : public LowRankCompressor<AlternatingFactors> {
 public:
  static constexpr bool kFolds = true;
  void plan(const PlanCall& call, const Item& item, CompressorNeed& need) {
    need.period = 2;
    if (!coded(item)) return plan_dense(item, need);
    plan_factor(entries(call.phase, 0, item), need);
    plan_kept(item, kLeft, need);
    plan_kept(item, kRight, need);
  }

  uint64_t entries(uint32_t phase, uint32_t, const Item& item) const {
    return rank_of(item) * (sends_left(phase) ? item.rows() : item.cols());
  }

  void encode_coded(const Call& call, const Item& item, std::span<float> sent,
                    const kernels::Fold* fold) const {
    with_factors(call, item, [&](const auto& factors) {
      const float* const known = known_factor(call, item, factors);
      if (!sends_left(call.step->phase)) {
        factors.multiply_transposed(known, sent.data(), fold);
        if (item.keeps()) factors.take_out(known, sent.data());
      } else if (item.keeps()) {
        factors.multiply_and_take_out(known, sent.data(), fold);
      } else {
        factors.multiply(known, sent.data(), fold);
      }
    });
  }

  void decode_coded(const Call& call, const Item& item, std::span<const float> sum) const {
    const bool left = sends_left(call.step->phase);
    with_factors(call, item, [&](const auto& factors) {
      if (sum.empty()) return factors.clear(item.out());
      const float* const known = known_factor(call, item, factors);
      factors.expand(left ? sum.data() : known, left ? known : sum.data());
      if ((call.flags & PENSTOCK_DECODE_OWN) == 0)
        factors.keep(sum, item.state(left ? kLeft : kRight), stream_of(left));
    });
  }

 protected:
  enum class First { kLeft, kRight };

  AlternatingFactors(const Options& values, double minimum_rate, First first)
      : LowRankCompressor(values, minimum_rate), first_(first) {}

 private:
  bool sends_left(uint32_t phase) const { return (phase % 2 == 0) == (first_ == First::kLeft); }
  static kernels::RandomStream stream_of(bool left) {
    return left ? kernels::kStreamLeftFactor : kernels::kStreamRightFactor;
  }

  // The factor that all ranks know: the factor that is not sent in this phase.
  template <typename FactorsOfPlace>
  const float* known_factor(const Call& call, const Item& item,
                            const FactorsOfPlace& factors) const {
    const bool left = !sends_left(call.step->phase);
    return factors.in_use(item.state(left ? kLeft : kRight), stream_of(left));
  }

  First first_;
};

}  // namespace penstock::sdk
