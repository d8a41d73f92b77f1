// Power-SGD and its relatives: matrices are sent as thin factors, other gradients uncompressed.
#pragma once

#include <kernels/factor.hpp>
#include <kernels/low_rank.hpp>
#include <methods/device/low_rank.hpp>
#include <methods/summed.hpp>
#include <methods/summed_values.hpp>

namespace penstock::sdk {

namespace low_rank = kernels::low_rank;

// The factors of one item during a call on the CPU. The call's scratch is used for one item after
// the other: it holds a factor, then the float32 numbers of a factor that travels in 16 bits, then
// the scratch of the kernels. device/low_rank.hpp has a class with an equal interface for a device;
// methods call either class.
class Factors {
 public:
  static uint64_t scratch_bytes(const low_rank::Shape& shape, const SummedValues& values) {
    const uint64_t longest = std::max(shape.rows, shape.cols);
    const uint64_t kernels = std::max(low_rank::scratch_floats(shape),
                                      low_rank::orthogonalise_scratch_floats(longest, shape.rank));
    return ((values.narrow() ? 2 : 1) * factor_floats(shape) + kernels) * sizeof(float);
  }
  Factors(const Call& call, const Item& item, uint64_t rank, const SummedValues& values,
          const kernels::Execution& on)
      : shape{item.rows(), item.cols(), rank},
        call_(call),
        item_(item),
        values_(values),
        on_(on),
        drawn_(call.scratch<float>(scratch_bytes(shape, values) / sizeof(float)).data()),
        widened_(drawn_ + factor_floats(shape)),
        scratch_(widened_ + (values.narrow() ? factor_floats(shape) : 0)) {}

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

  // ---- Factors on the wire ----

  // Where kernels make the factor that `payload` sends: in the payload, or in scratch until send()
  // rounds it.
  std::span<float> to_send(const PayloadWriter& payload, uint64_t entries) const {
    return values_.narrow() ? std::span(widened_, entries) : payload.room<float>(0);
  }
  // Completes the payload; afterwards `sent` has the numbers that receivers read.
  void send(std::span<float> sent, const PayloadWriter& payload) const {
    if (values_.narrow()) values_.pack(sent.data(), sent.size(), payload, 0, call_.step->world);
  }
  // The sum in float32; empty if no rank has sent any numbers.
  std::span<const float> sum_of(const PayloadReader& payload, uint64_t entries) const {
    if (payload.absent()) return {};
    if (!values_.narrow()) return payload.section<float>(0, entries);
    SummedValues::Sum(values_, payload, entries).read(0, entries, widened_);
    return {widened_, entries};
  }
  // Whether multiply_and_take_out gives the bits of multiply, send and take_out.
  bool sends_what_it_multiplies() const { return !values_.narrow(); }

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
  const SummedValues& values_;
  const kernels::Execution& on_;
  float* const drawn_;    // room for the longer factor
  float* const widened_;  // as much room, if factors travel in 16 bits
  float* const scratch_;  // of kernels
};

// The base of compressors that send factors. It codes gradients of two or more dimensions whose
// factors together, times `minimum_rate`, have fewer elements than the gradient; a rate of 0 codes
// every gradient of two or more dimensions. A method defines, for Factors of either place:
//   void encode_factor(const Call&, const Item&, const Factors&, const PayloadWriter&,
//                      const kernels::Fold*) const;
//   void decode_factor(const Call&, const Item&, const Factors&, std::span<const float> sum) const;
// The factors of an item travel in the type of option `value_type`. What encode takes out of work
// follows from the rounded factor, so the rounding errors of a rank's factor stay in work.
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

  static Option type_option() {
    return choice_option("value_type", "fp32", {"fp32", "bf16", "fp16"})
        .summary(
            "type of the factors on the wire, which are added in float32; a number of 16 bits is "
            "at most the type's largest number divided by the number of ranks. The memory keeps "
            "the errors of this limit and of rounding; without a memory they are lost. Rounding "
            "errors of the sum are lost");
  }

  void describe(penstock_compressor_traits& traits) const {
    SummedCompressor<Method>::describe(traits);
    traits.device_types = device::kWhereKernelsAre;
  }
  bool coded(const Item& item) const { return rank_of(item) != 0; }

  void encode_payload(const Call& call, const Item& item, const PayloadWriter& payload,
                      const kernels::Fold* fold) const {
    with_factors(call, item, [&](const auto& factors) {
      method().encode_factor(call, item, factors, payload, fold);
    });
  }
  void decode_payload(const Call& call, const Item& item, const PayloadReader& payload) const {
    const uint64_t entries = method().entries(call.step->phase, call.round, item);
    with_factors(call, item, [&](const auto& factors) {
      method().decode_factor(call, item, factors, factors.sum_of(payload, entries));
    });
  }
  void check_sum(const PayloadReader& payload, uint64_t expected) const {
    (void)SummedValues::Sum(values_, payload, expected);
  }

