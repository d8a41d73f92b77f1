// Top-k: sends the entries of largest magnitude; a memory keeps the rest.
// Source: Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017.
#include <kernels/payload.hpp>
#include <kernels/select.hpp>
#include <penstock/compressor.hpp>

#include <algorithm>
#include <cmath>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

class TopK {
 public:
  static inline const sdk::OptionList options{
      sdk::real_option("density", 0.01)
          .above(0)
          .at_most(1)
          .unit("fraction")
          .summary("share of the entries that is sent"),
      sdk::choice_option("scope", "item", {"item", "bucket"})
          .summary(
              "item: the largest of each gradient; bucket: as many, chosen among all gradients "
              "of a bucket together")};

  explicit TopK(const sdk::Options& values)
      : density_(values.real("density")),
        across_bucket_(values.choice("scope") == "bucket"),
        path_(kernels::select_code_path(sdk::code_path("select"))) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
  }

  // Ranks choose different entries, so payloads are gathered; adding them up would be wrong.
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    const uint64_t n = item.numel();
    if (n >= kMostEntries)
      throw sdk::invalid_argument("gradient '", item.name(), "' has ", n,
                                  " entries; top-k numbers them with 32 bits, expected fewer than ",
                                  kMostEntries,
                                  "; add a rule that sends it with another compressor");
    const uint64_t capacity = across_bucket_ ? n : kept(n);
    need.round(PENSTOCK_COMBINE_GATHER)
        .section(PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, capacity, !across_bucket_,
                 PENSTOCK_SPLIT_BY_INDEX)
        .section(PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, capacity, !across_bucket_,
                 PENSTOCK_SPLIT_BY_INDEX);
    need.scope = across_bucket_ ? PENSTOCK_SCOPE_BUCKET : PENSTOCK_SCOPE_ITEM;
    need.part_alignment = 1;
    need.scratch_bytes = kSegmentBytes + kernels::select_scratch_bytes(n, kept(n));
  }

  void encode(const sdk::Call& call, const sdk::Items& items, sdk::PayloadWriters& payloads) {
    if (across_bucket_) return encode_bucket(call, items, payloads);
    for (uint64_t i = 0; i < items.size(); ++i) {
      const std::span<float> work = items[i].work();
      sdk::PayloadWriter payload = payloads[i];
      const uint64_t k = kept(work.size());
      const auto select = items[i].keeps() ? kernels::take_largest : select_only;
      select(work.data(), work.size(), k, payload.room<uint32_t>(0).data(),
             payload.room<float>(1).data(), scratch(call, 0), path_);
      payload.sparse(k);
    }
  }

  // Duplicates of several ranks add up; the core divides by their number.
  void decode_add(const sdk::Call&, const sdk::Item& item, const sdk::PayloadReader& payload) {
    if (payload.kind() != PENSTOCK_PAYLOAD_SPARSE)
      throw payload.error("is of kind ", payload.kind(), ", expected sparse");
    sdk::add_payload(payload, item.out());
  }

 private:
  static constexpr uint64_t kMostEntries = uint64_t{1} << 32;
  static constexpr uint64_t kSegmentBytes =
      64;  // per item, and a multiple of the scratch's alignment
  static_assert(sizeof(kernels::SelectSegment) <= kSegmentBytes);

  // The small term keeps 0.01 of 700 at 7 although 0.01 is no binary fraction.
  uint64_t kept(uint64_t n) const {
    const double wanted = std::ceil(density_ * static_cast<double>(n) - 1e-9);
    return n == 0 ? 0 : std::clamp<uint64_t>(static_cast<uint64_t>(std::max(wanted, 1.0)), 1, n);
  }

  static kernels::SelectScratch scratch(const sdk::Call& call, uint64_t offset) {
    return {static_cast<char*>(call.exec->scratch) + offset, call.exec->scratch_bytes - offset};
  }

  static void select_only(float* work, uint64_t n, uint64_t k, uint32_t* indices, float* values,
                          kernels::SelectScratch scratch, kernels::CodePath path) noexcept {
    kernels::select_largest(work, n, k, indices, values, scratch, path);
  }

  void encode_bucket(const sdk::Call& call, const sdk::Items& items,
                     sdk::PayloadWriters& payloads) {
    if (items.size() == 0) return;
    const auto segments = call.scratch<kernels::SelectSegment>(items.size());
    uint64_t n = 0;
    uint64_t budget = 0;
    for (uint64_t i = 0; i < items.size(); ++i) {
      const std::span<float> work = items[i].work();
      n += work.size();
      budget += kept(work.size());
      segments[i] = {work.data(), work.size(), payloads[i].room<uint32_t>(0).data(),
                     payloads[i].room<float>(1).data(), 0};
    }
    if (n >= kMostEntries)
      throw sdk::invalid_argument("a bucket has ", n,
                                  " entries; with scope = \"bucket\" top-k numbers "
                                  "them with 32 bits, expected fewer than ",
                                  kMostEntries, "; make buckets smaller or set scope = \"item\"");
    kernels::select_largest(segments, budget, scratch(call, items.size() * kSegmentBytes), path_);
    for (uint64_t i = 0; i < items.size(); ++i) {
      sdk::PayloadWriter payload = payloads[i];
      payload.sparse(segments[i].count);
      if (!items[i].keeps()) continue;
      const std::span<float> work = items[i].work();
      for (uint64_t j = 0; j < segments[i].count; ++j) work[segments[i].indices[j]] = 0;
    }
  }

  double density_;
  bool across_bucket_;
  kernels::CodePath path_;
};

}  // namespace

PENSTOCK_COMPRESSOR(
    TopK, "compressor/topk", "0.1.0", "sends the entries of largest magnitude",
    "Aji and Heafield, Sparse Communication for Distributed Gradient Descent, EMNLP 2017");
