// A compressor with its own kernel, for a test of how penstock_add_plugin compiles it. It sends a
// gradient twice, as payloads on a device. The test inspects only its code, and no host here runs
// it.
#include "doubled.hpp"

#include <penstock/compressor.hpp>

namespace sdk = penstock::sdk;

namespace {

class Doubled {
 public:
  static inline const sdk::OptionList options{};
  explicit Doubled(const sdk::Options&) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.device_types = uint64_t{1} << PENSTOCK_DEVICE_CUDA;
  }
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_SUM).section(PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, item.numel());
  }
  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const std::span<float> values = payload.room<float>(0);
    queue_scale_and_add(values.data(), item.work().data(), 2, values.size(), call.exec->stream);
    payload.kind(PENSTOCK_PAYLOAD_DENSE);
    payload.count(0, values.size());
  }
  void decode_add(const sdk::Call& call, const sdk::Item& item, const sdk::PayloadReader& payload) {
    const std::span<const float> values = payload.section<float>(0, item.numel());
    queue_scale_and_add(item.out().data(), values.data(), 1, values.size(), call.exec->stream);
  }
};

}  // namespace

PENSTOCK_COMPRESSOR(Doubled, "compressor/doubled", "0.1.0", "a kernel that could be fused", "");