 protected:
  enum State : uint64_t { kLeft = 0, kRight = 1 };

  LowRankCompressor(const Options& values, double minimum_rate)
      : SummedCompressor<Method>("low_rank"),
        rank_(static_cast<uint64_t>(values.integer("rank"))),
        minimum_rate_(minimum_rate),
        values_(values) {}

  // The number of columns of the factors of `item`, or 0 if it is sent dense.
  uint64_t rank_of(const Item& item) const {
    if (item.n_dims() < 2 || item.numel() == 0) return 0;
    const uint64_t columns = std::min({rank_, item.rows(), item.cols()});
    const double factors = static_cast<double>(item.rows() + item.cols()) * columns;
    const double elements = static_cast<double>(item.rows()) * item.cols();
    return factors * minimum_rate_ < elements ? columns : 0;
  }

  // Plans a factored item: a round for one factor, state for a kept factor, scratch for Factors.
  void plan_factor(uint64_t entries, CompressorNeed& need) const {
    need.round(PENSTOCK_COMBINE_SUM)
        .section(PENSTOCK_ROLE_FACTOR, values_.dtype(), entries)
        .same_bits();
  }
  void plan_kept(const Item& item, State side, CompressorNeed& need) const {
    need.states.add(side == kLeft ? "p" : "q", side == kLeft ? item.rows() : item.cols(),
                    rank_of(item), PENSTOCK_STATE_REPLICATED);
    const low_rank::Shape shape{item.rows(), item.cols(), rank_of(item)};
    need.scratch_bytes = Factors::scratch_bytes(shape, values_);
    if constexpr (device::kHasKernels)
      need.scratch_bytes =
          std::max(need.scratch_bytes, device::Factors::scratch_bytes(shape, values_));
  }

 private:
  const Method& method() const { return static_cast<const Method&>(*this); }

  // Calls use(factors) with the item's factors, on the CPU or the device where the call works.
  template <typename Use>
  void with_factors(const Call& call, const Item& item, Use&& use) const {
    if constexpr (device::kHasKernels)
      if (call.on_device()) return use(device::Factors(call, item, rank_of(item), values_));
    use(Factors(call, item, rank_of(item), values_, this->on()));
  }

  uint64_t rank_;
  double minimum_rate_;
  SummedValues values_;
};

// The base of methods that send one factor per step: ACP-SGD and the alternating form of Power-SGD.
// Each method derives from this class and defines which factor comes first.
//
// P and Q are orthonormal and equal on all ranks i. The sent factor is a projection on the other
// factor, which all ranks know from the step before:
//   left is sent:   P_i = M_i Q,    sum = sum_i P_i,  out = sum Q^T,  P = orthogonalise(sum)
//   right is sent:  Q_i = M_i^T P,  sum = sum_i Q_i,  out = P sum^T,  Q = orthogonalise(sum)
// Rank i takes its own share out of work, P_i Q^T or P Q_i^T, where P_i or Q_i is already rounded
// to its type on the wire.
class AlternatingFactors : public LowRankCompressor<AlternatingFactors> {
 public:
  static constexpr bool kFolds = true;
  static constexpr bool kInspects = true;
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

  template <typename FactorsOfPlace>
  void encode_factor(const Call& call, const Item& item, const FactorsOfPlace& factors,
                     const PayloadWriter& payload, const kernels::Fold* fold) const {
    const bool left = sends_left(call.step->phase);
    const float* const known = known_factor(call, item, factors);
    const std::span<float> sent = factors.to_send(payload, entries(call.step->phase, 0, item));
    if (left && item.keeps() && factors.sends_what_it_multiplies())
      return factors.multiply_and_take_out(known, sent.data(), fold);
    if (left)
      factors.multiply(known, sent.data(), fold);
    else
      factors.multiply_transposed(known, sent.data(), fold);
    factors.send(sent, payload);
    if (item.keeps()) factors.take_out(left ? sent.data() : known, left ? known : sent.data());
  }

  template <typename FactorsOfPlace>
  void decode_factor(const Call& call, const Item& item, const FactorsOfPlace& factors,
                     std::span<const float> sum) const {
    if (sum.empty()) return factors.clear(item.out());
    const bool left = sends_left(call.step->phase);
    const float* const known = known_factor(call, item, factors);
    factors.expand(left ? sum.data() : known, left ? known : sum.data());
    if ((call.flags & PENSTOCK_DECODE_OWN) == 0)
      factors.keep(sum, item.state(left ? kLeft : kRight), stream_of(left));
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
