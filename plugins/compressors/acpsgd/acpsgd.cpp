// ACP-SGD: the two factors of Power-SGD alternate. Each step sends one factor, which is the
// gradient projected on the other factor; all ranks know that factor from the step before.
// Source: Zhang, Zhang, Shi, Chu, Li, "Evaluation and Optimization of Gradient Compression for
// Distributed Deep Learning", ICDCS 2023. See README.md for where this differs and why.
#include <methods/low_rank.hpp>

namespace sdk = penstock::sdk;

namespace {

class AcpSgd : public sdk::AlternatingFactors {
 public:
  static inline const sdk::OptionList options{
      rank_option(),
      rate_option(0,
                  "factor a gradient only where both factors together have this many times fewer "
                  "elements; 0: every gradient of two or more dimensions"),
      type_option()};

  explicit AcpSgd(const sdk::Options& values)
      : AlternatingFactors(values, values.real("minimum_compression_rate"), First::kLeft) {}
};

}  // namespace

PENSTOCK_COMPRESSOR(AcpSgd, "compressor/acpsgd", "0.1.0",
                    "one thin factor per matrix and step, left and right in alternation; other "
                    "gradients dense",
                    "Zhang et al., Evaluation and Optimization of Gradient Compression for "
                    "Distributed Deep Learning, ICDCS 2023");
