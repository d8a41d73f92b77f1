// One gradient on one rank as a compressor's plan wants it, in host memory or on the device: what
// encode finds, and how what it leaves reaches the others.
#pragma once

#include <penstock/fold.h>
#include <penstock/views.hpp>

#include <testing/item.hpp>

#include "place.hpp"

namespace penstock::simulated {

// What a rank sent, in host memory.
struct Sent {
  struct Section {
    penstock_section_bound planned;
    std::vector<unsigned char> bytes;

    template <typename T>
    std::vector<T> as() const {
      std::vector<T> values(bytes.size() / sizeof(T));
      if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
      return values;
    }
    template <typename T>
    void set(const std::vector<T>& values) {
      bytes.resize(values.size() * sizeof(T));
      if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    }
  };
  uint32_t kind = PENSTOCK_PAYLOAD_ABSENT;
  std::vector<Section> sections;
};

inline bool is_device(const Place& place) {
  return place.exec().device_type != PENSTOCK_DEVICE_CPU;
}

// A payload and its sections in a place. They begin at addresses that are aligned to 8 bytes and no
// more.
class PlacedPayload {
 public:
  // As encode finds it.
  PlacedPayload(Place& place, const std::vector<penstock_section_bound>& planned)
      : place_(&place), planned_(planned), sections_(planned.size()) {
    for (uint64_t s = 0; s < planned.size(); ++s) {
      penstock_section& section = add(s, bytes_of(planned[s], planned[s].capacity), {});
      section.count = 0;
      if (is_device(place) && (planned[s].flags & PENSTOCK_SECTION_EXACT) == 0)
        section.device_count = place.put(std::vector<uint64_t>(1, 77));
    }
  }
  // As decode finds it: what `sent` holds and nothing behind it. `sent` must outlive it.
  PlacedPayload(Place& place, const Sent& sent, int32_t rank)
      : place_(&place), sections_(sent.sections.size()) {
    for (uint64_t s = 0; s < sent.sections.size(); ++s) {
      const Sent::Section& from = sent.sections[s];
      planned_.push_back(from.planned);
      penstock_section& section = add(s, from.bytes.size(), from.bytes);
      section.count = from.bytes.size() / bytes_of(from.planned, 1);
      if (is_device(place)) section.on_host = from.bytes.data();
    }
    payload_.kind = sent.kind;
    payload_.rank = rank;
  }
  PlacedPayload(const PlacedPayload&) = delete;
  PlacedPayload& operator=(const PlacedPayload&) = delete;

  penstock_payload* c() { return &payload_; }
  Sent sent() const {
    Sent sent;
    sent.kind = payload_.kind;
    for (uint64_t s = 0; s < sections_.size(); ++s) {
      uint64_t count = sections_[s].count;
      if (count == PENSTOCK_COUNT_ON_DEVICE) count = place_->get(sections_[s].device_count, 1)[0];
      EXPECT_LE(count, planned_[s].capacity) << "section " << s;
      const auto* data = static_cast<const unsigned char*>(sections_[s].data);
      sent.sections.push_back({planned_[s], place_->get(data, bytes_of(planned_[s], count))});
    }
    return sent;
  }

 private:
  static constexpr uint64_t kCrooked = 8;

  static uint64_t bytes_of(const penstock_section_bound& planned, uint64_t count) {
    return count * sdk::dtype_bytes(planned.dtype);
  }
  penstock_section& add(uint64_t s, uint64_t bytes, const std::vector<unsigned char>& contents) {
    std::vector<unsigned char> memory(kCrooked + bytes, 0xa5);
    std::copy(contents.begin(), contents.end(), memory.begin() + kCrooked);
    penstock_section& section = sections_[s];
    section.struct_size = sizeof section;
    section.data = place_->put(memory) + kCrooked;
    section.capacity = planned_[s].capacity;
    section.role = planned_[s].role;
    section.dtype = planned_[s].dtype;
    pointers_.push_back(&section);
    payload_.struct_size = sizeof payload_;
    payload_.sections = pointers_.data();
    payload_.n_sections = pointers_.size();
    return section;
  }

  Place* place_;
  std::vector<penstock_section_bound> planned_;
  std::vector<penstock_section> sections_;
  std::vector<penstock_section*> pointers_;
  penstock_payload payload_{};
};

// The item, which has one state: what it works in, where `keeps`, or what a memory averages.
struct PlacedItem {
  PlacedItem(Place& place, const std::vector<float>& grad, const std::vector<float>& work,
             bool keeps)
      : item(test::describe_item(shape(grad.size()), name, 0)) {
    const uint64_t n = grad.size();
    item.grad = item.out = tensor_of(place.put(grad), n, place.exec());
    item.work = state = tensor_of(place.put(work), n, place.exec());
    if (keeps) item.flags = PENSTOCK_ITEM_KEEP | PENSTOCK_ITEM_REST_FOLLOWS;
    item.states = &states;
    item.n_states = 1;
  }
  PlacedItem(const PlacedItem&) = delete;
  PlacedItem& operator=(const PlacedItem&) = delete;

  static std::vector<float> get(const Place& place, const penstock_tensor& tensor) {
    return place.get(static_cast<const float*>(tensor.data), tensor.numel);
  }

  std::string name = "gradient";
  test::Shape dims;
  penstock_tensor state{};
  const penstock_tensor* states = &state;
  penstock_item item{};

 private:
  const test::Shape& shape(uint64_t n) { return dims = {int64_t(n)}; }
};

// What the plugin plans for a gradient of n elements.
inline test::PlannedNeed planned(const test::CompressorInstance& compressor,
                                 const test::LoadedPlugin& plugin, uint64_t n, uint32_t world) {
  const test::Shape shape{int64_t(n)};
  const std::string name = "gradient";
  penstock_item item = test::describe_item(shape, name, 0);
  return test::ask_needs(compressor, plugin, 0, world, {&item})[0];
}

// Of calls in this place, with no more scratch than was planned.
inline penstock_exec exec_of(const Place& place, const test::PlannedNeed& need) {
  penstock_exec exec = place.exec();
  EXPECT_LE(need.scratch_bytes, exec.scratch_bytes);
  exec.scratch_bytes = need.scratch_bytes;
  return exec;
}

inline penstock_step step_of(uint32_t world, double grad_scale = 1) {
  penstock_step step{};
  step.struct_size = sizeof step;
  step.grad_scale = grad_scale;
  step.world = world;
  return step;
}

}  // namespace penstock::simulated
