// Half precision on the wire: values are rounded to IEEE binary16 and summed on the way.
#include <kernels/convert.hpp>
#include <penstock/compressor.hpp>

#include <algorithm>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

constexpr uint64_t kTile = 1024;
constexpr float kLargest = 65504;

class Fp16 {
 public:
  static inline const sdk::OptionList options{};
  explicit Fp16(const sdk::Options&) {}

  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_SUM)
        .section(PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT16, item.numel(), true,
                 PENSTOCK_SPLIT_BY_ELEMENT);
    need.part_alignment = 1;
  }

  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const std::span<float> work = item.work();
    const std::span<uint16_t> bits = payload.room<uint16_t>(0);
    if (item.keeps())
      take_out(work, bits, limit_among(call.step->world));
    else
      kernels::floats_to_halves(work.data(), bits.data(), work.size());
    payload.kind(PENSTOCK_PAYLOAD_DENSE);
    payload.count(0, work.size());
  }

  void decode(const sdk::Call&, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    for (uint64_t i = 0; i < items.size(); ++i) {
      const sdk::PayloadReader payload = payloads.at(i, 0);
      const std::span<float> out = items[i].out();
      if (payload.absent())
        std::fill(out.begin(), out.end(), 0.0f);
      else
        kernels::halves_to_floats(payload.section<uint16_t>(0, out.size()).data(), out.data(),
                                  out.size());
    }
  }

 private:
  // The largest value that all of `world` ranks may send without their sum overflowing.
  static float limit_among(uint32_t world) {
    const float limit = kLargest / static_cast<float>(world);
    const uint16_t nearest = kernels::float_to_half(limit);
    const bool above = kernels::half_to_float(nearest) > limit;
    return kernels::half_to_float(above ? static_cast<uint16_t>(nearest - 1) : nearest);
  }

  // work -= bits = rounded work. What exceeds `limit` stays in work too: then neither a value nor
  // the sum over ranks overflows, and nothing is lost to an infinity.
  static void take_out(std::span<float> work, std::span<uint16_t> bits, float limit) {
    float values[kTile];
    for (uint64_t begin = 0; begin < work.size(); begin += kTile) {
      const uint64_t size = std::min(kTile, work.size() - begin);
      float* tile = work.data() + begin;
      for (uint64_t i = 0; i < size; ++i) values[i] = std::clamp(tile[i], -limit, limit);
      kernels::floats_to_halves(values, bits.data() + begin, size);
      kernels::halves_to_floats(bits.data() + begin, values, size);
      for (uint64_t i = 0; i < size; ++i) tile[i] -= values[i];
    }
  }
};

}  // namespace

PENSTOCK_COMPRESSOR(Fp16, "compressor/fp16", "0.1.0",
                    "rounds values to half precision; ranks are summed on the way", "");
