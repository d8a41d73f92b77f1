// The base of methods that send a code of a few bits for every element, and a few numbers for each
// block of elements.
#pragma once

#include <kernels/pack_bits.hpp>
#include <kernels/stream.hpp>
#include <methods/agreed.hpp>
#include <methods/device/codes.hpp>
#include <methods/draws.hpp>
#include <penstock/compressor.hpp>
#include <penstock/options.hpp>

#include <algorithm>
#include <span>

namespace penstock::sdk {

// The value of an option that must be a multiple of 64. Throws INVALID_ARGUMENT otherwise.
inline uint64_t multiple_of_64(const Options& values, std::string_view method,
                               std::string_view option) {
  const auto size = static_cast<uint64_t>(values.integer(option));
  if (size % 64 != 0)
    throw invalid_argument(method, ": ", option, " is ", size, ", expected a multiple of 64; try ",
                           (size + 63) / 64 * 64);
  return size;
}

// A method makes the codes tile by tile and the numbers block by block:
//   void measure(std::span<const float> block, double unit, Scale* scales) const;
//   void quantise(std::span<float> x, const Scale*, const Draws&, bool take_out, uint8_t* codes)
//       const;
//   void add(const uint8_t* codes, const Scale* scales, std::span<float> out) const;
//   void check(const PayloadReader&, uint64_t block, const Scale* scales) const;
// `measure` finds the numbers of a block; `check` checks the numbers of a peer. `quantise` takes
// the values of its codes out of x if `take_out` is set. The transport cannot add payloads, because
// each rank has its own scales. All payloads of an item are checked (INVALID_PAYLOAD) before any is
// added. All functions are [step]. Codes are packed without gaps, or one per byte if `Word` is
// uint8_t.
//
// On a device a method queues a few kernels over a whole item and returns the first error:
//   int32_t quantise_on_device(const device::Quantising<Scale>&, void* stream) const;
//   int32_t sum_on_device(std::span<const device::cuda::CodeSender>, const device::cuda::CodedSum&,
//       void* stream) const;
// Payloads are checked in host memory, by the functions above.
template <typename Method, typename Word = uint64_t, typename Scale = float>
class QuantisingCompressor {
 public:
  static constexpr uint64_t kScales = 1;                    // of a block
  static constexpr bool kOneBlock = false;                  // an item, even an empty one
  static constexpr uint32_t kSplit = PENSTOCK_SPLIT_NEVER;  // of codes
  static constexpr bool kChecksCodes = false;               // check_codes() may refuse codes
  static constexpr bool kScalesResult = true;
  // The number of elements in a tile, which fits the first-level cache. Tiles begin at multiples of
  // kTile in an item or a block, so that their packed codes begin with a word.
  static constexpr uint64_t kTile = 1024;
  static_assert(kernels::kStreamTile % kTile == 0);

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
    traits.device_types = device::kWhereKernelsAre;
  }

