// What Power-SGD and its relatives share: which gradients are factored, and the dense round of the
// others. Not a plugin: each method compiles it into itself.
#pragma once

#include <penstock/compressor.hpp>

#include <kernels/factor.hpp>
#include <kernels/folded.hpp>
#include <kernels/low_rank.hpp>

#include <algorithm>
#include <cstring>
#include <span>

namespace penstock::plugins {

namespace low_rank = kernels::low_rank;

// Highest rank that may be asked for: beyond it factors are no longer thin.
inline constexpr int64_t kMaxRank = 256;

// Factored are gradients of two or more dimensions whose factors together, times `minimum_rate`,
// have fewer elements than the gradient; a rate of 0 factors all of them.
struct FactorRule {
  uint64_t rank;
  double minimum_rate;

  // Columns of the factors of `item`, or 0 when it goes dense.
  uint64_t rank_of(const sdk::Item& item) const {
    if (item.n_dims() < 2 || item.numel() == 0) return 0;
    const uint64_t columns = std::min({rank, item.rows(), item.cols()});
    const double factors = static_cast<double>(item.rows() + item.cols()) * columns;
    const double elements = static_cast<double>(item.rows()) * item.cols();
    return factors * minimum_rate < elements ? columns : 0;
  }
};

inline low_rank::Shape shape_of(const sdk::Item& item, uint64_t rank) {
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
  FactorScratch(const sdk::Call& call, const low_rank::Shape& shape)
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
inline const float* factor_in_use(const sdk::Call& call, const sdk::Item& item,
                                  std::span<const float> state, uint64_t rank,
                                  kernels::RandomStream stream, const FactorScratch& scratch,
                                  kernels::CodePath path) {
  if (!kernels::all_zero(state.data(), state.size())) return state.data();
  kernels::draw_factor(scratch.factor(), state.size() / rank, rank,
                       {call.step->seed, item.c().gradient, stream}, scratch.kernels(), path);
  return scratch.factor();
}

// Makes the summed factor the next step's: orthonormal, dead columns drawn from this step's stream.
// A sum of zeros says nothing about where the gradient lies, so it leaves the state as it was.
inline void keep_factor(const sdk::Call& call, const sdk::Item& item, std::span<const float> sum,
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
inline std::span<const float> summed_entries(const sdk::PayloadReader& payload, uint64_t expected) {
  if (payload.absent()) return {};
  return payload.section<float>(0, expected);
}

inline void clear(std::span<float> values) {
  std::fill(values.begin(), values.end(), 0.0f);
}

// ---- Gradients that are not factored: as they are, in one summed round ----

inline void plan_dense(const sdk::Item& item, sdk::CompressorNeed& need) {
  need.round(PENSTOCK_COMBINE_SUM)
      .section(PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, item.numel(), true,
               PENSTOCK_SPLIT_BY_ELEMENT);
  // A part of a matrix could be judged otherwise than the whole, so only vectors may be cut.
  need.part_alignment = item.n_dims() < 2 ? 1 : 0;
  need.flags = PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR;
}

inline void encode_dense(const sdk::Item& item, const sdk::PayloadWriter& payload,
                         kernels::CodePath path, const kernels::Fold* fold = nullptr) {
  const std::span<float> work = item.work();
  if (fold != nullptr) kernels::compensate(*fold, work.size(), path);
  std::copy(work.begin(), work.end(), payload.room<float>(0).begin());
  if (item.keeps()) clear(work);  // all of it goes
}

inline void decode_dense(const sdk::Item& item, const sdk::PayloadReader& payload) {
  const std::span<const float> sum = summed_entries(payload, item.numel());
  const std::span<float> out = item.out();
  if (sum.empty())
    clear(out);
  else
    std::copy(sum.begin(), sum.end(), out.begin());
}

}  // namespace penstock::plugins
