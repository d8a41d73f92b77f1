// Plain loops for methods that send single entries: what tests of selection compare with.
#pragma once

#include <cstdint>
#include <support/rig.hpp>
#include <vector>

namespace penstock::test {

// Indices by magnitude, greatest first, ties by index; a full sort.
std::vector<uint32_t> by_magnitude(const std::vector<float>& x);
// The k largest, ascending.
std::vector<uint32_t> largest(const std::vector<float>& x, uint64_t k);
// ceil(share * n), at least 1, at most n, in integers: the smallest k with k >= share * n, where a
// share that is a multiple of 1e-6 is taken exactly.
uint64_t kept_of(uint64_t n, double share);

// Moves the chosen entries out of `work` into `total`.
void send(const std::vector<uint32_t>& chosen, std::vector<float>& work, std::vector<float>& total);

// Feeds `compressor` payloads whose count, index, kind or section lengths are wrong: each gives
// INVALID_PAYLOAD that names rank and gradient. The item has at least 4 entries of room.
void expect_sparse_payloads_are_input(CompressorRig& rig);

}  // namespace penstock::test
