// Top-k: sends the entries of largest magnitude; a memory keeps the rest.
// Source: Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017.
#include <methods/sparse.hpp>

namespace sdk = penstock::sdk;

namespace {

class TopK : public sdk::SparseCompressor<TopK> {
 public:
  static inline const sdk::OptionList options{
      sdk::density_option(0.01, "share of the entries that is sent"), scope_option(),
      value_type_option()};

  explicit TopK(const sdk::Options& values)
      : SparseCompressor(values, "top-k", values.choice("scope") == "bucket"),
        density_(values.real("density")) {}

  static constexpr bool kFolds = true;
  static constexpr bool kInspects = true;
  static constexpr bool kAlwaysMost = true;
  static constexpr uint64_t kPartAlignment = 1;
  uint64_t most(uint64_t n) const { return sdk::kept_count(n, density_); }
  void choose(const auto& from) const { from.largest(from.most); }

 private:
  double density_;
};

}  // namespace

PENSTOCK_COMPRESSOR(
    TopK, "compressor/topk", "0.1.0", "sends the entries of largest magnitude",
    "Aji and Heafield, Sparse Communication for Distributed Gradient Descent, EMNLP 2017");
