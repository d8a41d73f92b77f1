// Power-SGD with one factor per step: half of a step of subspace iteration, right and left in turn.
// Half of Power-SGD's bytes, and one round instead of two.
// Source: Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for
// Distributed Optimization", NeurIPS 2019, in the form of its authors' package. See README.md.
#include <methods/low_rank.hpp>

namespace sdk = penstock::sdk;

namespace {

class PowerSgdAlternating : public sdk::AlternatingFactors {
 public:
  static inline const sdk::OptionList options{
      sdk::integer_option("rank", 4)
          .at_least(1)
          .at_most(sdk::kMaxRank)
          .summary("columns of the factors; at most the smaller side of the matrix"),
      sdk::real_option("minimum_compression_rate", 2)
          .at_least(0)
          .summary("factor a gradient only where the factor of a step has, on average, this many "
                   "times fewer elements; 0: every gradient of two or more dimensions")};

  // A step sends one factor, half of both on average: hence half the rate for the two together.
  explicit PowerSgdAlternating(const sdk::Options& values)
      : AlternatingFactors({static_cast<uint64_t>(values.integer("rank")),
                            values.real("minimum_compression_rate") / 2},
                           First::kRight) {}
};

}  // namespace

PENSTOCK_COMPRESSOR(PowerSgdAlternating, "compressor/powersgd-alternating", "0.1.0",
                    "Power-SGD with one factor per step, right and left in turn; others dense",
                    "Vogels et al., PowerSGD: Practical Low-Rank Gradient Compression for "
                    "Distributed Optimization, NeurIPS 2019");
