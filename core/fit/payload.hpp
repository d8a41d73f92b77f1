// Payloads whose structs the core owns; their section data point into message buffers.
#pragma once

#include "core/tensor/dtype.hpp"

#include <penstock/collective.h>
#include <penstock/compressor.h>

#include <vector>

namespace penstock {

// A copy of a section in a compressor's need.
struct SectionNeed {
  uint64_t capacity = 0;  // elements
  uint32_t role = 0;
  uint32_t dtype = 0;
  bool exact = false;
  uint64_t bytes() const { return capacity * dtype_bytes(dtype); }

  // Whether gathered messages carry the section coded (core/bucket/coded_indices.hpp), for an item
  // of `numel` elements. With room for fewer indices, coding saves less than its header and zeros
  // may cost.
  static constexpr uint64_t kFewestCoded = 32;
  bool is_coded(uint64_t numel) const {
    return role == PENSTOCK_ROLE_INDICES && dtype == PENSTOCK_UINT32 && capacity >= kFewestCoded &&
           numel <= uint64_t{1} << 32;
  }
};

struct RoundNeed {
  uint32_t combine = PENSTOCK_COMBINE_SUM;
  uint32_t result = PENSTOCK_RESULT_MEAN;
  uint32_t reduction = PENSTOCK_REDUCE_SUM;
  uint32_t flags = 0;
  std::vector<SectionNeed> sections;

  // Index and value pairs, which a sparse collective can read.
  bool sparse() const {
    return combine == PENSTOCK_COMBINE_GATHER && sections.size() == 2 &&
           sections[0].role == PENSTOCK_ROLE_INDICES && sections[0].dtype == PENSTOCK_UINT32 &&
           sections[1].role == PENSTOCK_ROLE_VALUES && sections[1].dtype == PENSTOCK_FLOAT32;
  }
};

class PayloadStorage {
 public:
  PayloadStorage() = default;
  PayloadStorage(const PayloadStorage&) = delete;
  PayloadStorage& operator=(const PayloadStorage&) = delete;

  // Takes the sections of a round; no data yet.
  void shape(const RoundNeed& round, int32_t rank) {
    sections_.assign(round.sections.size(), penstock_section{});
    pointers_.clear();
    for (size_t s = 0; s < sections_.size(); ++s) {
      penstock_section& section = sections_[s];
      section.struct_size = sizeof section;
      section.capacity = round.sections[s].capacity;
      section.role = round.sections[s].role;
      section.dtype = round.sections[s].dtype;
      pointers_.push_back(&section);
    }
    c_.struct_size = sizeof c_;
    c_.sections = pointers_.data();
    c_.n_sections = pointers_.size();
    c_.kind = PENSTOCK_PAYLOAD_ABSENT;
    c_.rank = rank;
  }
  penstock_payload* c() { return &c_; }
  const penstock_payload* c() const { return &c_; }
  penstock_section& section(size_t index) { return sections_[index]; }
  size_t size() const { return sections_.size(); }
  void absent() {
    c_.kind = PENSTOCK_PAYLOAD_ABSENT;
    for (penstock_section& section : sections_) section.count = 0;
  }

 private:
  penstock_payload c_{};
  std::vector<penstock_section> sections_;
  std::vector<penstock_section*> pointers_;
};

}  // namespace penstock
