// What Power-SGD and its relatives share: which gradients are factored, the dense round of the
// others, and the methods that send one factor per step.
#pragma once

#include <penstock/compressor.hpp>

#include <kernels/factor.hpp>
#include <kernels/low_rank.hpp>
#include <methods/agreed.hpp>
#include <methods/folded.hpp>

#include <algorithm>
#include <cstring>
#include <span>

namespace penstock::sdk {

namespace low_rank = kernels::low_rank;

// Highest rank that may be asked for: beyond it factors are no longer thin.
inline constexpr int64_t kMaxRank = 256;

// Factored are gradients of two or more dimensions whose factors together, times `minimum_rate`,
// have fewer elements than the gradient; a rate of 0 factors all of them.
struct FactorRule {
  uint64_t rank;
  double minimum_rate;

  // Columns of the factors of `item`, or 0 when it goes dense.
  uint64_t rank_of(const Item& item) const {
    if (item.n_dims() < 2 || item.numel() == 0) return 0;
    const uint64_t columns = std::min({rank, item.rows(), item.cols()});
    const double factors = static_cast<double>(item.rows() + item.cols()) * columns;
    const double elements = static_cast<double>(item.rows()) * item.cols();
    return factors * minimum_rate < elements ? columns : 0;
  }
};

inline low_rank::Shape shape_of(const Item& item, uint64_t rank) {
  return {item.rows(), item.cols(), rank};
}

// Scratch of a call, used for one item after the other: a factor, then what the kernels need.
class FactorScratch {
 public:
  static uint64_t bytes(const low_rank::Shape& shape) {
    const uint64_t longest = std::max(shape.rows, shape.cols);
    const uint64_t kernels = std::max(low_rank::scratch_floats(shape),
                                      low_rank::orthogonalise_scratch_floats(longest, shape.rank));
    return (factor_floats(shape) + kernels) * sizeof(float);
  }
  FactorScratch(const Call& call, const low_rank::Shape& shape)
      : factor_(call.scratch<float>(bytes(shape) / sizeof(float)).data()),
        kernels_(factor_ + factor_floats(shape)) {}
  float* factor() const { return factor_; }
  float* kernels() const { return kernels_; }

 private:
  static uint64_t factor_floats(const low_rank::Shape& shape) {  // a multiple of 64 bytes
    return (std::max(shape.rows, shape.cols) * shape.rank + 15) / 16 * 16;
  }
  float* factor_;
  float* kernels_;
};

// A kept factor as it is used: the state, or, while that is all zero, one drawn into scratch with
// the same bits on every rank. Encode may not write replicated state, so it draws again until
// decode has something to store.
inline const float* factor_in_use(const Call& call, const Item& item, std::span<const float> state,
                                  uint64_t rank, kernels::RandomStream stream,
                                  const FactorScratch& scratch, kernels::CodePath path) {
  if (!kernels::all_zero(state.data(), state.size())) return state.data();
  kernels::draw_factor(scratch.factor(), state.size() / rank, rank,
                       {call.step->seed, item.c().gradient, stream}, scratch.kernels(), path);
  return scratch.factor();
}

// Makes the summed factor the next step's: orthonormal, dead columns drawn from this step's stream.
// A sum of zeros says nothing about where the gradient lies, so it leaves the state as it was.
inline void keep_factor(const Call& call, const Item& item, std::span<const float> sum,
                        std::span<float> state, uint64_t rank, kernels::RandomStream stream,
                        const FactorScratch& scratch, kernels::CodePath path) {
  if (kernels::all_zero(sum.data(), sum.size())) return;
  std::copy(sum.begin(), sum.end(), state.begin());
  kernels::renew_factor(
      state.data(), state.size() / rank, rank,
      {call.step->seed, item.c().gradient, kernels::stream_of_step(stream, call.step->index)},
      scratch.kernels(), path);
}

// The entries of a summed payload; none when it is absent, which counts as zeros.
inline std::span<const float> summed_entries(const PayloadReader& payload, uint64_t expected) {
  if (payload.absent()) return {};
  return payload.section<float>(0, expected);
}

inline void clear(std::span<float> values) {
  std::fill(values.begin(), values.end(), 0.0f);
}

// ---- Gradients that are not factored: as they are, in one summed round ----

inline void plan_dense(const Item& item, CompressorNeed& need) {
  need.round(PENSTOCK_COMBINE_SUM)
      .section(PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, item.numel(), true,
               PENSTOCK_SPLIT_BY_ELEMENT);
  // A part of a matrix could be judged otherwise than the whole, so only vectors may be cut.
  need.part_alignment = item.n_dims() < 2 ? 1 : 0;
  need.flags = PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR;
}

inline void encode_dense(const Item& item, const PayloadWriter& payload, kernels::CodePath path,
                         const kernels::Fold* fold = nullptr) {
  const std::span<float> work = item.work();
  if (fold != nullptr) kernels::compensate(*fold, work.size(), path);
  std::copy(work.begin(), work.end(), payload.room<float>(0).begin());
  if (item.keeps()) clear(work);  // all of it goes
}

inline void decode_dense(const Item& item, const PayloadReader& payload) {
  const std::span<const float> sum = summed_entries(payload, item.numel());
  const std::span<float> out = item.out();
  if (sum.empty())
    clear(out);
  else
    std::copy(sum.begin(), sum.end(), out.begin());
}

// ---- One factor per step ----

// Low-rank methods that send one factor per step: ACP-SGD and the alternating form of Power-SGD.
// Each derives from this class and says which factor comes first.
//
// Over ranks i, with orthonormal P and Q that are equal on all of them, the factor that is sent is
// a projection on the other, which all ranks know from the step before:
//   left is sent:   P_i = M_i Q,    sum = sum_i P_i,  out = sum Q^T,  P = orthogonalise(sum)
//   right is sent:  Q_i = M_i^T P,  sum = sum_i Q_i,  out = P sum^T,  Q = orthogonalise(sum)
// What rank i takes out of work is its own share, P_i Q^T or P Q_i^T.
class AlternatingFactors : public FoldingEncoder<AlternatingFactors> {
 public:
  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
    traits.folds = kAllFolds;
  }

