// See reduce.hpp. All sources of a tile are read before its result is written. So the target may be
// one of the sources, and a tile stays in the first-level cache.
#include <kernels/convert.hpp>
#include <kernels/reduce.hpp>

#include <penstock/collective.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace penstock::kernels {

namespace {

constexpr uint64_t kTile = 2048;  // elements

// Conversion of 16-bit floats and bool from bits to numbers and back.
struct Half {
  using Stored = uint16_t;
  using Number = float;
  static void load(const Stored* from, Number* to, uint64_t n) { halves_to_floats(from, to, n); }
  static void store(const Number* from, Stored* to, uint64_t n) { floats_to_halves(from, to, n); }
};
struct Bfloat16 {
  using Stored = uint16_t;
  using Number = float;
  static void load(const Stored* from, Number* to, uint64_t n) { bfloat16s_to_floats(from, to, n); }
  static void store(const Number* from, Stored* to, uint64_t n) {
    floats_to_bfloat16s(from, to, n);
  }
};
struct Bool {
  using Stored = uint8_t;
  using Number = uint8_t;
  static void load(const Stored* from, Number* to, uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) to[i] = from[i] != 0;
  }
  static void store(const Number* from, Stored* to, uint64_t n) { std::memcpy(to, from, n); }
};
template <typename T>
struct Plain {
  using Stored = T;
  using Number = T;
};

template <typename T>
constexpr bool kPlain = false;
template <typename T>
constexpr bool kPlain<Plain<T>> = true;

// Integers wrap around: they are computed unsigned, in a type so wide that promotion to int cannot
// overflow.
template <typename T>
using Wrapping = typename std::conditional_t<std::is_integral_v<T>,
                                             std::conditional<sizeof(T) == 8, uint64_t, uint32_t>,
                                             std::type_identity<T>>::type;

struct Sum {
  template <typename T>
  static T join(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};
struct Product {
  template <typename T>
  static T join(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};
// The sum is divided in float32, before it is rounded to 16 bits.
struct Mean : Sum {};
// `b != b` keeps a NaN of any source; it is false for integers.
struct Min {
  template <typename T>
  static T join(T a, T b) {
    return (b < a || b != b) ? b : a;
  }
};
struct Max {
  template <typename T>
  static T join(T a, T b) {
    return (b > a || b != b) ? b : a;
  }
};

template <typename Type, typename Operation>
void reduce(const void* const* sources, uint64_t n_sources, void* target, uint64_t begin,
            uint64_t end) {
  using Stored = typename Type::Stored;
  using Number = typename Type::Number;
  alignas(64) Number total[kTile];
  [[maybe_unused]] alignas(64) Number loaded[kPlain<Type> ? 1 : kTile];
  for (uint64_t first = begin; first < end; first += kTile) {
    const uint64_t n = std::min(kTile, end - first);
    for (uint64_t s = 0; s < n_sources; ++s) {
      const Stored* source = static_cast<const Stored*>(sources[s]) + first;
      const Number* numbers;
      if constexpr (kPlain<Type>) {
        numbers = source;
      } else {
        Type::load(source, s == 0 ? total : loaded, n);
        numbers = loaded;
      }
      if (s == 0) {
        if constexpr (kPlain<Type>) std::memcpy(total, numbers, n * sizeof(Number));
      } else {
        for (uint64_t i = 0; i < n; ++i) total[i] = Operation::join(total[i], numbers[i]);
      }
    }
    if constexpr (std::is_same_v<Operation, Mean>)
      for (uint64_t i = 0; i < n; ++i) total[i] /= static_cast<Number>(n_sources);
    Stored* result = static_cast<Stored*>(target) + first;
    if constexpr (kPlain<Type>)
      std::memcpy(result, total, n * sizeof(Number));
    else
      Type::store(total, result, n);
  }
}

using Reduce = void (*)(const void* const*, uint64_t, void*, uint64_t, uint64_t);

template <typename Type>
Reduce choose(uint32_t reduction) {
  constexpr bool kBool = std::is_same_v<Type, Bool>;  // numbers are 0 and 1: or is max, and is min
  switch (reduction) {
    case PENSTOCK_REDUCE_SUM:
      return reduce<Type, std::conditional_t<kBool, Max, Sum>>;
    case PENSTOCK_REDUCE_PRODUCT:
      return reduce<Type, std::conditional_t<kBool, Min, Product>>;
    case PENSTOCK_REDUCE_MIN:
      return reduce<Type, Min>;
    case PENSTOCK_REDUCE_MAX:
      return reduce<Type, Max>;
    case PENSTOCK_REDUCE_MEAN:
      if constexpr (std::is_same_v<Type, Half> || std::is_same_v<Type, Bfloat16>)
        return reduce<Type, Mean>;
      return nullptr;
    default:
      return nullptr;
  }
}

Reduce choose(uint32_t dtype, uint32_t reduction) {
  switch (dtype) {
    case PENSTOCK_FLOAT32:
      return choose<Plain<float>>(reduction);
    case PENSTOCK_FLOAT64:
      return choose<Plain<double>>(reduction);
    case PENSTOCK_FLOAT16:
      return choose<Half>(reduction);
    case PENSTOCK_BFLOAT16:
      return choose<Bfloat16>(reduction);
    case PENSTOCK_INT8:
      return choose<Plain<int8_t>>(reduction);
    case PENSTOCK_UINT8:
      return choose<Plain<uint8_t>>(reduction);
    case PENSTOCK_INT16:
      return choose<Plain<int16_t>>(reduction);
    case PENSTOCK_UINT16:
      return choose<Plain<uint16_t>>(reduction);
    case PENSTOCK_INT32:
      return choose<Plain<int32_t>>(reduction);
    case PENSTOCK_UINT32:
      return choose<Plain<uint32_t>>(reduction);
    case PENSTOCK_INT64:
      return choose<Plain<int64_t>>(reduction);
    case PENSTOCK_UINT64:
      return choose<Plain<uint64_t>>(reduction);
    case PENSTOCK_BOOL:
      return choose<Bool>(reduction);
    default:
      return nullptr;
  }
}

uint64_t element_bytes(uint32_t dtype) {
  switch (dtype) {
    case PENSTOCK_FLOAT64:
    case PENSTOCK_INT64:
    case PENSTOCK_UINT64:
      return 8;
    case PENSTOCK_FLOAT32:
    case PENSTOCK_INT32:
    case PENSTOCK_UINT32:
      return 4;
    case PENSTOCK_INT8:
    case PENSTOCK_UINT8:
    case PENSTOCK_BOOL:
      return 1;
    default:
      return 2;
  }
}

}  // namespace

uint64_t reducible_dtypes() noexcept {
  uint64_t mask = 0;
  for (uint32_t dtype = PENSTOCK_FLOAT32; dtype <= PENSTOCK_BOOL; ++dtype)
    mask |= PENSTOCK_DTYPE_BIT(dtype);
  return mask;
}

bool reduce_in_order(uint32_t dtype, uint32_t reduction, const void* const* sources,
                     uint64_t n_sources, void* target, uint64_t count, uint64_t first) noexcept {
  const Reduce function = choose(dtype, reduction);
  if (function == nullptr || n_sources == 0) return false;
  if (count == 0) return true;
  if (n_sources == 1) {
    const uint64_t width = element_bytes(dtype);
    if (sources[0] != target)
      std::memcpy(static_cast<char*>(target) + first * width,
                  static_cast<const char*>(sources[0]) + first * width, count * width);
    return true;
  }
  function(sources, n_sources, target, first, first + count);
  return true;
}

}  // namespace penstock::kernels
