// Whether a sanitizer watches: all takes many times as long then, and what it looks for shows in a
// share of the cases that a sweep has.
#pragma once

namespace penstock::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// That of threads takes longest, and finds nothing in what one thread does alone.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadsSanitized = true;
#else
inline constexpr bool kThreadsSanitized = false;
#endif

}  // namespace penstock::test
