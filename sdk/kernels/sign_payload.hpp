// Payloads of signs: what the methods that send one bit per element share. Not a plugin: each of
// them compiles it into itself.
//
// Three sections: the plane of negative elements; the positions of zeros, while that is shorter
// than a second plane; the plane of nonzero elements, otherwise.
#pragma once

#include <penstock/compressor.hpp>

#include <kernels/sign.hpp>

#include <cmath>
#include <span>

namespace penstock::plugins {

// Sections of every payload of signs; a method's own follow.
enum SignSection : uint64_t { kNegative = 0, kZeros = 1, kNonzero = 2, kAfterSigns = 3 };

inline sdk::Round& plan_signs(sdk::Round& round, uint64_t numel) {
  const uint64_t words = kernels::sign_words(numel);
  return round.section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT64, words)
      .section(PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, kernels::sign_zero_capacity(numel), false)
      .section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT64, words, false);
}

// Writes the three sections and marks the payload as coded. With `fold` work is compensated first,
// in the same sweep.
inline void write_signs(std::span<const float> work, sdk::PayloadWriter& payload,
                        kernels::CodePath path, const kernels::Fold* fold = nullptr) {
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

// The signs in a payload. Throws INVALID_PAYLOAD for what no rank of ours would send.
inline kernels::Signs read_signs(const sdk::PayloadReader& payload, uint64_t numel) {
  const auto negative = payload.section<uint64_t>(kNegative, kernels::sign_words(numel));
  const auto zeros = payload.section<uint32_t>(kZeros);
  const auto nonzero = payload.section<uint64_t>(kNonzero);
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
  return {negative.data(), zeros.data(), zeros.size(), nonzero.empty() ? nullptr : nonzero.data()};
}

// ---- Signs that stand for numbers ----

// A sender of one item during decode.
struct SignSender {
  kernels::ValuedSigns valued;
  float pair[2];  // for methods that send one number and mean it with both signs
};

// Room for the senders of a call.
inline uint64_t sign_sender_bytes(uint32_t world) {
  return world * sizeof(SignSender) + world * sizeof(kernels::ValuedSigns);
}

// out (+)= the numbers of each rank, in ascending order. `run(item)` is how many elements share a
// pair of numbers; `read(payload, item, sender)` checks a payload and fills in its sender.
template <typename Run, typename Read>
void decode_valued_signs(const sdk::Call& call, const sdk::Items& items,
                         const sdk::PayloadReaders& payloads, kernels::CodePath path, Run run,
                         Read read) {
  const std::span<SignSender> senders = call.scratch<SignSender>(payloads.n_ranks());
  const std::span<kernels::ValuedSigns> valued = call.scratch<kernels::ValuedSigns>(
      payloads.n_ranks(), payloads.n_ranks() * sizeof(SignSender));
  for (uint64_t i = 0; i < items.size(); ++i) {
    uint64_t n = 0;
    for (uint64_t r = 0; r < payloads.n_ranks(); ++r) {
      const sdk::PayloadReader payload = payloads.at(i, r);
      if (payload.absent()) continue;
      read(payload, items[i], senders[n]);
      valued[n] = senders[n].valued;
      ++n;
    }
    const std::span<float> out = items[i].out();
    kernels::sum_valued_signs(valued.data(), n, out.size(), run(items[i]),
                              (call.flags & PENSTOCK_DECODE_FIRST) != 0, out.data(), path);
  }
}

// One number that positive elements have as it is and negative ones with the other sign.
inline void read_scale(const sdk::PayloadReader& payload, uint64_t section, SignSender& sender) {
  const float scale = payload.section<float>(section, 1)[0];
  if (!(scale >= 0) || !std::isfinite(scale))
    throw payload.error("has a scale of ", scale, ", expected a finite one of at least 0");
  sender.pair[0] = scale;
  sender.pair[1] = -scale;
  sender.valued.values = sender.pair;
}

}  // namespace penstock::plugins
