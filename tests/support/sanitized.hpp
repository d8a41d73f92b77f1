// Whether the program runs under a sanitizer. Then tests take many times longer, and a part of the
// cases is enough to find the errors that a sanitizer finds.
#pragma once

namespace penstock::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// The thread sanitizer takes longest, and finds nothing in code of a single thread.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadsSanitized = true;
#else
inline constexpr bool kThreadsSanitized = false;
#endif

}  // namespace penstock::test
