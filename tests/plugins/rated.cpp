// Sends every value times the learning rate of its gradient, so that a test sees the rate that the
// compressor gets.
#include <penstock/compressor.hpp>

namespace sdk = penstock::sdk;

class Rated {
 public:
  static inline const sdk::OptionList options{};
  explicit Rated(const sdk::Options&) {}

  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_SUM).section(PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, item.numel());
  }
  void encode(const sdk::Call&, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const auto values = payload.room<float>(0);
    for (uint64_t i = 0; i < item.numel(); ++i)
      values[i] = item.work()[i] * static_cast<float>(item.c().learning_rate);
    payload.kind(PENSTOCK_PAYLOAD_DENSE);
    payload.count(0, item.numel());
  }
  void decode_add(const sdk::Call&, const sdk::Item& item, const sdk::PayloadReader& payload) {
    const auto values = payload.section<float>(0);
    for (uint64_t i = 0; i < values.size(); ++i) item.out()[i] += values[i];
  }
};

PENSTOCK_COMPRESSOR(Rated, "compressor/rated", "1.0.0", "values times learning rates", "");
