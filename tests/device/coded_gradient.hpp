// A gradient that a compressor sends and receives, on the CPU or on a simulated device, with its
// payloads in host memory between the two.
#pragma once

#include <penstock/views.hpp>
#include <testing/need.hpp>

#include <deque>
#include <sstream>

#include "place.hpp"

namespace penstock::simulated::codes_test {

using Bytes = std::vector<unsigned char>;

struct Method {
  std::string name;
  test::OptionSettings options;
  std::string file() const { return "compressor-" + name + "-simulated.so"; }
};

// Printed by gtest.
inline void PrintTo(const Method& method, std::ostream* out) {
  *out << method.name;
  for (const auto& [name, value] : method.options) {
    *out << " " << name << " ";
    std::visit([&](const auto& set) { *out << set; }, value);
  }
}
inline std::string text_of(const Method& method) {
  std::ostringstream out;
  PrintTo(method, &out);
  return out.str();
}

// What one rank handed over for an item, in host memory.
struct Sent {
  uint32_t kind = PENSTOCK_PAYLOAD_ABSENT;
  std::vector<uint64_t> counts;
  std::vector<Bytes> sections;
  std::vector<float> work;  // what encode left there
};

// A gradient in one place, and calls of a method on it.
class CodedGradient {
 public:
  CodedGradient(const Method& method, Place& place, uint64_t numel, bool keeps, uint32_t ranks = 3)
      : plugin_(simulated_plugin(method.file())),
        compressor_(plugin_, method.options),
        place_(place),
        out_(place.put(std::vector<float>(numel, 0.25f))),
        work_(place.put(std::vector<float>(numel))) {
    item_.struct_size = sizeof item_;
    item_.name = sdk::str("gradient");
    item_.gradient = 7;
    item_.first = 4096;
    item_.numel = item_.rows = numel;
    item_.cols = 1;
    item_.grad = item_.out = tensor_of(out_, numel, place.exec());
    item_.work = tensor_of(work_, numel, place.exec());
    if (keeps)
      item_.flags = PENSTOCK_ITEM_KEEP;
    else
      item_.grad = item_.work;  // so that work carries the loss scale
    step_.struct_size = sizeof step_;
    step_.grad_scale = 8;
    step_.world = ranks;
    step_.seed = 11;
    step_.index = 3;
    need_ = test::ask_needs(compressor_, plugin_, 0, ranks, {&item_}).front();
    exec_ = place.exec();
    EXPECT_LE(need_.scratch_bytes, exec_.scratch_bytes);
    exec_.scratch_bytes = need_.scratch_bytes;
  }

  Sent encode(const std::vector<float>& x, uint32_t rank) {
    place_.write(work_, x);
    step_.rank = rank;
    std::deque<penstock_section> sections;
    for (const penstock_section_bound& bound : need_.rounds[0].sections) {
      const Bytes pattern(bound.capacity * sdk::dtype_bytes(bound.dtype), 0xa5);
      sections.push_back(section_of(bound, place_.put(pattern)));
    }
    const auto pointers = pointers_to(sections);
    penstock_payload payload = payload_of(pointers, 0);
    EXPECT_EQ(compressor_.encode(exec_, step_, 0, {&item_}, {&payload}).message, "");
    Sent sent{payload.kind, {}, {}, place_.get(work_, item_.numel)};
    for (const penstock_section& section : sections) {
      sent.counts.push_back(section.count);
      sent.sections.push_back(place_.get(static_cast<const unsigned char*>(section.data),
                                         section.count * sdk::dtype_bytes(section.dtype)));
    }
    return sent;
  }

  // In two slices where there are several ranks: the first rank, then the others.
  test::Outcome decode(const std::vector<Sent>& all) {
    place_.write(out_, std::vector<float>(item_.numel, 0.25f));
    step_.result_scale = 1.0 / static_cast<double>(all.size());
    const std::vector<Sent> first{all.front()}, others(all.begin() + 1, all.end());
    if (others.empty()) return add(first, PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST);
    const test::Outcome outcome = add(first, PENSTOCK_DECODE_FIRST);
    return outcome.ok() ? add(others, PENSTOCK_DECODE_LAST) : outcome;
  }
  // In one.
  test::Outcome add(const std::vector<Sent>& some, uint32_t flags) {
    std::deque<std::deque<penstock_section>> sections;
    std::deque<std::vector<penstock_section*>> pointers;
    std::deque<penstock_payload> payloads;
    std::vector<const penstock_payload*> given;
    for (const Sent& sent : some) {
      auto& mine = sections.emplace_back();
      for (uint64_t s = 0; s < sent.sections.size(); ++s) {
        mine.push_back(section_of(need_.rounds[0].sections[s], place_.put(sent.sections[s])));
        mine.back().count = sent.counts[s];
        if (exec_.device_type != PENSTOCK_DEVICE_CPU) mine.back().on_host = sent.sections[s].data();
      }
      const auto& list = pointers.emplace_back(pointers_to(mine));
      payloads.push_back(payload_of(list, static_cast<int32_t>(given.size())));
      payloads.back().kind = sent.kind;
      given.push_back(&payloads.back());
    }
    return compressor_.decode(exec_, step_, 0, {&item_}, given, given.size(), flags);
  }
  std::vector<float> result() const { return place_.get(out_, item_.numel); }
  uint64_t device_types() const { return compressor_.describe().device_types; }

 private:
  static penstock_section section_of(const penstock_section_bound& bound, void* data) {
    penstock_section section{};
    section.struct_size = sizeof section;
    section.data = data;
    section.capacity = bound.capacity;
    section.role = bound.role;
    section.dtype = bound.dtype;
    return section;
  }
  static std::vector<penstock_section*> pointers_to(std::deque<penstock_section>& sections) {
    std::vector<penstock_section*> pointers;
    for (penstock_section& section : sections) pointers.push_back(&section);
    return pointers;
  }
  static penstock_payload payload_of(const std::vector<penstock_section*>& sections, int32_t rank) {
    penstock_payload payload{};
    payload.struct_size = sizeof payload;
    payload.sections = sections.data();
    payload.n_sections = sections.size();
    payload.rank = rank;
    return payload;
  }

  test::LoadedPlugin plugin_;
  test::CompressorInstance compressor_;
  Place& place_;
  float* out_;
  float* work_;
  penstock_item item_{};
  penstock_step step_{};
  test::PlannedNeed need_;
  penstock_exec exec_{};
};

}  // namespace penstock::simulated::codes_test
