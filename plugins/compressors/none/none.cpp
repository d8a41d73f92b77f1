// No compression: the gradient travels as it is and is summed on the way.
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
  }

  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_SUM)
        .section(PENSTOCK_ROLE_VALUES, item.c().work.dtype, item.numel(), true,
                 PENSTOCK_SPLIT_BY_ELEMENT);
    need.part_alignment = 1;
    need.flags = PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR;
  }

  void encode(const sdk::Call&, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const uint64_t bytes = item.numel() * sdk::dtype_bytes(item.c().work.dtype);
    if (bytes != 0) std::memcpy(payload.room<char>(0).data(), item.c().work.data, bytes);
    if (bytes != 0 && item.keeps()) std::memset(item.c().work.data, 0, bytes);  // all of it goes
    payload.kind(PENSTOCK_PAYLOAD_DENSE);
    payload.count(0, item.numel());
  }

  void decode(const sdk::Call&, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    for (uint64_t i = 0; i < items.size(); ++i) {
      const sdk::PayloadReader payload = payloads.at(i, 0);
      const uint64_t bytes = items[i].numel() * sdk::dtype_bytes(items[i].c().out.dtype);
      if (bytes == 0) continue;
      if (payload.absent()) {
        std::memset(items[i].c().out.data, 0, bytes);
      } else if (payload.c().sections[0]->count != items[i].numel()) {
        throw payload.error("has ", payload.c().sections[0]->count, " elements, expected ",
                            items[i].numel());
      } else {
        std::memcpy(items[i].c().out.data, payload.c().sections[0]->data, bytes);
      }
    }
  }
};

}  // namespace

PENSTOCK_COMPRESSOR(None, "compressor/none", "0.1.0",
                    "sends gradients as they are; ranks are summed on the way", "");
