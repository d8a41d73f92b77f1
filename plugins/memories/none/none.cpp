// No memory: the gradient itself is compressed, and values that are not sent are lost.
#include <methods/device/call.hpp>
#include <penstock/memory.hpp>

namespace sdk = penstock::sdk;

namespace {

class None {
 public:
  static inline const sdk::OptionList options{};
  explicit None(const sdk::Options&) {}
  // The memory reads no data, so the data may lie anywhere.
  void describe(penstock_memory_traits& traits) const {
    traits.device_types = sdk::device::kCpuAndCuda;
  }
  void plan(const sdk::Item&, const penstock_compressor_need&, sdk::MemoryNeed& need) {
    need.work_is = PENSTOCK_WORK_IS_GRAD;
  }
  void compensate(const sdk::Call&, const sdk::Item&, std::span<const float>) {}
};

}  // namespace

PENSTOCK_MEMORY(None, "memory/none", "0.1.0", "keeps nothing: values that are not sent are lost",
                "");
