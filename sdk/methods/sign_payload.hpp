// Writes and reads a payload of signs. It has three sections: the bit plane of negative elements;
// the positions of zeros, if this list is shorter than a second plane; otherwise, the bit plane of
// nonzero elements.
#pragma once

#include <penstock/compressor.hpp>

#include <kernels/sign.hpp>

#include <span>

namespace penstock::sdk {

// Sections of every payload of signs; the sections of a method follow.
enum SignSection : uint64_t { kNegative = 0, kZeros = 1, kNonzero = 2, kAfterSigns = 3 };

inline Round& plan_signs(Round& round, uint64_t numel) {
  const uint64_t words = kernels::sign_words(numel);
  return round.section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT64, words)
      .section(PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, kernels::sign_zero_capacity(numel), false)
      .section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT64, words, false);
}

// Writes the three sections and marks the payload as coded. If `fold` is not null, the sweep also
// compensates work first.
inline void write_signs(std::span<const float> work, PayloadWriter& payload, kernels::CodePath path,
                        const kernels::Fold* fold = nullptr) {
  const std::span<uint64_t> negative = payload.room<uint64_t>(kNegative);
  const std::span<uint32_t> zeros = payload.room<uint32_t>(kZeros);
  const uint64_t n_zeros = kernels::pack_signs(work.data(), work.size(), negative.data(),
                                               zeros.data(), zeros.size(), path, fold);
  const bool listed = n_zeros <= zeros.size();
  if (!listed)
    kernels::pack_nonzero(work.data(), work.size(), payload.room<uint64_t>(kNonzero).data(), path);
  payload.kind(PENSTOCK_PAYLOAD_CODED);
  payload.count(kNegative, negative.size());
  payload.count(kZeros, listed ? n_zeros : 0);
  payload.count(kNonzero, listed ? 0 : negative.size());
}

// The signs in a payload, in the memory where the call works. Throws INVALID_PAYLOAD for a payload
// that write_signs cannot have written.
inline kernels::Signs read_signs(const Call& call, const PayloadReader& payload, uint64_t numel) {
  const auto negative = payload.section<uint64_t>(kNegative, kernels::sign_words(numel));
  const auto nonzero = payload.section<uint64_t>(kNonzero);
  const auto zeros = payload.on_host<uint32_t>(call, kZeros);
  if (!nonzero.empty() && nonzero.size() != negative.size())
    throw payload.error("has ", nonzero.size(), " words of nonzero bits, expected none or ",
                        negative.size());
  if (!nonzero.empty() && !zeros.empty())
    throw payload.error("gives its zeros both as a list of ", zeros.size(), " and as bits");
  for (uint64_t e = 0; e < zeros.size(); ++e) {
    if (zeros[e] >= numel)
      throw payload.error("has a zero at ", zeros[e], ", expected below ", numel);
    if (e > 0 && zeros[e] <= zeros[e - 1])
      throw payload.error("has zeros at ", zeros[e - 1], " and then ", zeros[e],
                          ", expected them to ascend");
  }
  return {negative.data(), payload.section<uint32_t>(kZeros).data(), zeros.size(),
          nonzero.empty() ? nullptr : nonzero.data()};
}

}  // namespace penstock::sdk
