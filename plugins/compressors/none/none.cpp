// No compression: the gradient travels unchanged and is summed on the way.
#include <methods/device/summed.hpp>
#include <penstock/compressor.hpp>

namespace sdk = penstock::sdk;

namespace {

class None {
 public:
  static inline const sdk::OptionList options{};
  explicit None(const sdk::Options&) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.dtypes = PENSTOCK_DTYPE_BIT(PENSTOCK_FLOAT32) | PENSTOCK_DTYPE_BIT(PENSTOCK_FLOAT16) |
                    PENSTOCK_DTYPE_BIT(PENSTOCK_BFLOAT16) | PENSTOCK_DTYPE_BIT(PENSTOCK_FLOAT64);
    traits.device_types = sdk::device::kWhereKernelsAre;
  }

  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_SUM)
        .section(PENSTOCK_ROLE_VALUES, item.c().work.dtype, item.numel(), true,
                 PENSTOCK_SPLIT_BY_ELEMENT);
    need.part_alignment = 1;
    need.flags = PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR;
  }

  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    void* const work = item.c().work.data;
    const uint64_t bytes = item.numel() * sdk::dtype_bytes(item.c().work.dtype);
    copy(call, item, work, payload.room<char>(0).data(), bytes);
    if (item.keeps()) clear(call, item, work, bytes);  // everything is sent
    payload.kind(PENSTOCK_PAYLOAD_DENSE);
    payload.count(0, item.numel());
  }

  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    for (uint64_t i = 0; i < items.size(); ++i) {
      const sdk::Item item = items[i];
      const sdk::PayloadReader payload = payloads.at(i, 0);
      void* const out = item.c().out.data;
      const uint64_t bytes = item.numel() * sdk::dtype_bytes(item.c().out.dtype);
      if (payload.absent())
        clear(call, item, out, bytes);
      else if (bytes != 0 && payload.c().sections[0]->count != item.numel())
        throw payload.error("has ", payload.c().sections[0]->count, " elements, expected ",
                            item.numel());
      else
        copy(call, item, payload.c().sections[0]->data, out, bytes);
    }
  }

 private:
  static void copy(const sdk::Call& call, const sdk::Item& item, const void* source, void* target,
                   uint64_t bytes) {
    if (bytes == 0) return;
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device()) return sdk::device::copy_bytes(call, item, source, target, bytes);
    std::memcpy(target, source, bytes);
  }
  static void clear(const sdk::Call& call, const sdk::Item& item, void* target, uint64_t bytes) {
    if (bytes == 0) return;
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device()) return sdk::device::clear_bytes(call, item, target, bytes);
    std::memset(target, 0, bytes);
  }
};

}  // namespace

PENSTOCK_COMPRESSOR(None, "compressor/none", "0.1.0",
                    "sends gradients uncompressed; payloads are summed on the way", "");
