// Plain loops for methods that send single entries: what tests of selection compare with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <testing/gtest.hpp>
#include <testing/rig.hpp>
#include <vector>

namespace penstock::test {

// Indices by magnitude, greatest first, ties by index; a full sort.
std::vector<uint32_t> by_magnitude(const std::vector<float>& x);
// The k largest, ascending, ties by index.
std::vector<uint32_t> largest(const std::vector<float>& x, uint64_t k);
// ceil(share * n), at least 1, at most n, in integers: the smallest k with k >= share * n, where a
// share that is a multiple of 1e-6 is taken exactly.
uint64_t kept_of(uint64_t n, double share);

// x at the chosen places, zeros elsewhere.
std::vector<float> only(const std::vector<float>& x, const std::vector<uint32_t>& chosen);

// Moves the chosen entries out of `work` into `total`.
void send(const std::vector<uint32_t>& chosen, std::vector<float>& work, std::vector<float>& total);

// What values of `value_type` ("fp32", "fp16", "bf16", "int8") stand for when these are sent
// together: the nearest of the type that is finite; for int8 the nearest multiple of max |value| /
// 127; for fp16 the nearest code times a power of two, with which the largest code is from 2^14 to
// 2^15 (docs/payloads.md).
std::vector<float> rounded_to(const std::string& value_type, const std::vector<float>& values);

// What the wire can carry of x at the chosen places, zeros elsewhere. "auto" is fp16 if at least 8
// entries, but not all, may be sent, else fp32; no `room` means that only the chosen ones may.
std::vector<float> only_as(const std::string& value_type, const std::vector<float>& x,
                           const std::vector<uint32_t>& chosen,
                           std::optional<uint64_t> room = std::nullopt);

// Gradients times 2^-40 and 2^40 give the bits of the gradients alone, times that power: the means,
// and what a residual keeps.
void expect_any_scale_arrives_alike(const LoadedPlugin& plugin, const OptionSettings& options);

// Feeds the rig's compressor narrow payloads that are wrong, as expect_sparse_payloads_are_input
// does for float32. The rig's first item has exactly `count` indices planned, at least 3.
void expect_narrow_payloads_are_input(CompressorRig& rig);

// Feeds `compressor` payloads whose count, index, kind or section lengths are wrong: each gives
// INVALID_PAYLOAD that names rank and gradient. The item has at least 4 entries of room.
void expect_sparse_payloads_are_input(CompressorRig& rig);

}  // namespace penstock::test
