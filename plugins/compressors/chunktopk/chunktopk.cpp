// Chunked top-k: ranks agree on the chunks of a gradient whose L1 norms, summed over ranks, are
// largest, and sum the values of these chunks. It uses two all-reduces, so the bytes do not grow
// with the number of ranks.
// Source: proposed in the notes to the code of Lin et al., "Deep Gradient Compression", ICLR 2018.
#include <kernels/norm.hpp>
#include <methods/agreed_chunks.hpp>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

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
        chunks_(values),
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
    if (cut.chunks >= sdk::AgreedChunks::kMostChunks)
      throw sdk::invalid_argument("gradient '", item.name(), "' has ", cut.chunks,
                                  " chunks; they are numbered with 32 bits, expected fewer than ",
                                  sdk::AgreedChunks::kMostChunks, "; raise the option chunk");
    if (cut.whole()) {
      if (!chunks_.values().narrow()) need.flags = PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR;
    } else {
      // All ranks must choose equal chunks.
      need.round(PENSTOCK_COMBINE_SUM)
          .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, cut.chunks)
          .same_bits();
      chunks_.plan_choice(cut, need);
    }
    chunks_.plan_values(cut, need);
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
        sdk::SummedValues::Sum(chunks_.values(), payload, cut_of(items[i]).capacity());
    }
    for (uint64_t i = 0; i < items.size(); ++i) {
      if (decodes_norms(call, items[i]))
        decode_norms(call, items[i], payloads.at(i, 0));
      else
        chunks_.decode(call, items[i], cut_of(items[i]), payloads.at(i, 0));
    }
  }

 private:
  using Cut = sdk::AgreedChunks::Cut;

  Cut cut_of(const sdk::Item& item) const {
    const uint64_t chunks = (item.numel() + chunk_ - 1) / chunk_;
    return {item.numel(), chunk_, chunks, sdk::kept_count(chunks, density_)};
  }

  bool decodes_norms(const sdk::Call& call, const sdk::Item& item) const {
    return call.round == 0 && !cut_of(item).whole();
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

  void encode_values(const sdk::Call& call, const sdk::Item& item, const Cut& cut,
                     sdk::PayloadWriter& payload) const {
    const bool dense = cut.whole() && !chunks_.values().narrow();
    payload.kind(dense ? PENSTOCK_PAYLOAD_DENSE : PENSTOCK_PAYLOAD_CODED);
    payload.count(0, cut.capacity());
    chunks_.encode(call, item, cut, payload);
  }

  double density_;
  uint64_t chunk_;
  sdk::AgreedChunks chunks_;
  kernels::CodePath path_;
};

}  // namespace

PENSTOCK_COMPRESSOR(ChunkTopK, "compressor/chunktopk", "0.1.0",
                    "sums the chunks whose L1 norms over all ranks are largest",
                    "proposed in the code of Lin et al., Deep Gradient Compression, ICLR 2018");
