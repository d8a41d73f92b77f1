// Chunked top-k: ranks agree on the chunks of a gradient whose L1 norms, summed over ranks, are
// largest, and sum the values of these chunks. It uses two all-reduces, so the bytes do not grow
// with the number of ranks.
// Source: proposed in the notes to the code of Lin et al., "Deep Gradient Compression", ICLR 2018.
#include <kernels/norm.hpp>
#include <kernels/select.hpp>
#include <methods/agreed.hpp>
#include <methods/density.hpp>
#include <methods/device/chunks.hpp>
#include <methods/summed_values.hpp>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

constexpr uint64_t kMostChunks = uint64_t{1} << 32;

// Over ranks i, where rank i compresses x_i:
//   round 0:  norms = sum_i (|x_i| summed over each chunk);  chosen = the k largest norms
//   round 1:  out = sum_i (x_i within the chosen chunks)
class ChunkTopK {
 public:
  static inline const sdk::OptionList options{
      sdk::density_option(0.01, "share of the chunks that is sent"),
      sdk::integer_option("chunk", 256)
          .at_least(1)
          .at_most(1 << 20)
          .unit("elements")
          .summary("length of a chunk: neighbouring entries that go or stay together"),
      sdk::SummedValues::option()};

  explicit ChunkTopK(const sdk::Options& values)
      : density_(values.real("density")),
        chunk_(static_cast<uint64_t>(values.integer("chunk"))),
        values_(values),
        path_(sdk::agreed_code_path("select")) {}

