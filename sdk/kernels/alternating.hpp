// Low-rank methods that send one factor per step: ACP-SGD and the alternating form of Power-SGD.
// Each derives from this class and says which factor comes first.
//
// Over ranks i, with orthonormal P and Q that are equal on all of them, the factor that is sent is
// a projection on the other, which all ranks know from the step before:
//   left is sent:   P_i = M_i Q,    sum = sum_i P_i,  out = sum Q^T,  P = orthogonalise(sum)
//   right is sent:  Q_i = M_i^T P,  sum = sum_i Q_i,  out = P sum^T,  Q = orthogonalise(sum)
// What rank i takes out of work is its own share, P_i Q^T or P Q_i^T.
#pragma once

#include <kernels/agreed.hpp>
#include <kernels/factored.hpp>

namespace penstock::plugins {

class AlternatingFactors : public sdk::FoldingEncoder<AlternatingFactors> {
 public:
  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
    traits.folds = sdk::kAllFolds;
  }

  void plan(const sdk::PlanCall& call, const sdk::Item& item, sdk::CompressorNeed& need) {
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

  void encode_item(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload,
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

  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
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

  uint64_t entries(uint32_t phase, const sdk::Item& item) const {
    const uint64_t rank = rule_.rank_of(item);
    if (rank == 0) return item.numel();
    return rank * (sends_left(phase) ? item.rows() : item.cols());
  }

  // The factor that all ranks know: the one that is not sent in this phase.
  const float* known_factor(const sdk::Call& call, const sdk::Item& item, uint64_t rank,
                            const FactorScratch& scratch) const {
    const bool right = sends_left(call.step->phase);
    return factor_in_use(call, item, item.state(right ? kRight : kLeft), rank,
                         right ? kernels::kStreamRightFactor : kernels::kStreamLeftFactor, scratch,
                         on_.path);
  }

  void encode_factor(const sdk::Call& call, const sdk::Item& item, uint64_t rank, float* sent,
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

  void decode_factor(const sdk::Call& call, const sdk::Item& item, uint64_t rank,
                     const sdk::PayloadReader& payload) const {
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

}  // namespace penstock::plugins
