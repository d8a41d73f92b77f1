#include "core/state/resize.hpp"

#include <penstock/item.h>

#include <cstring>

namespace penstock {
namespace {

// A sum of float32 is also rounded only once.
template <typename Value>
void take_share_of(std::span<const std::optional<std::string_view>> saved, const Resize& to,
                   double worth, std::span<std::byte> target) {
  for (size_t at = 0; at + sizeof(Value) <= target.size(); at += sizeof(Value)) {
    double sum = 0;
    for (size_t from = to.rank; from < saved.size(); from += to.world) {
      if (!saved[from]) continue;
      Value one;
      std::memcpy(&one, saved[from]->data() + at, sizeof one);
      sum += one;
    }
    const auto share = static_cast<Value>(sum * worth);
    std::memcpy(target.data() + at, &share, sizeof share);
  }
}

}  // namespace

void take_share(std::span<const std::optional<std::string_view>> saved, uint32_t dtype,
                const Resize& to, double worth, std::span<std::byte> target) {
  dtype == PENSTOCK_FLOAT32 ? take_share_of<float>(saved, to, worth, target)
                            : take_share_of<double>(saved, to, worth, target);
}

}  // namespace penstock
