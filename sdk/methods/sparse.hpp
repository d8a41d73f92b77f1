// The base of methods that send some entries of a gradient as (index, value) and leave the other
// entries to the memory. It implements everything but the choice of the entries. A method states
// how many entries it sends at most, and chooses them:
//
//   class Method : public sdk::SparseCompressor<Method> {
//    public:
//     static inline const sdk::OptionList options{..., value_type_option()};
//     explicit Method(const sdk::Options& values) : SparseCompressor(values, "its name"), ... {}
//     uint64_t most(uint64_t n) const;              // at most so many of n entries are sent
//     void choose(const sdk::Choice& from) const;   // sets indices and counts of from.segments
//   };
//
// A method that only calls largest, above and similar functions, or that does the segment's fold
// with its first sweep (first_statistics), may also declare
//     static constexpr bool kFolds = true;          // from.only().x may be work before the fold
// and then saves a sweep (fold.h). Without kFolds, x always holds the compensated work.
// `penstock check` compares both variants.
//
// If the device kernels are linked (device/), the method also works on a device, provided that
// choose accepts a device::Choice: as a second function, or as `choose(const auto& from)`
// (device/choice.hpp). The latter form chooses from many gradients at once (device/choices.hpp).
// A method overrides a default by hiding it: describe, plan, encode_item, decode. `most` is [any];
// `choose` is [step] and must not allocate. Errors are thrown: INVALID_ARGUMENT for more entries
// than 32 bits can number, and for gradients of a bucket in different units.
#pragma once

#include <kernels/on_code_path.hpp>
#include <kernels/stream.hpp>
#include <methods/agreed.hpp>
#include <methods/density.hpp>
#include <methods/device/choices.hpp>
#include <methods/folded.hpp>
#include <methods/sparse_values.hpp>

#include <cstring>

namespace penstock::sdk {

// The entries among which a method chooses: one gradient, or with scope = "bucket" all gradients of
// a bucket. The first sweep over a segment must apply the segment's fold to work.
struct Choice {
  const Call& call;
  const Item& item;  // the first item
  std::span<kernels::SelectSegment> segments;
  uint64_t most;  // largest number of entries to send, of all segments together
  kernels::SelectScratch scratch;
  kernels::CodePath path;

  kernels::SelectSegment& only() const { return segments[0]; }
  // The unit of work, divided by the unit of the true gradient.
  double unit() const { return work_unit(call, item); }

  // Chooses the k largest entries; between equal magnitudes the entry of the earlier gradient, then
  // of the lower index.
  void largest(uint64_t k) const { kernels::select_largest(segments, k, scratch, path); }
  // Chooses the entries of the only segment that reach the threshold; if more than `capacity` do,
  // the `capacity` largest. Zeros are never chosen.
  void above(float threshold, uint64_t capacity) const {
    kernels::select_above(only(), threshold, capacity, scratch, path);
  }
  // The smallest chosen magnitude of the only segment; at least one entry must be chosen.
  float smallest() const {
    const kernels::SelectSegment& from = only();
    float smallest = std::fabs(from.x[from.indices[0]]);
    for (uint64_t j = 1; j < from.count; ++j)
      smallest = std::min(smallest, std::fabs(from.x[from.indices[j]]));
    return smallest;
  }
};

// The entries of an item's work, and room in section 0 of its payload for the chosen indices.
inline kernels::SelectSegment entries_of(const Item& item, const PayloadWriter& payload,
                                         const kernels::Fold* fold) {
  kernels::SelectSegment target{item.work().data(), item.numel(), payload.room<uint32_t>(0).data(),
                                nullptr};
  target.fold = fold;
  return target;
}

template <typename Method>
class SparseCompressor : public FoldingEncoder<Method> {
 public:
  static constexpr bool kAlwaysMost = false;     // the number of entries varies: counts are sent
  static constexpr uint64_t kPartAlignment = 0;  // a gradient must not be cut
  static constexpr bool kFolds = false;          // the memory compensates before choose runs
  static constexpr bool kScalesResult = true;

  static Option value_type_option() { return SparseValues::option(); }
  static Option scope_option() {
    return choice_option("scope", "item", {"item", "bucket"})
        .summary(
            "item: the largest entries of each gradient; bucket: an equal number of entries, "
            "chosen among all gradients of a bucket together");
  }

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = values_.memory_flags();
    traits.folds = Method::kFolds ? kAllFolds : 0;
    if (works_on_devices()) traits.device_types = device::kWhereKernelsAre;
  }