  void plan(const PlanCall& call, const Item& item, CompressorNeed& need) {
    need.period = 2;
    const uint64_t rank = rule_.rank_of(item);
    if (rank == 0) return plan_dense(item, need);
    need.round(PENSTOCK_COMBINE_SUM)
        .section(PENSTOCK_ROLE_FACTOR, PENSTOCK_FLOAT32, entries(call.phase, item))
        .same_bits();
    need.states.add("p", item.rows(), rank, PENSTOCK_STATE_REPLICATED);
    need.states.add("q", item.cols(), rank, PENSTOCK_STATE_REPLICATED);
    need.scratch_bytes = FactorScratch::bytes(shape_of(item, rank));
  }

  void encode_item(const Call& call, const Item& item, PayloadWriter& payload,
                   const kernels::Fold* fold) {
    const uint64_t rank = rule_.rank_of(item);
    const std::span<float> sent = payload.room<float>(0);
    if (rank == 0)
      encode_dense(item, payload, on_.path, fold);
    else
      encode_factor(call, item, rank, sent.data(), fold);
    payload.kind(rank == 0 ? PENSTOCK_PAYLOAD_DENSE : PENSTOCK_PAYLOAD_CODED);
    payload.count(0, sent.size());
  }

  void decode(const Call& call, const Items& items, const PayloadReaders& payloads) {
    for (uint64_t i = 0; i < items.size(); ++i)  // all sizes before any state changes
      summed_entries(payloads.at(i, 0), entries(call.step->phase, items[i]));
    for (uint64_t i = 0; i < items.size(); ++i) {
      const uint64_t rank = rule_.rank_of(items[i]);
      if (rank == 0)
        decode_dense(items[i], payloads.at(i, 0));
      else
        decode_factor(call, items[i], rank, payloads.at(i, 0));
    }
  }

 protected:
  enum class First { kLeft, kRight };

  AlternatingFactors(const FactorRule& rule, First first)
      : rule_(rule), first_(first), on_(agreed_execution("low_rank")) {}

 private:
  enum State : uint64_t { kLeft = 0, kRight = 1 };

  bool sends_left(uint32_t phase) const { return (phase % 2 == 0) == (first_ == First::kLeft); }

  uint64_t entries(uint32_t phase, const Item& item) const {
    const uint64_t rank = rule_.rank_of(item);
    if (rank == 0) return item.numel();
    return rank * (sends_left(phase) ? item.rows() : item.cols());
  }

  // The factor that all ranks know: the one that is not sent in this phase.
  const float* known_factor(const Call& call, const Item& item, uint64_t rank,
                            const FactorScratch& scratch) const {
    const bool right = sends_left(call.step->phase);
    return factor_in_use(call, item, item.state(right ? kRight : kLeft), rank,
                         right ? kernels::kStreamRightFactor : kernels::kStreamLeftFactor, scratch,
                         on_.path);
  }

  void encode_factor(const Call& call, const Item& item, uint64_t rank, float* sent,
                     const kernels::Fold* fold) const {
    const low_rank::Shape shape = shape_of(item, rank);
    const FactorScratch scratch(call, shape);
    const float* const known = known_factor(call, item, rank, scratch);
    float* const work = item.work().data();
    float* const room = scratch.kernels();
    if (!sends_left(call.step->phase)) {
      low_rank::multiply_transposed(shape, work, known, sent, room, on_, fold);
      if (item.keeps()) low_rank::take_out(shape, work, known, sent, room, on_);
    } else if (item.keeps()) {
      low_rank::multiply_and_take_out(shape, work, known, sent, room, on_, fold);
    } else {
      low_rank::multiply(shape, work, known, sent, room, on_, fold);
    }
  }

  void decode_factor(const Call& call, const Item& item, uint64_t rank,
                     const PayloadReader& payload) const {
    const bool left = sends_left(call.step->phase);
    const std::span<const float> sum = summed_entries(payload, entries(call.step->phase, item));
    if (sum.empty()) {
      clear(item.out());
      return;
    }
    const low_rank::Shape shape = shape_of(item, rank);
    const FactorScratch scratch(call, shape);
    const float* const known = known_factor(call, item, rank, scratch);
    low_rank::expand(shape, left ? sum.data() : known, left ? known : sum.data(), 1.0f,
                     item.out().data(), scratch.kernels(), on_);
    if ((call.flags & PENSTOCK_DECODE_OWN) == 0)
      keep_factor(call, item, sum, item.state(left ? kLeft : kRight), rank,
                  left ? kernels::kStreamLeftFactor : kernels::kStreamRightFactor, scratch,
                  on_.path);
  }

  FactorRule rule_;
  First first_;
  kernels::Execution on_;
};

}  // namespace penstock::sdk
