// Top-k: sends the entries of largest magnitude; a memory keeps the rest.
// Source: Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017.
#include <kernels/select.hpp>
#include <methods/agreed.hpp>
#include <methods/density.hpp>
#include <methods/folded.hpp>
#include <methods/sparse_values.hpp>

#include <algorithm>
#include <cmath>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

class TopK {
 public:
  static inline const sdk::OptionList options{
      sdk::density_option(0.01, "share of the entries that is sent"),
      sdk::choice_option("scope", "item", {"item", "bucket"})
          .summary(
              "item: the largest of each gradient; bucket: as many, chosen among all gradients "
              "of a bucket together"),
      sdk::SparseValues::option()};

  explicit TopK(const sdk::Options& values)
      : density_(values.real("density")),
        across_bucket_(values.choice("scope") == "bucket"),
        values_(values),
        path_(penstock::sdk::agreed_code_path("select")) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
    traits.folds = sdk::kAllFolds;
  }

  // Ranks choose different entries, so payloads are gathered; adding them up would be wrong.
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    const uint64_t n = item.numel();
    sdk::check_indexable(item, "top-k");
    const uint64_t capacity = across_bucket_ ? n : kept(n);
    values_.plan(need, capacity, !across_bucket_);
    need.scope = across_bucket_ ? PENSTOCK_SCOPE_BUCKET : PENSTOCK_SCOPE_ITEM;
    need.part_alignment = 1;
    need.scratch_bytes = kBytesPerItem + kernels::select_scratch_bytes(n, kept(n));
  }

  void encode(const sdk::Call& call, const sdk::Items& items, sdk::PayloadWriters& payloads) {
    encode_folded(call, items, payloads, nullptr);
  }

  void encode_folded(const sdk::Call& call, const sdk::Items& items, sdk::PayloadWriters& payloads,
                     const penstock_fold* const* folds) {
    if (across_bucket_) return encode_bucket(call, items, payloads, folds);
    sdk::encode_each(
        call, items, payloads, folds,
        [&](const sdk::Item& item, sdk::PayloadWriter& payload, const kernels::Fold* fold) {
          kernels::SelectSegment segment = segment_of(item, payload);
          segment.fold = fold;
          kernels::select_largest({&segment, 1}, kept(segment.n), scratch(call, 0), path_);
          values_.write(item, payload, segment.count);
        });
  }

  // Duplicates of several ranks add up; the core divides by their number.
  void decode_add(const sdk::Call&, const sdk::Item& item, const sdk::PayloadReader& payload) {
    values_.add(payload, item.out());
  }

 private:
  // Scratch of a call begins with a segment and a fold per item; both sizes are multiples of the
  // scratch's alignment.
  static constexpr uint64_t kFoldOffset = 64;
  static constexpr uint64_t kBytesPerItem = 128;
  static_assert(sizeof(kernels::SelectSegment) <= kFoldOffset &&
                sizeof(kernels::Fold) <= kBytesPerItem - kFoldOffset);

  uint64_t kept(uint64_t n) const { return sdk::kept_count(n, density_); }

  static kernels::SelectScratch scratch(const sdk::Call& call, uint64_t offset) {
    return {static_cast<char*>(call.exec->scratch) + offset, call.exec->scratch_bytes - offset};
  }

  static kernels::SelectSegment segment_of(const sdk::Item& item,
                                           const sdk::PayloadWriter& payload) {
    const std::span<float> work = item.work();
    return {work.data(), work.size(), payload.room<uint32_t>(0).data(), nullptr};
  }

  // Magnitudes of several gradients are compared as they stand.
  static void check_units(const sdk::Call& call, const sdk::Items& items) {
    for (uint64_t i = 1; i < items.size(); ++i)
      if (sdk::work_unit(call, items[i]) != sdk::work_unit(call, items[0]))
        throw sdk::invalid_argument(
            "top-k with scope = \"bucket\" compares gradients '", items[0].name(), "' and '",
            items[i].name(), "', of which one has a memory and the other carries a loss scale of ",
            call.step->grad_scale, "; give both the same memory, or set scope = \"item\"");
  }

  void encode_bucket(const sdk::Call& call, const sdk::Items& items, sdk::PayloadWriters& payloads,
                     const penstock_fold* const* folds) {
    if (items.size() == 0) return;
    uint64_t n = 0;
    uint64_t budget = 0;
    for (uint64_t i = 0; i < items.size(); ++i) {
      n += items[i].numel();
      budget += kept(items[i].numel());
    }
    if (n >= sdk::kMostIndexedEntries)
      throw sdk::invalid_argument("a bucket has ", n,
                                  " entries; with scope = \"bucket\" top-k numbers "
                                  "them with 32 bits, expected fewer than ",
                                  sdk::kMostIndexedEntries,
                                  "; make buckets smaller or set scope = \"item\"");
    check_units(call, items);
    const auto segments = call.scratch<kernels::SelectSegment>(items.size());
    const auto all_folds = call.scratch<kernels::Fold>(items.size(), items.size() * kFoldOffset);
    for (uint64_t i = 0; i < items.size(); ++i) {
      segments[i] = segment_of(items[i], payloads[i]);
      if (folds == nullptr || folds[i] == nullptr) continue;
      all_folds[i] = sdk::fold_of(*folds[i], items[i], call);
      segments[i].fold = &all_folds[i];
    }
    kernels::select_largest(segments, budget, scratch(call, items.size() * kBytesPerItem), path_);
    for (uint64_t i = 0; i < items.size(); ++i) {
      sdk::PayloadWriter payload = payloads[i];
      values_.write(items[i], payload, segments[i].count);
    }
  }

  double density_;
  bool across_bucket_;
  sdk::SparseValues values_;
  kernels::CodePath path_;
};

}  // namespace

PENSTOCK_COMPRESSOR(
    TopK, "compressor/topk", "0.1.0", "sends the entries of largest magnitude",
    "Aji and Heafield, Sparse Communication for Distributed Gradient Descent, EMNLP 2017");