  // Ranks choose different entries, so payloads are gathered; adding them up would be wrong.
  void plan(const PlanCall& call, const Item& item, CompressorNeed& need) {
    check_indexable(item, name_);
    const uint64_t n = item.numel(), most = method().most(n);
    values_.plan(item, need, most, across_bucket_ ? n : most,
                 Method::kAlwaysMost && !across_bucket_);
    need.scope = across_bucket_ ? PENSTOCK_SCOPE_BUCKET : PENSTOCK_SCOPE_ITEM;
    need.part_alignment = Method::kPartAlignment;
    need.scratch_bytes =
        std::max((across_bucket_ ? kBytesPerItem : 0) + kernels::select_scratch_bytes(n, most),
                 SparseValues::sender_bytes(call.world));
    if constexpr (device::kHasKernels)
      if (works_on_devices())
        need.scratch_bytes = std::max(need.scratch_bytes, device::Choice::scratch_bytes(n, most));
  }

  void encode_folded(const Call& call, const Items& items, PayloadWriters& payloads,
                     const penstock_fold* const* folds) {
    if constexpr (device::kHasKernels && chooses_later())
      if (call.on_device()) return encode_together(call, items, payloads, folds);
    if (!across_bucket_)
      FoldingEncoder<Method>::encode_folded(call, items, payloads, folds);
    else if (items.size() > 0)
      encode_bucket(call, items, payloads, folds);
  }

  void encode_item(const Call& call, const Item& item, PayloadWriter& payload,
                   const kernels::Fold* fold) const {
    if constexpr (device::kHasKernels && has_device_choice())
      if (call.on_device())
        return method().choose(
            device::Choice(call, item, payload, method().most(item.numel()), fold));
    kernels::SelectSegment target = entries_of(item, payload, fold);
    method().choose(
        Choice{call, item, {&target, 1}, method().most(target.n), select_scratch(call), path_});
    // Values that are not finite have no scale, and the payload will be absent.
    if (found_finite(fold)) SparseValues::write(item, payload, target.count);
  }

  // out (+)= the entries of all ranks, in ascending order of ranks; entries with an equal index are
  // added. A tile of the result is written once; if the call asks for the mean, it is the mean.
  void decode(const Call& call, const Items& items, const PayloadReaders& payloads) {
    if constexpr (device::kHasKernels && has_device_choice())
      if (call.on_device()) return decode_on_device(call, items, payloads);
    uint64_t together = 0;
    for (uint64_t i = 0; i < items.size(); ++i) together += items[i].numel();
    const std::span<SparseValues::Sender> senders =
        call.scratch<SparseValues::Sender>(payloads.n_ranks());
    for (uint64_t i = 0; i < items.size(); ++i) {
      uint64_t n = 0;
      for (uint64_t r = 0; r < payloads.n_ranks(); ++r)
        if (!payloads.at(i, r).absent())
          senders[n++] = SparseValues::checked(call, payloads.at(i, r), items[i].numel());
      sum(call, items[i].out(), senders.first(n), together);
    }
  }

 protected:
  SparseCompressor(const Options& values, std::string_view name, bool across_bucket = false)
      : name_(name),
        across_bucket_(across_bucket),
        values_(values),
        path_(agreed_code_path("select")) {}

  std::string_view name() const { return name_; }
  const SparseValues& values() const { return values_; }
  // With scope = "bucket" the choice is among several arrays, which no device kernel supports.
  bool works_on_devices() const {
    return has_device_choice() && !across_bucket_ && values_.work_on_devices();
  }
  kernels::CodePath path() const { return path_; }

 private:
  // Scratch of a call over a bucket begins with a segment and a fold per item; both sizes are
  // multiples of the scratch's alignment.
  static constexpr uint64_t kFoldOffset = 64;
  static constexpr uint64_t kBytesPerItem = 128;
  static_assert(sizeof(kernels::SelectSegment) <= kFoldOffset &&
                sizeof(kernels::Fold) <= kBytesPerItem - kFoldOffset);

  const Method& method() const { return static_cast<const Method&>(*this); }

  // Whether Method chooses on a device. A function, because Method must be complete.
  static constexpr bool has_device_choice() {
    return requires(const Method& some, const device::Choice& from) {
      some.choose(from);
    };
  }

