// Chunks of a gradient that all ranks choose alike: the chunks whose norms, summed over ranks, are
// the largest. The values within the chosen chunks are summed too, and no index travels. A method
// says how norms are made:
//
//   plan:             plan_choice(cut, need), a round for the norms, plan_values(cut, need)
//   norms' decode:    writes the norms of all chunks to item.state(0), with equal bits on all ranks
//   values' encode:   encode(call, item, cut, payload)
//   values' decode:   decode(call, item, cut, payload)
//
// The choice is made anew from the norms in encode and in decode, so that any contents of the state
// give valid chunks.
#pragma once

#include <kernels/select.hpp>
#include <methods/agreed.hpp>
#include <methods/density.hpp>
#include <methods/device/chunks.hpp>
#include <methods/summed_values.hpp>

namespace penstock::sdk {

class AgreedChunks {
 public:
  static constexpr uint64_t kMostChunks = uint64_t{1} << 32;  // they are numbered with 32 bits

  // n entries in `chunks` chunks, the last of which may be shorter; `kept` chunks are sent.
  struct Cut {
    uint64_t n;
    uint64_t chunk;
    uint64_t chunks;
    uint64_t kept;

    bool whole() const { return kept == chunks; }
    // A short chunk that is chosen is filled up with zeros, because the count must not depend on
    // the choice.
    uint64_t capacity() const { return whole() ? n : kept * chunk; }
    uint64_t size(uint64_t index) const { return std::min(chunk, n - index * chunk); }
  };

  explicit AgreedChunks(const Options& options)
      : values_(options), path_(agreed_code_path("select")) {}

  const SummedValues& values() const { return values_; }

  // The state of the norms, and the scratch of encode and decode.
  void plan_choice(const Cut& cut, CompressorNeed& need) const {
    need.states.add("norms", cut.chunks, 1, PENSTOCK_STATE_REPLICATED);
    need.scratch_bytes =
        std::max(need.scratch_bytes,
                 chosen_bytes(cut) + kernels::select_scratch_bytes(cut.chunks, cut.kept));
    if constexpr (device::kHasKernels)
      need.scratch_bytes = std::max(
          need.scratch_bytes,
          device::chunk_scratch_bytes(cut.n, cut.chunk, cut.chunks, cut.kept, chosen_bytes(cut)));
  }
  void plan_values(const Cut& cut, CompressorNeed& need) const {
    need.round(PENSTOCK_COMBINE_SUM).section(PENSTOCK_ROLE_VALUES, values_.dtype(), cut.capacity());
  }

  // Writes the values of the chosen chunks to section 0, and takes them out of work if the item
  // keeps. The method sets kind and count.
  void encode(const Call& call, const Item& item, const Cut& cut,
              const PayloadWriter& payload) const {
    if constexpr (device::kHasKernels)
      if (call.on_device())
        return device::take_chunks(call, item, values_, chosen_on_device(call, item, cut), payload);
    const std::span<float> work = item.work();
    float values[SummedValues::kTile];
    uint64_t filled = 0;
    each_tile(call, item, cut, [&](uint64_t first, uint64_t position, uint64_t length) {
      float* const from = work.data() + position;
      std::copy_n(from, length, values);
      values_.pack(values, length, payload, first, call.step->world);
      filled = first + length;
      if (!item.keeps()) return;
      for (uint64_t i = 0; i < length; ++i) from[i] = SummedValues::left_over(from[i], values[i]);
    });
    std::fill_n(values, std::min(SummedValues::kTile, cut.capacity() - filled), 0.0f);
    for (; filled < cut.capacity(); filled += SummedValues::kTile)
      values_.pack(values, std::min(SummedValues::kTile, cut.capacity() - filled), payload, filled,
                   call.step->world);
  }

  // out = the sum at the chosen chunks, times call.result_scale(), and zeros elsewhere.
  void decode(const Call& call, const Item& item, const Cut& cut,
              const PayloadReader& payload) const {
    const std::span<float> out = item.out();
    if constexpr (device::kHasKernels)
      if (call.on_device()) {
        if (payload.absent() || cut.n == 0) return device::clear(call, item, out);
        const SummedValues::Sum sum(values_, payload, cut.capacity());
        return device::spread_chunks(call, item, values_, sum, chosen_on_device(call, item, cut));
      }
    std::fill(out.begin(), out.end(), 0.0f);
    if (payload.absent()) return;
    const SummedValues::Sum sum(values_, payload, cut.capacity());
    const float mean = call.result_scale();
    each_tile(call, item, cut, [&](uint64_t first, uint64_t position, uint64_t length) {
      float* const to = out.data() + position;
      sum.read(first, length, to);
      if (mean == 1) return;
      for (uint64_t i = 0; i < length; ++i) to[i] *= mean;
    });
  }

 private:
  static uint64_t chosen_bytes(const Cut& cut) { return whole_lines(cut.kept * sizeof(uint32_t)); }

  // The chosen chunks, ascending: the chunks of the largest norms; among equal norms the lower
  // chunk.
  std::span<const uint32_t> chosen(const Call& call, const Item& item, const Cut& cut) const {
    const std::span<uint32_t> indices = call.scratch<uint32_t>(cut.kept);
    if constexpr (device::kHasKernels)
      if (call.on_device()) {
        device::choose_chunks(call, item, item.state(0), indices, chosen_bytes(cut));
        return indices;
      }
    kernels::select_largest(item.state(0).data(), cut.chunks, cut.kept, indices.data(), nullptr,
                            select_scratch(call, chosen_bytes(cut)), path_);
    return indices;
  }

  device::ChosenChunks chosen_on_device(const Call& call, const Item& item, const Cut& cut) const {
    return {cut.n, cut.chunk, cut.kept, cut.whole() ? nullptr : chosen(call, item, cut).data()};
  }

  // Calls body(position in the payload, position in the gradient, length), tile by tile, without
  // the zeros that fill a chunk.
  template <typename Body>
  void each_tile(const Call& call, const Item& item, const Cut& cut, Body&& body) const {
    const auto tiles = [&](uint64_t from, uint64_t position, uint64_t length) {
      for (uint64_t done = 0; done < length; done += SummedValues::kTile)
        body(from + done, position + done, std::min(SummedValues::kTile, length - done));
    };
    if (cut.whole()) return tiles(0, 0, cut.n);
    const std::span<const uint32_t> indices = chosen(call, item, cut);
    for (uint64_t j = 0; j < cut.kept; ++j)
      tiles(j * cut.chunk, indices[j] * cut.chunk, cut.size(indices[j]));
  }

  SummedValues values_;
  kernels::CodePath path_;
};

}  // namespace penstock::sdk
