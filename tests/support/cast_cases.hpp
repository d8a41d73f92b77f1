// Tests for every compressor that casts to a 16-bit float.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::test {

struct CastFormat {
  std::string plugin_file;
  uint16_t (*to_bits)(float);  // the definition, not the kernels under test
  float (*from_bits)(uint16_t);
  float largest;  // finite
};

// The result is the float32 sum of rounded values, rounded once, divided by the ranks: to the bit,
// for every distribution and awkward size, and 1 to 4 ranks.
void expect_cast_sums(const CastFormat& format);
// Gradients of kLargeNumel elements, with a residual: values are rounded.
void expect_large_casts(const CastFormat& format);
// With a residual, 100 steps equal a plain loop to the bit, and encode subtracts exactly the sent
// values.
void expect_cast_keeps_rounding(const CastFormat& format);
// Values that are too large for the format stay in the residual. Neither they nor a sum becomes
// infinite.
void expect_cast_overflow_is_kept(const CastFormat& format);
// A section of another length is INVALID_PAYLOAD. An absent payload counts as zeros.
void expect_cast_reads_payloads_as_input(const CastFormat& format);
// Without a memory a value that is too large becomes infinite, so a user sees the error.
void expect_cast_overflows_without_memory(const CastFormat& format);

}  // namespace penstock::test
