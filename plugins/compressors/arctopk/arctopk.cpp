// ARC-Top-K: ranks agree on the rows of a matrix whose random projections, summed over ranks, are
// the longest, and sum these rows. It uses two all-reduces, so the bytes do not grow with the
// number of ranks, and no index travels.
// Source: Chen, Ma, Li, He, Dong, Yuan, "An All-Reduce Compatible Top-K Compressor for
// Communication-Efficient Distributed Learning", arXiv:2510.26709, 2025. See README.md for where
// this differs and why.
#include <kernels/low_rank.hpp>
#include <kernels/random_normal.hpp>
#include <methods/agreed_chunks.hpp>
#include <methods/summed.hpp>

#include <cmath>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

constexpr int64_t kMostColumns = 256;  // of the projection; norm_of reads whole rows from one tile
static_assert(kMostColumns <= sdk::SummedValues::kTile);

// Over ranks i, where rank i compresses G_i[rows x cols]. V[cols x rank] has normal numbers that
// are equal on all ranks and new in every step:
//   round 0:  P = sum_i G_i V;  chosen = the k rows of P with the largest norms
//   round 1:  out = sum_i (G_i within the chosen rows)
class ArcTopK : public sdk::SummedCompressor<ArcTopK> {
 public:
  static inline const sdk::OptionList options{
      sdk::density_option(0.08, "share of the rows of a matrix that is sent"),
      sdk::integer_option("rank", 4)
          .at_least(1)
          .at_most(kMostColumns)
          .summary("columns of the random projection, by which ranks choose rows"),
      sdk::SummedValues::option()};

  explicit ArcTopK(const sdk::Options& values)
      : SummedCompressor("low_rank"),
        density_(values.real("density")),
        rank_(static_cast<uint64_t>(values.integer("rank"))),
        rows_(values) {}

  static constexpr bool kFolds = true;

  void describe(penstock_compressor_traits& traits) const {
    SummedCompressor::describe(traits);
    traits.flags |= PENSTOCK_COMPRESSOR_RANDOM;
  }

