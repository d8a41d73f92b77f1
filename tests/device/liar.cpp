// A compressor for tests: top-k, but on the CPU it sends its first two entries in the wrong order.
// On a device it sends right entries unless an option says otherwise.
#include <methods/sparse.hpp>

#include <cuda_runtime_api.h>

#include <utility>

namespace sdk = penstock::sdk;

namespace {

class Liar : public sdk::SparseCompressor<Liar> {
 public:
  static inline const sdk::OptionList options{sdk::density_option(0.5, "share that is sent"),
                                              value_type_option(),
                                              sdk::bool_option("lies_on_devices", false)};
  explicit Liar(const sdk::Options& values)
      : SparseCompressor(values, "liar"),
        density_(values.real("density")),
        lies_on_devices_(values.boolean("lies_on_devices")) {}

  static constexpr bool kAlwaysMost = true;
  uint64_t most(uint64_t n) const { return sdk::kept_count(n, density_); }
  void choose(const sdk::Choice& from) const {
    from.largest(from.most);
    if (from.only().count > 1) std::swap(from.only().indices[0], from.only().indices[1]);
  }
  void choose(const sdk::device::Choice& from) const {
    from.largest(from.most);
    if (!lies_on_devices_ || from.most < 2) return;
    uint32_t* const indices = from.indices();
    from.queue([&](void* stream) {
      return cudaMemcpyAsync(indices, indices + 1, sizeof(uint32_t), cudaMemcpyDeviceToDevice,
                             static_cast<cudaStream_t>(stream));
    });
  }
  // On the CPU decode does not check the payload, so that it is not the first code to find the
  // error.
  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    if (call.on_device()) return SparseCompressor<Liar>::decode(call, items, payloads);
    for (uint64_t i = 0; i < items.size(); ++i) {
      const std::span<float> out = items[i].out();
      std::fill(out.begin(), out.end(), 0.0f);
    }
  }

 private:
  double density_;
  bool lies_on_devices_;
};

}  // namespace

PENSTOCK_COMPRESSOR(Liar, "compressor/liar", "0.1.0", "sends indices that do not ascend", "");
