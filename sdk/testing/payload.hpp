// Payloads with guards around every section, and the operations of ranks on them: copies, sums.
#pragma once

#include <penstock/plugin.h>

#include <memory>
#include <testing/buffer.hpp>

namespace penstock::test {

// The sections of one round, copied from the published need.
struct PlannedRound {
  penstock_round c{};
  std::vector<penstock_section_bound> sections;
};

// One payload as encode receives it: kind and counts are invalid until encode has set them.
class OwnedPayload {
 public:
  OwnedPayload(const std::vector<penstock_section_bound>& bounds, int32_t rank);
  OwnedPayload(const OwnedPayload&) = delete;
  OwnedPayload& operator=(const OwnedPayload&) = delete;

  penstock_payload* c() { return &payload_; }
  uint64_t n_sections() const { return sections_.size(); }
  penstock_section& section(uint64_t i) { return *pointers_[i]; }
  bool is_absent() const { return payload_.kind == PENSTOCK_PAYLOAD_ABSENT; }
  void make_absent();
  // False once a guard was written to.
  bool intact() const;

 private:
  penstock_payload payload_{};
  std::vector<penstock_section> sections_;
  std::vector<penstock_section*> pointers_;
  std::vector<Guarded<unsigned char>> bytes_;
};
using PayloadPointer = std::unique_ptr<OwnedPayload>;

// A dense float32 payload around `values`.
PayloadPointer dense_payload(const std::vector<float>& values, int32_t rank);
// A sparse payload; indices uint32, values float32.
PayloadPointer sparse_payload(const std::vector<uint32_t>& indices,
                              const std::vector<float>& values, int32_t rank);

// A copy as a receiver gets it: each section has exactly the sent size, with guards behind it.
PayloadPointer received(OwnedPayload& sent);
// The result of a summed round for the payloads of all ranks, combined by the round's reduction in
// ascending order of ranks; absent payloads count as zeros, and 16-bit floats round once at the
// end. Throws std::runtime_error for a dtype that no transport adds.
PayloadPointer reduced(const PlannedRound& round, const std::vector<OwnedPayload*>& of_ranks);

}  // namespace penstock::test
