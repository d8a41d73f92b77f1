// Threshold: sends every entry whose magnitude reaches a fixed value; a memory keeps the rest.
// Source: Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing",
// Interspeech 2015; Sahu et al., "Rethinking Gradient Sparsification as Total Error Minimization",
// NeurIPS 2021.
#include <methods/sparse.hpp>

namespace sdk = penstock::sdk;

namespace {

class Threshold : public sdk::SparseCompressor<Threshold> {
 public:
  static inline const sdk::OptionList options{
      sdk::real_option("threshold", 0.01)
          .above(0)
          .summary("entries of at least this magnitude are sent"),
      sdk::real_option("capacity", 0.1)
          .above(0)
          .at_most(1)
          .unit("fraction")
          .summary("largest share of the entries that is sent; the largest entries go first, the "
                   "rest waits"),
      value_type_option()};

  explicit Threshold(const sdk::Options& values)
      : SparseCompressor(values, "threshold"),
        threshold_(values.real("threshold")),
        capacity_(values.real("capacity")) {}

  static constexpr bool kFolds = true;
  static constexpr bool kInspects = true;
  static constexpr uint64_t kPartAlignment = 1;
  uint64_t most(uint64_t n) const { return sdk::kept_count(n, capacity_); }
  void choose(const auto& from) const {
    from.above(static_cast<float>(threshold_ * from.unit()), from.most);
  }

 private:
  double threshold_;  // in units of the true gradient
  double capacity_;
};

}  // namespace

PENSTOCK_COMPRESSOR(Threshold, "compressor/threshold", "0.1.0",
                    "sends every entry whose magnitude reaches a fixed value",
                    "Sahu et al., Rethinking Gradient Sparsification as Total Error Minimization, "
                    "NeurIPS 2021");
