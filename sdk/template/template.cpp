// Strided sampling: each step sends every stride-th entry, the next step the entries beside them.
//
// Here to be copied, yet complete: options, bounds, encode with take-out, decode of bytes that come
// from peers. After `stride` steps every entry has been sent once, so with a memory that keeps the
// rest (memory/residual) nothing is lost, only late.
#include <penstock/compressor.hpp>

namespace sdk = penstock::sdk;

namespace {

class Template {
 public:
  // From this list come the TOML's checks, `penstock plugins describe` and the docs.
  static inline const sdk::OptionList options{
      sdk::integer_option("stride", 2)
          .at_least(1)
          .at_most(65536)
          .unit("entries")
          .summary("one entry out of so many is sent per step; 1 sends all")};
  explicit Template(const sdk::Options& values)
      : stride_(static_cast<uint64_t>(values.integer("stride"))) {}

  void describe(penstock_compressor_traits& traits) const {
    if (stride_ > 1) traits.flags |= PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
  }

  // All ranks send the same positions, so values are summed on the way and no index travels.
  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_SUM).section(PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, n_sent(item));
    need.part_alignment = stride_;  // a range that starts elsewhere would send other entries
    need.flags = PENSTOCK_NEED_LINEAR;
    if (stride_ == 1) need.flags |= PENSTOCK_NEED_LOSSLESS;
  }

  // work -> values; what was sent leaves work, the rest stays there for the memory.
  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const std::span<float> work = item.work();
    const std::span<float> values = payload.room<float>(0);
    uint64_t n = 0;
    for (uint64_t i = first(call); i < work.size(); i += stride_) {
      values[n++] = work[i];
      if (item.keeps()) work[i] = 0;
    }
    // A summed round has the same count in every step: where the last entry falls off the end, a
    // zero travels in its place.
    while (n < values.size()) values[n++] = 0;
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    payload.count(0, n);
  }

  // out += values. The layer clears `out` first, skips absent payloads, and throws for a payload
  // whose count is another than planned.
  void decode_add(const sdk::Call& call, const sdk::Item& item, const sdk::PayloadReader& payload) {
    const std::span<const float> values = payload.section<float>(0, n_sent(item));
    const std::span<float> out = item.out();
    uint64_t n = 0;
    for (uint64_t i = first(call); i < out.size(); i += stride_) out[i] += values[n++];
  }

 private:
  uint64_t n_sent(const sdk::Item& item) const {
    return item.numel() / stride_ + (item.numel() % stride_ != 0 ? 1 : 0);
  }
  // Equal on all ranks, for the step index is.
  uint64_t first(const sdk::Call& call) const { return call.step->index % stride_; }

  uint64_t stride_;
};

}  // namespace

PENSTOCK_COMPRESSOR(Template, "compressor/template", "0.1.0",
                    "sends every stride-th entry, another one each step", "");
