// Threshold: sends every entry whose magnitude reaches a fixed value; a memory keeps the rest.
// Source: Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing",
// Interspeech 2015; Sahu et al., "Rethinking Gradient Sparsification as Total Error Minimization",
// NeurIPS 2021.
#include <methods/agreed.hpp>
#include <methods/steered_selection.hpp>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

class Threshold : public sdk::FoldingEncoder<Threshold> {
 public:
  static inline const sdk::OptionList options{
      sdk::real_option("threshold", 0.01)
          .above(0)
          .summary("entries of at least this magnitude are sent"),
      sdk::real_option("capacity", 0.1)
          .above(0)
          .at_most(1)
          .unit("fraction")
          .summary("most entries sent, as a share; the largest go, the rest waits"),
      sdk::SparseValues::option()};

  explicit Threshold(const sdk::Options& values)
      : threshold_(values.real("threshold")),
        capacity_(values.real("capacity")),
        values_(values),
        path_(penstock::sdk::agreed_code_path("select")) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
    traits.folds = sdk::kAllFolds;
  }

  // How many entries pass differs from rank to rank, so counts travel.
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    sdk::check_indexable(item, "threshold");
    values_.plan(need, most(item.numel()), false);
    need.part_alignment = 1;
    need.scratch_bytes = kernels::select_scratch_bytes(item.numel(), most(item.numel()));
  }

  void encode_item(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload,
                   const kernels::Fold* fold) const {
    const auto threshold = static_cast<float>(threshold_ * sdk::work_unit(call, item));
    kernels::SelectSegment target = sdk::entries_of(item, payload, fold);
    kernels::select_above(target, threshold, most(target.n),
                          {call.exec->scratch, call.exec->scratch_bytes}, path_);
    values_.write(item, payload, target.count);
  }

  void decode_add(const sdk::Call&, const sdk::Item& item, const sdk::PayloadReader& payload) {
    values_.add(payload, item.out());
  }

 private:
  uint64_t most(uint64_t n) const { return sdk::kept_band(n, capacity_).target; }

  double threshold_;  // in units of the true gradient
  double capacity_;
  sdk::SparseValues values_;
  kernels::CodePath path_;
};

}  // namespace

PENSTOCK_COMPRESSOR(Threshold, "compressor/threshold", "0.1.0",
                    "sends every entry whose magnitude reaches a fixed value",
                    "Sahu et al., Rethinking Gradient Sparsification as Total Error Minimization, "
                    "NeurIPS 2021");
