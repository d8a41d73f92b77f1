// Payloads of ranks: in host memory as on the wire, and in a place, where a compressor's calls use
// them.
#pragma once

#include <penstock/views.hpp>

#include <testing/payload.hpp>

#include <deque>

#include "place.hpp"

namespace penstock::simulated {

// The payload of one rank in a round, in host memory.
struct Sent {
  struct Section {
    uint64_t count = 0;
    Bytes bytes;

    template <typename T>
    std::vector<T> as() const {
      return values_of<T>(bytes);
    }
    template <typename T>
    void set(const std::vector<T>& values) {
      count = values.size();
      bytes = bytes_of(values);
    }
    void drop_last() {
      bytes.erase(bytes.end() - std::ptrdiff_t(bytes.size() / count), bytes.end());
      --count;
    }
    bool operator==(const Section&) const = default;
  };
  uint32_t kind = PENSTOCK_PAYLOAD_ABSENT;
  std::vector<Section> sections;

  bool operator==(const Sent&) const = default;
};

inline bool is_summed(const test::PlannedRound& round) {
  return round.c.combine == PENSTOCK_COMBINE_SUM;
}

// A payload of a round in a place. As in messages, its sections are aligned only to 8 bytes.
class PlacedPayload {
 public:
  // For encode: kind and counts are wrong until encode has set them.
  PlacedPayload(Place& place, const test::PlannedRound& round)
      : place_(place), sections_(round.sections.size()) {
    for (uint64_t s = 0; s < sections_.size(); ++s) {
      const penstock_section_bound& bound = round.sections[s];
      lay_out(s, bound, Bytes(bound.capacity * sdk::dtype_bytes(bound.dtype), 0xa5));
      sections_[s].count = kWrong;
      const bool may_vary = !is_summed(round) && (bound.flags & PENSTOCK_SECTION_EXACT) == 0;
      if (may_vary && place.is_device())
        sections_[s].device_count = place.put(std::vector<uint64_t>(1, 77));
    }
    finish(kWrong, 0);
  }
  // For decode: the sections end with the sent data. `sent` must outlive this object.
  PlacedPayload(Place& place, const test::PlannedRound& round, const Sent& sent, int32_t rank)
      : place_(place), sections_(sent.sections.size()) {
    for (uint64_t s = 0; s < sections_.size(); ++s) {
      lay_out(s, round.sections[s], sent.sections[s].bytes);
      sections_[s].count = sent.sections[s].count;
      if (place.is_device()) sections_[s].on_host = sent.sections[s].bytes.data();
    }
    finish(sent.kind, rank);
  }
  PlacedPayload(const PlacedPayload&) = delete;
  PlacedPayload& operator=(const PlacedPayload&) = delete;

  penstock_payload* c() { return &payload_; }
  const penstock_section& section(uint64_t s) const { return sections_[s]; }

  // The payload after encode, once the device has done its work.
  Sent sent() const {
    Sent sent;
    sent.kind = payload_.kind;
    for (uint64_t s = 0; s < sections_.size(); ++s) {
      const penstock_section& section = sections_[s];
      const uint64_t count = count_of(s);
      EXPECT_LE(count, section.capacity) << "section " << s;
      if (count > section.capacity) return Sent{};
      const auto* data = static_cast<const unsigned char*>(section.data);
      sent.sections.push_back({count, place_.get(data, count * sdk::dtype_bytes(section.dtype))});
    }
    return sent;
  }

 private:
  static constexpr uint32_t kWrong = 1234567;
  static constexpr uint64_t kCrooked = 8;

  void lay_out(uint64_t s, const penstock_section_bound& bound, const Bytes& contents) {
    Bytes memory(kCrooked, 0xa5);
    memory.insert(memory.end(), contents.begin(), contents.end());
    penstock_section& section = sections_[s];
    section.struct_size = sizeof section;
    section.data = place_.put(memory) + kCrooked;
    section.capacity = bound.capacity;
    section.role = bound.role;
    section.dtype = bound.dtype;
    pointers_.push_back(&section);
  }
  void finish(uint32_t kind, int32_t rank) {
    payload_.struct_size = sizeof payload_;
    payload_.kind = kind;
    payload_.rank = rank;
    payload_.sections = pointers_.data();
    payload_.n_sections = pointers_.size();
  }
  // A payload of pairs has a count on the device only for the indices.
  uint64_t count_of(uint64_t s) const {
    if (sections_[s].count != PENSTOCK_COUNT_ON_DEVICE) return sections_[s].count;
    if (s == 1 && payload_.kind == PENSTOCK_PAYLOAD_SPARSE) return count_of(0);
    return place_.get(sections_[s].device_count, 1)[0];
  }

  Place& place_;
  std::vector<penstock_section> sections_;
  std::vector<penstock_section*> pointers_;
  penstock_payload payload_{};
};

// The sum that a transport makes of the payloads of a summed round, in the order of ranks.
inline Sent summed(const test::PlannedRound& round, const std::vector<Sent>& all) {
  std::vector<test::PayloadPointer> payloads;
  std::vector<test::OwnedPayload*> pointers;
  for (const Sent& sent : all) {
    test::OwnedPayload& payload =
        *payloads.emplace_back(std::make_unique<test::OwnedPayload>(round.sections, 0));
    pointers.push_back(&payload);
    payload.make_absent();
    if (sent.kind == PENSTOCK_PAYLOAD_ABSENT) continue;
    payload.c()->kind = sent.kind;
    for (uint64_t s = 0; s < sent.sections.size(); ++s) {
      penstock_section& section = payload.section(s);
      EXPECT_EQ(sent.sections[s].count, section.capacity) << "of a sum, section " << s;
      if (sent.sections[s].count != section.capacity || section.capacity == 0) continue;
      section.count = section.capacity;
      std::memcpy(section.data, sent.sections[s].bytes.data(), sent.sections[s].bytes.size());
    }
  }
  const test::PayloadPointer sum = test::reduced(round, pointers);
  Sent made{sum->c()->kind, {}};
  for (uint64_t s = 0; s < sum->n_sections(); ++s) {
    const penstock_section& section = sum->section(s);
    const auto* begin = static_cast<const unsigned char*>(section.data);
    made.sections.push_back(
        {section.count, Bytes(begin, begin + section.count * sdk::dtype_bytes(section.dtype))});
  }
  return made;
}

}  // namespace penstock::simulated
