// Doubles made of floats, for the files that each_path.inc includes. It is a macro, because a
// function would be compiled for one instruction set only.
//
//   widen<Doubles>(floats)       each float as a double, exactly
//   narrow<Floats>(doubles)      each rounded to a float
//   add_exact_product(sum, a, b) sum + a * b where a and b hold floats: their product is exact, 48
//                                bits of the 53, so that one instruction for both operations rounds
//                                as the two do, and the bits are equal on every code path
//
// Registers of 64 bytes use intrinsics, because the compiler would convert them in halves.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#define PENSTOCK_IF_X86(...) __VA_ARGS__
#else
#define PENSTOCK_IF_X86(...)
#endif

#define PENSTOCK_DOUBLES                                                                         \
  template <typename Doubles, typename Floats>                                                   \
  [[gnu::always_inline]] static inline Doubles widen(Floats values) {                            \
    PENSTOCK_IF_X86(if constexpr (sizeof(Doubles) == 64) return _mm512_cvtps_pd(values); else)   \
    return __builtin_convertvector(values, Doubles);                                             \
  }                                                                                              \
  template <typename Floats, typename Doubles>                                                   \
  [[gnu::always_inline]] static inline Floats narrow(Doubles values) {                           \
    PENSTOCK_IF_X86(if constexpr (sizeof(Doubles) == 64) return _mm512_cvtpd_ps(values); else)   \
    return __builtin_convertvector(values, Floats);                                              \
  }                                                                                              \
  template <typename Doubles>                                                                    \
  [[gnu::always_inline]] static inline Doubles add_exact_product(Doubles sum, Doubles a,         \
                                                                 Doubles b) {                    \
    PENSTOCK_IF_X86(if constexpr (sizeof(Doubles) == 64) return _mm512_fmadd_pd(a, b, sum);      \
                    else if constexpr (sizeof(Doubles) == 32) return _mm256_fmadd_pd(a, b, sum); \
                    else)                                                                        \
    return sum + a * b;                                                                          \
  }