  static constexpr bool kScalesResult = true;

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
    traits.device_types = sdk::device::kWhereKernelsAre;
  }

  // If every chunk of a gradient is wanted, no norms are needed: the gradient is sent whole, in one
  // round.
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    const Cut cut = cut_of(item);
    if (cut.chunks >= kMostChunks)
      throw sdk::invalid_argument("gradient '", item.name(), "' has ", cut.chunks,
                                  " chunks; they are numbered with 32 bits, expected fewer than ",
                                  kMostChunks, "; raise the option chunk");
    if (cut.whole()) {
      if (values_.dtype() == PENSTOCK_FLOAT32)
        need.flags = PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR;
    } else {
      // All ranks must choose equal chunks.
      need.round(PENSTOCK_COMBINE_SUM)
          .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, cut.chunks)
          .same_bits();
      need.states.add("norms", cut.chunks, 1, PENSTOCK_STATE_REPLICATED);
      need.scratch_bytes = chosen_bytes(cut) + kernels::select_scratch_bytes(cut.chunks, cut.kept);
      if constexpr (sdk::device::kHasKernels)
        need.scratch_bytes = std::max(
            need.scratch_bytes, sdk::device::chunk_scratch_bytes(cut.n, cut.chunk, cut.chunks,
                                                                 cut.kept, chosen_bytes(cut)));
    }
    need.round(PENSTOCK_COMBINE_SUM).section(PENSTOCK_ROLE_VALUES, values_.dtype(), cut.capacity());
  }

  void encode(const sdk::Call& call, const sdk::Items& items, sdk::PayloadWriters& payloads) {
    for (uint64_t i = 0; i < items.size(); ++i) {
      sdk::PayloadWriter payload = payloads[i];
      const Cut cut = cut_of(items[i]);
      if (call.round == 0 && !cut.whole())
        encode_norms(call, items[i], cut, payload);
      else
        encode_values(call, items[i], cut, payload);
    }
  }

  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    for (uint64_t i = 0; i < items.size(); ++i) {  // all sizes before any state changes
      const sdk::PayloadReader payload = payloads.at(i, 0);
      if (payload.absent()) continue;
      if (decodes_norms(call, items[i]))
        payload.section<float>(0, cut_of(items[i]).chunks);
      else
        sdk::SummedValues::Sum(values_, payload, cut_of(items[i]).capacity());
    }
    for (uint64_t i = 0; i < items.size(); ++i) {
      if (decodes_norms(call, items[i]))
        decode_norms(call, items[i], payloads.at(i, 0));
      else
        decode_values(call, items[i], payloads.at(i, 0));
    }
  }

 private:
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

  Cut cut_of(const sdk::Item& item) const {
    const uint64_t chunks = (item.numel() + chunk_ - 1) / chunk_;
    return {item.numel(), chunk_, chunks, sdk::kept_count(chunks, density_)};
  }

  bool decodes_norms(const sdk::Call& call, const sdk::Item& item) const {
    return call.round == 0 && !cut_of(item).whole();
  }

  static uint64_t chosen_bytes(const Cut& cut) {
    return sdk::whole_lines(cut.kept * sizeof(uint32_t));
  }

  void encode_norms(const sdk::Call& call, const sdk::Item& item, const Cut& cut,
                    sdk::PayloadWriter& payload) const {
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    payload.count(0, cut.chunks);
    const std::span<float> work = item.work();
    const std::span<float> norms = payload.room<float>(0);
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device()) return sdk::device::chunk_norms(call, item, cut.chunk, norms.data());
    for (uint64_t c = 0; c < cut.chunks; ++c)
      norms[c] = static_cast<float>(
          kernels::sum_of_magnitudes(work.data() + c * cut.chunk, cut.size(c), path_));
  }

  // A sum to which no rank contributed contains no norms.
  static void decode_norms(const sdk::Call& call, const sdk::Item& item,
                           const sdk::PayloadReader& payload) {
    if (payload.absent() || (call.flags & PENSTOCK_DECODE_OWN) != 0) return;
    const std::span<float> state = item.state(0);
    const std::span<const float> sum = payload.section<float>(0, state.size());
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device()) return sdk::device::copy(call, item, sum, state);
    std::copy(sum.begin(), sum.end(), state.begin());
  }

  // The chosen chunks, ascending: the chunks of the largest norms; among equal norms the lower
  // chunk. They depend on the norms alone, so any contents of the state give valid chunks.
  std::span<const uint32_t> chosen(const sdk::Call& call, const sdk::Item& item,
                                   const Cut& cut) const {
    const std::span<uint32_t> indices = call.scratch<uint32_t>(cut.kept);
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device()) {
        sdk::device::choose_chunks(call, item, item.state(0), indices, chosen_bytes(cut));
        return indices;
      }
    kernels::select_largest(item.state(0).data(), cut.chunks, cut.kept, indices.data(), nullptr,
                            sdk::select_scratch(call, chosen_bytes(cut)), path_);
    return indices;
  }

  sdk::device::ChosenChunks chosen_on_device(const sdk::Call& call, const sdk::Item& item,
                                             const Cut& cut) const {
    return {cut.n, cut.chunk, cut.kept, cut.whole() ? nullptr : chosen(call, item, cut).data()};
  }

  // Calls body(position in the payload, position in the gradient, length), tile by tile, without
  // the zeros that fill a chunk.
  template <typename Body>
  void each_tile(const sdk::Call& call, const sdk::Item& item, const Cut& cut, Body&& body) const {
    const auto tiles = [&](uint64_t from, uint64_t position, uint64_t length) {
      for (uint64_t done = 0; done < length; done += sdk::SummedValues::kTile)
        body(from + done, position + done, std::min(sdk::SummedValues::kTile, length - done));
    };
    if (cut.whole()) return tiles(0, 0, cut.n);
    const std::span<const uint32_t> indices = chosen(call, item, cut);
    for (uint64_t j = 0; j < cut.kept; ++j)
      tiles(j * cut.chunk, indices[j] * cut.chunk, cut.size(indices[j]));
  }

  void encode_values(const sdk::Call& call, const sdk::Item& item, const Cut& cut,
                     sdk::PayloadWriter& payload) const {
    const bool dense = cut.whole() && values_.dtype() == PENSTOCK_FLOAT32;
    payload.kind(dense ? PENSTOCK_PAYLOAD_DENSE : PENSTOCK_PAYLOAD_CODED);
    payload.count(0, cut.capacity());
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device())
        return sdk::device::take_chunks(call, item, values_, chosen_on_device(call, item, cut),
                                        payload);
    const std::span<float> work = item.work();
    float values[sdk::SummedValues::kTile];
    uint64_t filled = 0;
    each_tile(call, item, cut, [&](uint64_t first, uint64_t position, uint64_t length) {
      float* const from = work.data() + position;
      std::copy_n(from, length, values);
      values_.pack(values, length, payload, first, call.step->world);
      filled = first + length;
      if (!item.keeps()) return;
      for (uint64_t i = 0; i < length; ++i)
        from[i] = sdk::SummedValues::left_over(from[i], values[i]);
    });
    std::fill_n(values, std::min(sdk::SummedValues::kTile, cut.capacity() - filled), 0.0f);
    for (; filled < cut.capacity(); filled += sdk::SummedValues::kTile)
      values_.pack(values, std::min(sdk::SummedValues::kTile, cut.capacity() - filled), payload,
                   filled, call.step->world);
  }

  void decode_values(const sdk::Call& call, const sdk::Item& item,
                     const sdk::PayloadReader& payload) const {
    const std::span<float> out = item.out();
    const Cut cut = cut_of(item);
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device()) {
        if (payload.absent() || cut.n == 0) return sdk::device::clear(call, item, out);
        const sdk::SummedValues::Sum sum(values_, payload, cut.capacity());
        return sdk::device::spread_chunks(call, item, values_, sum,
                                          chosen_on_device(call, item, cut));
      }
    std::fill(out.begin(), out.end(), 0.0f);
    if (payload.absent()) return;
    const sdk::SummedValues::Sum sum(values_, payload, cut.capacity());
    const float mean = call.result_scale();
    each_tile(call, item, cut, [&](uint64_t first, uint64_t position, uint64_t length) {
      float* const to = out.data() + position;
      sum.read(first, length, to);
      if (mean == 1) return;
      for (uint64_t i = 0; i < length; ++i) to[i] *= mean;
    });
  }

  double density_;
  uint64_t chunk_;
  sdk::SummedValues values_;
  kernels::CodePath path_;
};

}  // namespace

PENSTOCK_COMPRESSOR(ChunkTopK, "compressor/chunktopk", "0.1.0",
                    "sums the chunks whose L1 norms over all ranks are largest",
                    "proposed in the code of Lin et al., Deep Gradient Compression, ICLR 2018");
