// Tests for every compressor that casts to a 16-bit float.
#pragma once

#include <cstdint>
#include <string>
#include <support/stochastic_cast.hpp>

namespace penstock::test {

struct CastFormat {
  std::string plugin_file;
  uint16_t (*to_bits)(float);  // the definition, not the kernels under test
  float (*from_bits)(uint16_t);
  float largest;  // finite
  ChanceType by_chance;
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

// ---- Option combine = "gather" ----

// The result is the float32 sum of rounded values, not rounded again, with both kinds of rounding:
// to the bit, for every distribution and awkward size, on 1 to 4 ranks, with or without a residual.
void expect_gathered_casts_are_added_in_float32(const CastFormat& format);
// A section of another length is INVALID_PAYLOAD.
void expect_gathered_casts_read_payloads_as_input(const CastFormat& format);

// ---- Option rounding = "stochastic" ----

// As expect_cast_sums, and with a residual over 20 steps, where every rank rounds by the words of
// seed, step, rank, gradient and element.
void expect_casts_by_chance_follow_their_words(const CastFormat& format);
// The values that a rank sends of one gradient are right on average, to 5.5 deviations.
void expect_casts_by_chance_are_unbiased(const CastFormat& format);
// Equal bits on every code path, on any number of threads, and in the sweep of a folded memory.
void expect_casts_by_chance_are_equal_wherever_they_run(const CastFormat& format);
// Both options restrict the compressor to the CPU, and say whether they draw random numbers.
void expect_cast_options_are_in_the_traits(const CastFormat& format);

}  // namespace penstock::test