  void plan(const PlanCall&, const Item& item, CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_GATHER)
        .section(PENSTOCK_ROLE_BITS, dtype_of<Word>(), place(item.numel()), true, Method::kSplit)
        .section(PENSTOCK_ROLE_SCALES, dtype_of<Scale>(), n_scales(item.numel()), true,
                 Method::kOneBlock ? PENSTOCK_SPLIT_COPY : PENSTOCK_SPLIT_NEVER);
    need.part_alignment = Method::kOneBlock ? 64 : block_;
    if constexpr (device::kHasKernels)
      need.scratch_bytes = device::quantising_scratch(item.numel(), block_, kPacked).bytes;
  }

  void encode(const Call& call, const Item& item, PayloadWriter& payload) {
    const std::span<float> work = item.work();
    const std::span<Word> words = payload.room<Word>(kCodes);
    const std::span<Scale> scales = payload.room<Scale>(kNumbers);
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    payload.count(kCodes, words.size());
    payload.count(kNumbers, scales.size());
    if constexpr (device::kHasKernels)
      if (call.on_device()) return encode_on_device(call, item, words.data(), scales);
    const kernels::RandomKey key = rounding_key(call, item);
    const double unit = work_unit(call, item);
    const auto encode_blocks = [&](uint32_t, uint64_t first, uint64_t last) {
      for (uint64_t b = first; b < last; ++b) {
        const uint64_t begin = b * block_;
        const uint64_t end = block_ == 0 ? work.size() : std::min(work.size(), begin + block_);
        Scale* const of_block = scales.data() + b * Method::kScales;
        method().measure(work.subspan(begin, end - begin), unit, of_block);
        for (uint64_t at = begin; at < end; at += kTile)
          encode_tile(work.subspan(at, std::min(kTile, end - at)), of_block,
                      {key, item.c().first + at}, item.keeps(), words.data() + place(at));
      }
    };
    on_.workers.for_rows(scales.size() / Method::kScales, block_, 1, encode_blocks);
  }

  // out (+)= the values of each rank, in ascending order of ranks. A tile of the result is written
  // once for any number of ranks, and if the result is large, past the caches.
  void decode(const Call& call, const Items& items, const PayloadReaders& payloads) {
    if constexpr (device::kHasKernels)
      if (call.on_device()) return decode_on_device(call, items, payloads);
    const bool first = (call.flags & PENSTOCK_DECODE_FIRST) != 0;
    const float scale = call.result_scale();
    for (uint64_t i = 0; i < items.size(); ++i) {
      const std::span<float> out = items[i].out();
      for (uint64_t r = 0; r < payloads.n_ranks(); ++r)
        if (!payloads.at(i, r).absent()) check_payload(call, payloads.at(i, r), out.size());
      const auto decode_range = [&](float* target, uint64_t begin, uint64_t count) {
        for (uint64_t at = 0; at < count; at += kTile) {
          const std::span<float> tile(target + at, std::min(kTile, count - at));
          if (first) std::fill(tile.begin(), tile.end(), 0.0f);
          for (uint64_t r = 0; r < payloads.n_ranks(); ++r)
            if (!payloads.at(i, r).absent()) add_tile(payloads.at(i, r), begin + at, tile);
          if (scale != 1)
            for (float& value : tile) value *= scale;
        }
      };
      if (first)
        kernels::compute_streamed(out.data(), out.size(), decode_range);
      else
        decode_range(out.data(), 0, out.size());
    }
  }

  // A method may check a peer's codes. check_words gets the codes of all `numel` elements before
  // any are added. check_codes gets the codes from element `at` on, and may change them, before
  // they are added.
  void check_words(const PayloadReader&, std::span<const Word>, uint64_t) const {}
  void check_codes(const PayloadReader&, uint64_t, std::span<uint8_t>) const {}

 protected:
  // `bits` per code; `block` elements share scales (0: the whole item); the family of the method's
  // kernels.
  QuantisingCompressor(unsigned bits, uint64_t block, std::string_view family)
      : bits_(bits), block_(block), on_(agreed_execution(family)) {}

  unsigned bits() const { return bits_; }
  kernels::CodePath path() const { return on_.path; }

 private:
  enum Section : uint64_t { kCodes = 0, kNumbers = 1 };
  static constexpr bool kPacked = sizeof(Word) > 1;

  const Method& method() const { return static_cast<const Method&>(*this); }

  // The number of words for the codes of `at` elements; if a word begins with the code of element
  // `at`, also the index of that word.
  uint64_t place(uint64_t at) const { return kPacked ? kernels::packed_words(at, bits_) : at; }
  uint64_t n_scales(uint64_t numel) const {
    if (Method::kOneBlock) return Method::kScales;
    const uint64_t block = block_ == 0 ? std::max<uint64_t>(1, numel) : block_;
    return (numel + block - 1) / block * Method::kScales;
  }

  void encode_tile(std::span<float> x, const Scale* scales, const Draws& draws, bool take_out,
                   Word* words) const {
    if constexpr (kPacked) {
      uint8_t codes[kTile];
      method().quantise(x, scales, draws, take_out, codes);
      kernels::pack_bits(codes, x.size(), bits_, words);
    } else {
      method().quantise(x, scales, draws, take_out, words);
    }
  }

  void check_payload(const Call& call, const PayloadReader& payload, uint64_t numel) const {
    const auto words = payload.on_host<Word>(call, kCodes, place(numel));
    const auto scales = payload.on_host<Scale>(call, kNumbers, n_scales(numel));
    for (uint64_t b = 0; b < scales.size() / Method::kScales; ++b)
      method().check(payload, b, scales.data() + b * Method::kScales);
    method().check_words(payload, words, numel);
  }

  // Checks all codes of a payload for the device; the CPU checks each tile when it adds it.
  void check_all_codes(const Call& call, const PayloadReader& payload, uint64_t numel) const {
    const Word* const words = payload.on_host<Word>(call, kCodes).data();
    uint8_t codes[kTile];
    for (uint64_t at = 0; at < numel; at += kTile) {
      const uint64_t count = std::min(kTile, numel - at);
      kernels::unpack_bits(words + place(at), count, bits_, codes);
      method().check_codes(payload, at, {codes, count});
    }
  }

  void encode_on_device(const Call& call, const Item& item, Word* words,
                        std::span<Scale> scales) const {
    const std::span<float> work = item.work();
    if (scales.empty()) return;  // there are no elements
    const auto room = device::quantising_scratch(work.size(), block_, kPacked);
    char* const scratch = call.scratch<char>(room.bytes).data();
    device::Quantising<Scale> of{.work = work,
                                 .block = block_,
                                 .unit = work_unit(call, item),
                                 .take_out = item.keeps(),
                                 .key = rounding_key(call, item),
                                 .first = item.c().first,
                                 .scales = scales.data(),
                                 .codes = nullptr,
                                 .of_blocks = scratch + room.of_blocks,
                                 .workspace = device::workspace_of(call, room.workspace)};
    if constexpr (kPacked)
      of.codes = reinterpret_cast<uint8_t*>(scratch);
    else
      of.codes = words;
    device::queue_on_device(call, item, "quantise", [&](void* stream) {
      const int32_t error = method().quantise_on_device(of, stream);
      if constexpr (kPacked)
        if (error == 0) return device::cuda::pack_bits(of.codes, work.size(), bits_, words, stream);
      return error;
    });
  }

  void decode_on_device(const Call& call, const Items& items,
                        const PayloadReaders& payloads) const {
    for (uint64_t i = 0; i < items.size(); ++i) {
      for (uint64_t r = 0; r < payloads.n_ranks(); ++r) {
        if (payloads.at(i, r).absent()) continue;
        check_payload(call, payloads.at(i, r), items[i].numel());
        if constexpr (Method::kChecksCodes)
          check_all_codes(call, payloads.at(i, r), items[i].numel());
      }
      device::sum_payloads<device::cuda::CodeSender>(
          call, items[i], payloads, i, block_,
          [](const PayloadReader& payload) {
            return device::cuda::CodeSender{payload.section<Word>(kCodes).data(),
                                            payload.section<Scale>(kNumbers).data()};
          },
          [this](auto senders, const device::cuda::CodedSum& sum, void* stream) {
            return method().sum_on_device(senders, sum, stream);
          });
    }
  }

  void add_tile(const PayloadReader& payload, uint64_t at, std::span<float> tile) const {
    const Word* const words = payload.section<Word>(kCodes).data() + place(at);
    if constexpr (kPacked) {
      uint8_t codes[kTile];
      kernels::unpack_bits(words, tile.size(), bits_, codes);
      method().check_codes(payload, at, {codes, tile.size()});
      add_blocks(payload, at, codes, tile);
    } else {
      add_blocks(payload, at, words, tile);
    }
  }
  // Adds the tile in parts, one for each block that it overlaps.
  void add_blocks(const PayloadReader& payload, uint64_t at, const uint8_t* codes,
                  std::span<float> tile) const {
    const std::span<const Scale> scales = payload.section<Scale>(kNumbers);
    for (uint64_t begin = 0; begin < tile.size();) {
      const uint64_t block = block_ == 0 ? 0 : (at + begin) / block_;
      const uint64_t left = block_ == 0 ? tile.size() : (block + 1) * block_ - at;
      const uint64_t end = std::min<uint64_t>(tile.size(), left);
      method().add(codes + begin, scales.data() + block * Method::kScales,
                   tile.subspan(begin, end - begin));
      begin = end;
    }
  }

  unsigned bits_;
  uint64_t block_;
  kernels::Execution on_;
};

}  // namespace penstock::sdk