  // Whether its choice may be queued together with the choices from other gradients.
  static constexpr bool chooses_later() {
    return requires(const Method& some, const device::OneOfMany& from) {
      some.choose(from);
    };
  }

  void encode_together(const Call& call, const Items& items, PayloadWriters& payloads,
                       const penstock_fold* const* folds) const {
    device::Choices choices(call);
    encode_each(call, items, payloads, folds,
                [&](const Item& item, PayloadWriter& payload, const kernels::Fold* fold) {
                  method().choose(
                      device::OneOfMany(choices, item, payload, method().most(item.numel()), fold));
                });
    choices.queue();
  }

  void decode_on_device(const Call& call, const Items& items,
                        const PayloadReaders& payloads) const {
    device::SparseSumming sums(call, kernels::ValueType::kFloat32);
    device::add_up(call, items, payloads, sums, [&](const PayloadReader& payload, const Item&) {
      sums.of(SparseValues::type_in(payload.c()));
      return device::sender_of(call, payload);
    });
  }

  void sum(const Call& call, std::span<float> out, std::span<SparseValues::Sender> senders,
           uint64_t together) const {
    const bool first = (call.flags & PENSTOCK_DECODE_FIRST) != 0;
    const float scale = call.result_scale();
    const auto sum_range = [&](float* target, uint64_t begin, uint64_t count) {
      for (uint64_t at = 0; at < count; at += kernels::kStreamTile) {
        const std::span<float> tile(target + at, std::min(kernels::kStreamTile, count - at));
        if (first) std::memset(tile.data(), 0, tile.size_bytes());
        for (SparseValues::Sender& sender : senders) SparseValues::add(sender, begin + at, tile);
        if (scale != 1)
          kernels::on_code_path(path_, [=]() PENSTOCK_LOOP {
            for (float& value : tile) value *= scale;
          });
      }
    };
    if (first)
      kernels::compute_streamed(out.data(), out.size(), sum_range, together);
    else
      sum_range(out.data(), 0, out.size());
  }

  void encode_bucket(const Call& call, const Items& items, PayloadWriters& payloads,
                     const penstock_fold* const* folds) const {
    check_bucket(call, items);
    const auto segments = call.scratch<kernels::SelectSegment>(items.size());
    const auto all_folds = call.scratch<kernels::Fold>(items.size(), items.size() * kFoldOffset);
    uint64_t most = 0;
    bool all_finite = true;
    for (uint64_t i = 0; i < items.size(); ++i) {
      most += method().most(items[i].numel());
      segments[i] = entries_of(items[i], payloads[i], nullptr);
      if (folds == nullptr || folds[i] == nullptr) continue;
      all_folds[i] = fold_of(*folds[i], items[i], call);
      all_folds[i].is_finite = &all_finite;
      segments[i].fold = &all_folds[i];
    }
    method().choose(Choice{call, items[0], segments, most,
                           select_scratch(call, items.size() * kBytesPerItem), path_});
    for (uint64_t i = 0; i < items.size(); ++i) {
      PayloadWriter payload = payloads[i];
      if (all_finite)
        SparseValues::write(items[i], payload, segments[i].count);
      else
        payload.absent();
    }
  }

  // The entries of all gradients share one numbering, and their magnitudes are compared without
  // conversion; so the total must fit 32 bits and all gradients must have one unit.
  void check_bucket(const Call& call, const Items& items) const {
    uint64_t n = 0;
    for (uint64_t i = 0; i < items.size(); ++i) n += items[i].numel();
    if (n >= kMostIndexedEntries)
      throw invalid_argument("a bucket has ", n, " entries; with scope = \"bucket\" ", name_,
                             " numbers them with 32 bits, expected fewer than ",
                             kMostIndexedEntries, "; make buckets smaller or set scope = \"item\"");
    for (uint64_t i = 1; i < items.size(); ++i)
      if (work_unit(call, items[i]) != work_unit(call, items[0]))
        throw invalid_argument(
            name_, " with scope = \"bucket\" compares gradients '", items[0].name(), "' and '",
            items[i].name(),
            "', but only one gradient has a memory, and the other gradient has a loss scale of ",
            call.step->grad_scale, "; give both gradients one memory, or set scope = \"item\"");
  }

  std::string_view name_;
  bool across_bucket_;
  SparseValues values_;
  kernels::CodePath path_;
};

}  // namespace penstock::sdk
