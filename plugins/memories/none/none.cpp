// No memory: what is compressed is the gradient itself, and what is not sent is lost.
#include <methods/device/call.hpp>
#include <penstock/memory.hpp>

namespace sdk = penstock::sdk;

namespace {

class None {
 public:
  static inline const sdk::OptionList options{};
  explicit None(const sdk::Options&) {}
  // It looks at nothing, so that may lie anywhere.
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
