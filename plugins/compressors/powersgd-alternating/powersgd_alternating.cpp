// Power-SGD with one factor per step: half a step of subspace iteration, for the right and the left
// factor in alternation. It sends half of Power-SGD's bytes, in one round instead of two.
// Source: Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for
// Distributed Optimization", NeurIPS 2019, in the form of its authors' package. See README.md.
#include <methods/low_rank.hpp>

namespace sdk = penstock::sdk;

namespace {

class PowerSgdAlternating : public sdk::AlternatingFactors {
 public:
  static inline const sdk::OptionList options{
      rank_option(),
      rate_option(2,
                  "factor a gradient only where the factor of a step has, on average, this many "
                  "times fewer elements; 0: every gradient of two or more dimensions"),
      type_option()};

  // A step sends one factor, on average half of both, so the rate is half the rate of the two
  // factors together.
  explicit PowerSgdAlternating(const sdk::Options& values)
      : AlternatingFactors(values, values.real("minimum_compression_rate") / 2, First::kRight) {}
};

}  // namespace

PENSTOCK_COMPRESSOR(PowerSgdAlternating, "compressor/powersgd-alternating", "0.1.0",
                    "Power-SGD with one factor per step, right and left in alternation; other "
                    "gradients dense",
                    "Vogels et al., PowerSGD: Practical Low-Rank Gradient Compression for "
                    "Distributed Optimization, NeurIPS 2019");
