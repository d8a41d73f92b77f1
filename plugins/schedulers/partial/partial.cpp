// Partial sparsification (ADTopk): small gradients stay dense if, by measured times, compression
// costs more than it saves. The dense and the sparse message of a bucket are sent together.
// Source: "ADTopk: All-Dimension Top-k Compression for High-Performance Data-Parallel DNN
// Training", HPDC 2024; rule and budget were read from its code.
#include <planning/choosing.hpp>

#include "choosing.hpp"

namespace sdk = penstock::sdk;
namespace planning = penstock::planning;

namespace {

using Gradients = std::vector<uint64_t>;

class Partial : public planning::ChoosingScheduler<Partial> {
 public:
  static constexpr const char* kName = "partial";
  static inline const sdk::OptionList options{
      dense_option(),
      sdk::integer_option("bucket_count", 16)
          .at_least(1)
          .unit("gradients")
          .summary("gradients in a bucket"),
      sdk::bool_option("within_budget", true)
          .summary(
              "the dense gradients of a bucket send at most as many bytes as the compressed bucket "
              "would"),
      profile_steps_option()};

  explicit Partial(const sdk::Options& values)
      : ChoosingScheduler(values),
        bucket_count_(static_cast<uint64_t>(values.integer("bucket_count"))),
        within_budget_(values.boolean("within_budget")) {}

  planning::Buckets probed_buckets(const penstock_model& model) const {
    return planning::buckets_in_order(model, bucket_count_);
  }

  planning::Plan choose(const penstock_model& model) const {
    std::vector<std::vector<planning::Piece>> pieces;
    std::vector<std::string> lines;
    for (const Gradients& bucket : probed_buckets(model)) {
      const partial::Choices best = partial::choose(model, bucket, dense(), within_budget_);
      lines.push_back(sdk::text("partial: bucket ", pieces.size(), ": ", best.n_dense, " of ",
                                bucket.size(),
                                " gradients dense; encode, exchange and decode take ", best.time_us,
                                " us, all compressed ", best.sparse_time_us, " us"));
      pieces.emplace_back();
      for (size_t i = 0; i < bucket.size(); ++i)
        pieces.back().push_back({bucket[i], 0, model.gradients[bucket[i]]->numel, best.of[i]});
    }
    planning::Plan plan = planning::in_every_phase(model, pieces);
    plan.explanation = std::move(lines);
    return plan;
  }

 private:
  uint64_t bucket_count_;
  bool within_budget_;
};

}  // namespace

PENSTOCK_SCHEDULER(
    Partial, "scheduler/partial", "0.1.0",
    "keeps small gradients dense where compressing them costs more than it saves; idea from "
    "the paper, thresholds and budget from its code, measured times ours",
    "ADTopk, HPDC 2024: partial sparsification and hybrid collective");
