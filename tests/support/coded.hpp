// For tests of methods whose payloads only the method can read: the random words of a method, a
// single payload, and payloads that no Penstock rank would send.
#pragma once

#include <cstring>
#include <functional>
#include <support/compressor_cases.hpp>

namespace penstock::test {

// The word that sdk/kernels/random_uniform.hpp defines, in 64-bit arithmetic with explicit
// remainders, and this word as a number in (0, 1).
struct DrawnBy {
  uint64_t seed;
  uint64_t gradient;
  uint64_t stream;
  uint64_t rank;
};
inline uint64_t mixed(uint64_t z) {
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}
inline uint32_t drawn_word(const DrawnBy& by, uint64_t element) {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u, kModulus = uint64_t{1} << 32;
  const uint64_t base = mixed(by.seed ^ mixed(by.gradient * kGolden + by.stream));
  const uint64_t k = mixed(mixed(base + by.rank * kGolden) + element / kModulus * kGolden);
  uint64_t x = (element % kModulus + k % kModulus) % kModulus;
  x = (x ^ (x / 65536)) * 0x7FEB352Du % kModulus;
  x = x ^ (k / kModulus);
  x = (x ^ (x / 32768)) * 0x846CA68Bu % kModulus;
  return static_cast<uint32_t>(x ^ (x / 65536));
}
inline float drawn_uniform(const DrawnBy& by, uint64_t element) {
  return static_cast<float>((drawn_word(by, element) / 512 + 0.5) / 8388608.0);
}
// The stream that replaces `stream` in step `index`.
inline uint64_t stream_in_step(uint64_t stream, uint64_t index) {
  return stream + 16 * (index + 1);
}

// The words of stochastic rounding: stream 4 of random_normal.hpp.
inline DrawnBy rounding_words(const Sender& sender) {
  return {sender.seed, sender.item, stream_in_step(4, sender.step), sender.rank};
}

// The payload of `rank` in round 0 of the rig's next step, if its `work` has `values`. `work` is
// restored.
inline PayloadPointer encode_once(CompressorRig& rig, const std::vector<float>& values,
                                  uint32_t rank = 0, uint64_t item = 0) {
  const penstock_item* const view = rig.compressor_item(rank, item);
  auto* const work = static_cast<float*>(view->work.data);
  const std::vector<float> before(work, work + values.size());
  std::copy(values.begin(), values.end(), work);
  auto payload =
      std::make_unique<OwnedPayload>(rig.need(item).rounds[0].sections, static_cast<int32_t>(rank));
  penstock_payload* pointer = payload->c();
  const penstock_step step = rig.step_facts(rank);
  const penstock_exec exec = rig.exec();
  const CompressorInstance& compressor = rig.compressor(rank);
  PENSTOCK_EXPECT_OK(
      compressor.table().encode(compressor.self(), &exec, &step, 0, &view, 1, &pointer));
  EXPECT_TRUE(payload->intact());
  std::copy(before.begin(), before.end(), work);
  return payload;
}

// Decodes round 0 of a single payload into rank 0's `out`. `flags` are added to first and last.
inline Outcome decode_once(CompressorRig& rig, OwnedPayload& payload, uint64_t item = 0,
                           uint32_t flags = 0) {
  const penstock_payload* pointer = payload.c();
  const penstock_item* const view = rig.compressor_item(0, item);
  const penstock_step step = rig.step_facts(0);
  const penstock_exec exec = rig.exec();
  const CompressorInstance& compressor = rig.compressor(0);
  return take(compressor.table().decode(compressor.self(), &exec, &step, 0, &view, 1, &pointer, 1,
                                        PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST | flags));
}

// True if decoding the single payload is INVALID_PAYLOAD and the message contains `part`.
inline ::testing::AssertionResult refuses(CompressorRig& rig, OwnedPayload& payload,
                                          const std::string& part) {
  const Outcome outcome = decode_once(rig, payload);
  if (outcome.code == PENSTOCK_INVALID_PAYLOAD && outcome.message.find(part) != std::string::npos)
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "code " << outcome.code << ": " << outcome.message;
}

// Encodes `values` of item 0, changes the payload, names rank 3 as the sender and decodes. Expects
// INVALID_PAYLOAD with the rank, the gradient and `why`.
inline void expect_refused(CompressorRig& rig, const std::vector<float>& values,
                           const std::function<void(OwnedPayload&)>& change,
                           const std::string& why) {
  const PayloadPointer payload = encode_once(rig, values);
  payload->c()->rank = 3;
  change(*payload);
  const Outcome outcome = decode_once(rig, *payload);
  EXPECT_EQ(outcome.code, uint32_t{PENSTOCK_INVALID_PAYLOAD}) << why;
  for (const std::string& part : {std::string("rank 3"), std::string("gradient0"), why})
    EXPECT_NE(outcome.message.find(part), std::string::npos) << outcome.message;
}

// Element `at` of a section, to read or change.
template <typename T>
T& entry(OwnedPayload& payload, uint64_t section, uint64_t at) {
  return static_cast<T*>(payload.section(section).data)[at];
}

}  // namespace penstock::test
