// Plain loops for methods that send single entries, as oracles for tests of selections.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <testing/gtest.hpp>
#include <testing/rig.hpp>
#include <vector>

namespace penstock::test {

// Indices by magnitude, greatest first, ties by index, from a full sort.
std::vector<uint32_t> by_magnitude(const std::vector<float>& x);
// The k largest, ascending, ties by index.
std::vector<uint32_t> largest(const std::vector<float>& x, uint64_t k);
// ceil(share * n), at least 1, at most n, in integers: the smallest k with k >= share * n. A share
// that is a multiple of 1e-6 is taken exactly.
uint64_t kept_of(uint64_t n, double share);

// x at the chosen places, zeros elsewhere.
std::vector<float> only(const std::vector<float>& x, const std::vector<uint32_t>& chosen);

// Moves the chosen entries out of `work` into `total`.
void send(const std::vector<uint32_t>& chosen, std::vector<float>& work, std::vector<float>& total);

// The decoded values if `values` are sent together as `value_type` ("fp32", "fp16", "bf16",
// "int8", "sign"). Each is rounded to the nearest finite number of the type; for int8 to the
// nearest multiple of max |value| / 127; for fp16 to the nearest code times a power of two, with
// which the largest code is from 2^14 to 2^15. For sign each is the mean of the values of its sign
// (docs/payloads.md).
std::vector<float> rounded_to(const std::string& value_type, const std::vector<float>& values);

// The values of x at the chosen places, rounded for the wire, and zeros elsewhere. "auto" is fp16
// if at least 8 entries, but not all, may be sent, otherwise fp32. Without `room` only the chosen
// entries may be sent.
std::vector<float> only_as(const std::string& value_type, const std::vector<float>& x,
                           const std::vector<uint32_t>& chosen,
                           std::optional<uint64_t> room = std::nullopt);

// Gradients times 2^-40 and 2^40 give the bits of the gradients alone, times that power: the means,
// and what a residual keeps.
void expect_any_scale_arrives_alike(const LoadedPlugin& plugin, const OptionSettings& options);

// Gives the rig's compressor wrong narrow payloads, as expect_sparse_payloads_are_input does for
// float32. The first item of the rig has exactly `count` planned indices, at least 3.
void expect_narrow_payloads_are_input(CompressorRig& rig);

// Gives the rig's compressor wrong payloads of signs, as above. The first item has 16 elements and
// room for 8 entries.
void expect_sign_payloads_are_input(CompressorRig& rig);

// Gives `compressor` payloads with a wrong count, index, kind or section length. Each must give
// INVALID_PAYLOAD with rank and gradient. The item has a capacity of at least 4 entries.
void expect_sparse_payloads_are_input(CompressorRig& rig);

}  // namespace penstock::test