  // A matrix is coded where that sends fewer numbers than the matrix has.
  bool coded(const sdk::Item& item) const {
    return item.n_dims() >= 2 && item.rows() * rank_ + cut_of(item).capacity() < item.numel();
  }

  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    if (!coded(item)) return plan_dense(item, need);
    const Cut cut = cut_of(item);
    if (cut.chunks >= sdk::AgreedChunks::kMostChunks)
      throw sdk::invalid_argument("gradient '", item.name(), "' has ", cut.chunks,
                                  " rows; ARC-Top-K numbers them with 32 ",
                                  "bits, expected fewer than ", sdk::AgreedChunks::kMostChunks,
                                  "; add a rule that sends it with another compressor");
    // All ranks must choose equal rows.
    need.round(PENSTOCK_COMBINE_SUM)
        .section(PENSTOCK_ROLE_FACTOR, values().dtype(), entries(0, 0, item))
        .same_bits();
    need.scratch_bytes = Scratch(*this, item).bytes;
    rows_.plan_choice(cut, need);
    rows_.plan_values(cut, need);
  }

  uint64_t entries(uint32_t, uint32_t round, const sdk::Item& item) const {
    return round == 0 ? item.rows() * rank_ : cut_of(item).capacity();
  }

  void encode_payload(const sdk::Call& call, const sdk::Item& item,
                      const sdk::PayloadWriter& payload, const kernels::Fold* fold) const {
    if (call.round == 0)
      encode_projection(call, item, payload, fold);
    else
      rows_.encode(call, item, cut_of(item), payload);
  }

  void decode_payload(const sdk::Call& call, const sdk::Item& item,
                      const sdk::PayloadReader& payload) const {
    if (call.round == 0)
      decode_projection(call, item, payload);
    else
      rows_.decode(call, item, cut_of(item), payload);
  }

  void check_sum(const sdk::PayloadReader& payload, uint64_t expected) const {
    (void)sdk::SummedValues::Sum(values(), payload, expected);
  }

 private:
  using Cut = sdk::AgreedChunks::Cut;

  // The scratch of encode in round 0: V, then P in float32 if it travels in 16 bits, then the
  // scratch of the kernels.
  struct Scratch {
    Scratch(const ArcTopK& method, const sdk::Item& item)
        : shape{item.rows(), item.cols(), method.rank_},
          p_at(sdk::whole_lines(shape.cols * shape.rank * sizeof(float))),
          kernels_at(p_at + (method.values().narrow()
                                 ? sdk::whole_lines(shape.rows * shape.rank * sizeof(float))
                                 : 0)),
          bytes(kernels_at + kernels::low_rank::scratch_floats(shape) * sizeof(float)) {}

    const kernels::low_rank::Shape shape;
    const uint64_t p_at, kernels_at, bytes;
  };

  // The rows of a matrix are chunks of `cols` elements.
  Cut cut_of(const sdk::Item& item) const {
    return {item.numel(), item.cols(), item.rows(), sdk::kept_count(item.rows(), density_)};
  }
  const sdk::SummedValues& values() const { return rows_.values(); }

  // P_i = G_i V. The paper divides V by the square root of its columns, which changes no choice.
  void encode_projection(const sdk::Call& call, const sdk::Item& item,
                         const sdk::PayloadWriter& payload, const kernels::Fold* fold) const {
    const Scratch scratch(*this, item);
    const uint64_t drawn = scratch.shape.cols * rank_, sent = scratch.shape.rows * rank_;
    float* const v = call.scratch<float>(drawn).data();
    kernels::random_normal(call.step->seed, item.c().gradient,
                           kernels::stream_of_step(kernels::kStreamRightFactor, call.step->index),
                           0, drawn, v);
    float* const p = values().narrow() ? call.scratch<float>(sent, scratch.p_at).data()
                                       : payload.room<float>(0).data();
    float* const of_kernels = call.scratch<float>(0, scratch.kernels_at).data();
    kernels::low_rank::multiply(scratch.shape, item.work().data(), v, p, of_kernels, on(), fold);
    if (values().narrow()) values().pack(p, sent, payload, 0, call.step->world);
  }

  // Keeps the norms of the rows of P = sum_i P_i. A sum to which no rank contributed has no rows.
  void decode_projection(const sdk::Call& call, const sdk::Item& item,
                         const sdk::PayloadReader& payload) const {
    if ((call.flags & PENSTOCK_DECODE_OWN) != 0)  // round 0 subtracted nothing from work
      return sdk::clear(item.out());
    if (payload.absent()) return;
    const sdk::SummedValues::Sum sum(values(), payload, entries(0, 0, item));
    const std::span<float> norms = item.state(0);
    const uint64_t most = sdk::SummedValues::kTile / rank_;
    float p[sdk::SummedValues::kTile];
    for (uint64_t first = 0; first < norms.size(); first += most) {
      const uint64_t count = std::min(most, norms.size() - first);
      sum.read(first * rank_, count * rank_, p);
      for (uint64_t row = 0; row < count; ++row) norms[first + row] = norm_of(p + row * rank_);
    }
  }

  // In double, where no square of a float overflows.
  float norm_of(const float* row) const {
    double square = 0;
    for (uint64_t j = 0; j < rank_; ++j) square += double{row[j]} * double{row[j]};
    return static_cast<float>(std::sqrt(square));
  }

  double density_;
  uint64_t rank_;
  sdk::AgreedChunks rows_;
};

}  // namespace

PENSTOCK_COMPRESSOR(ArcTopK, "compressor/arctopk", "0.1.0",
                    "the rows of a matrix that are longest over all ranks, two sums, no indices",
                    "Chen et al., An All-Reduce Compatible Top-K Compressor for "
                    "Communication-Efficient Distributed Learning, arXiv:2510.26709, 2025");
