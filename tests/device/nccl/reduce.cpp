// Sums, products, extremes and means over ranks. The order is the order of ranks, or depends on the
// element and the size of the message.
#include <kernels/element/half.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "clique.hpp"

namespace penstock::simulated {
namespace {

// 16-bit floats are added as floats and rounded after each addition, as in rings of ranks.
struct Half {
  uint16_t bits;
  operator float() const { return std::bit_cast<float>(kernels::float_bits(bits)); }
};
struct Bfloat16 {
  uint16_t bits;
  operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

template <typename T>
using Value = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <typename T>
T stored(Value<T> value) {
  if constexpr (std::is_same_v<T, Half>)
    return {static_cast<uint16_t>(kernels::half_bits(std::bit_cast<uint32_t>(value)))};
  else if constexpr (std::is_same_v<T, Bfloat16>)
    return {kernels::bfloat16_bits(std::bit_cast<uint32_t>(value))};
  else
    return value;
}

template <typename V>
V joined(V a, V b, ncclRedOp_t operation) {
  switch (operation) {
    case ncclProd:
      return static_cast<V>(a * b);
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:
      return static_cast<V>(a + b);
  }
}

// The addend of a rank. For a mean of floats the value is first divided, as NCCL does.
template <typename T>
T taken(const char* source, uint64_t i, std::size_t n_ranks, ncclRedOp_t operation) {
  T value;
  std::memcpy(&value, source + i * sizeof(T), sizeof(T));
  if constexpr (!std::is_integral_v<T>)
    if (operation == ncclAvg) {
      const T part = stored<T>(Value<T>(1) / Value<T>(n_ranks));
      value = stored<T>(Value<T>(value) * Value<T>(part));
    }
  return value;
}

// The rank that begins the sum of an element, as in a ring with one part per rank. NCCL also
// chooses the algorithm by the size, so no program may rely on the order.
std::size_t first_rank(uint64_t i, uint64_t count, std::size_t n_ranks) {
  const uint64_t of_part = (count + n_ranks - 1) / n_ranks;
  return (i / of_part + count) % n_ranks;
}

template <typename T>
void reduce_as(const std::vector<const char*>& sources, char* target, uint64_t count,
               ncclRedOp_t operation, bool by_rank) {
  for (uint64_t i = 0; i < count; ++i) {
    const std::size_t n_ranks = sources.size();
    const std::size_t first = by_rank ? 0 : first_rank(i, count, n_ranks);
    T result = taken<T>(sources[first], i, n_ranks, operation);
    for (std::size_t more = 1; more < n_ranks; ++more) {
      const T next = taken<T>(sources[(first + more) % n_ranks], i, n_ranks, operation);
      result = stored<T>(joined<Value<T>>(result, next, operation));
    }
    if (std::is_integral_v<T> && operation == ncclAvg)
      result = stored<T>(static_cast<Value<T>>(Value<T>(result) / Value<T>(sources.size())));
    std::memcpy(target + i * sizeof(T), &result, sizeof(T));
  }
}

}  // namespace

uint64_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

void reduce(const std::vector<const char*>& sources, char* target, uint64_t count,
            ncclDataType_t type, ncclRedOp_t operation, bool by_rank) {
  switch (type) {
    case ncclInt8:
      return reduce_as<int8_t>(sources, target, count, operation, by_rank);
    case ncclUint8:
      return reduce_as<uint8_t>(sources, target, count, operation, by_rank);
    case ncclInt32:
      return reduce_as<int32_t>(sources, target, count, operation, by_rank);
    case ncclUint32:
      return reduce_as<uint32_t>(sources, target, count, operation, by_rank);
    case ncclInt64:
      return reduce_as<int64_t>(sources, target, count, operation, by_rank);
    case ncclUint64:
      return reduce_as<uint64_t>(sources, target, count, operation, by_rank);
    case ncclFloat16:
      return reduce_as<Half>(sources, target, count, operation, by_rank);
    case ncclBfloat16:
      return reduce_as<Bfloat16>(sources, target, count, operation, by_rank);
    case ncclFloat32:
      return reduce_as<float>(sources, target, count, operation, by_rank);
    case ncclFloat64:
      return reduce_as<double>(sources, target, count, operation, by_rank);
  }
}

}  // namespace penstock::simulated
