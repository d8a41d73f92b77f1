// Views of the structs that the core passes to a plugin: items, payloads, and the facts of a call.
// They own nothing and are valid during the call.
#pragma once

#include <penstock/compressor.h>
#include <penstock/error.hpp>

#include <span>

namespace penstock::sdk {

template <typename T>
constexpr uint32_t dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return PENSTOCK_FLOAT32;
  else if constexpr (std::is_same_v<T, double>)
    return PENSTOCK_FLOAT64;
  else if constexpr (std::is_same_v<T, int8_t>)
    return PENSTOCK_INT8;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return PENSTOCK_UINT8;
  else if constexpr (std::is_same_v<T, int16_t>)
    return PENSTOCK_INT16;
  else if constexpr (std::is_same_v<T, uint16_t>)
    return PENSTOCK_UINT16;
  else if constexpr (std::is_same_v<T, int32_t>)
    return PENSTOCK_INT32;
  else if constexpr (std::is_same_v<T, uint32_t>)
    return PENSTOCK_UINT32;
  else if constexpr (std::is_same_v<T, int64_t>)
    return PENSTOCK_INT64;
  else if constexpr (std::is_same_v<T, uint64_t>)
    return PENSTOCK_UINT64;
  else
    return 0;
}

// Bytes per element; 0 for an unknown type.
constexpr uint64_t dtype_bytes(uint32_t dtype) {
  switch (dtype) {
    case PENSTOCK_FLOAT32:
    case PENSTOCK_INT32:
    case PENSTOCK_UINT32:
      return 4;
    case PENSTOCK_FLOAT16:
    case PENSTOCK_BFLOAT16:
    case PENSTOCK_INT16:
    case PENSTOCK_UINT16:
      return 2;
    case PENSTOCK_FLOAT64:
    case PENSTOCK_INT64:
    case PENSTOCK_UINT64:
      return 8;
    case PENSTOCK_INT8:
    case PENSTOCK_UINT8:
    case PENSTOCK_BOOL:
      return 1;
    default:
      return 0;
  }
}

// The elements of a tensor as T. 16-bit floats are read as uint16_t.
template <typename T>
std::span<T> elements(const penstock_tensor& tensor) {
  const bool raw =
      sizeof(T) == 2 && (tensor.dtype == PENSTOCK_FLOAT16 || tensor.dtype == PENSTOCK_BFLOAT16);
  if (tensor.dtype != dtype_of<T>() && !raw)
    throw internal("a tensor of dtype ", tensor.dtype, " is read as dtype ", dtype_of<T>());
  return {static_cast<T*>(tensor.data), tensor.numel};
}

// A gradient, or a range of a gradient, at one leg. penstock_item describes each field.
class Item {
 public:
  explicit Item(const penstock_item* item) : item_(item) {}
  const penstock_item& c() const { return *item_; }
  std::string_view name() const { return view(item_->name); }
  uint64_t numel() const { return item_->numel; }
  uint64_t rows() const { return item_->rows; }
  uint64_t cols() const { return item_->cols; }
  uint64_t n_dims() const { return item_->n_dims; }
  bool keeps() const { return (item_->flags & PENSTOCK_ITEM_KEEP) != 0; }
  // True if the elements that are not sent now are sent in a later step: work is a state, or the
  // memory adds them by other means (PENSTOCK_MEMORY_ADDS_REST).
  bool rest_follows() const {
    return (item_->flags & (PENSTOCK_ITEM_KEEP | PENSTOCK_ITEM_REST_FOLLOWS)) != 0;
  }
  bool lossless() const { return (item_->flags & PENSTOCK_ITEM_LOSSLESS) != 0; }
  template <typename T = float>
  std::span<T> grad() const {
    return elements<T>(item_->grad);
  }
  template <typename T = float>
  std::span<T> work() const {
    return elements<T>(item_->work);
  }
  template <typename T = float>
  std::span<T> out() const {
    return elements<T>(item_->out);
  }
  template <typename T = float>
  std::span<T> state(uint64_t index) const {
    if (index >= item_->n_states)
      throw internal("state ", index, " of '", name(), "' was not declared");
    return elements<T>(*item_->states[index]);
  }

 private:
  const penstock_item* item_;
};

// The items of one call.
class Items {
 public:
  Items(const penstock_item* const* items, uint64_t n_items) : items_(items), n_items_(n_items) {}
  uint64_t size() const { return n_items_; }
  Item operator[](uint64_t i) const { return Item(items_[i]); }

 private:
  const penstock_item* const* items_;
  uint64_t n_items_;
};

// Facts of one call: device, step, round and scratch.
struct Call {
  const penstock_exec* exec = nullptr;
  const penstock_step* step = nullptr;
  uint32_t round = 0;
  uint32_t flags = 0;  // PENSTOCK_DECODE_*

  // True if the tensors, payload sections and scratch of the call lie on a device: the call must
  // queue its work on exec->stream, and the host cannot read their bytes. Only plugins whose traits
  // name a device receive such calls.
  bool on_device() const { return exec->device_type != PENSTOCK_DEVICE_CPU; }

  // The factor by which this decode call must multiply its result. Only methods with kScalesResult
  // read it.
  float result_scale() const {
    if (!PENSTOCK_HAS_FIELD(step, penstock_step, result_scale) || step->result_scale == 0 ||
        (flags & PENSTOCK_DECODE_LAST) == 0)
      return 1;
    return static_cast<float>(step->result_scale);
  }

  // `count` elements of the call's scratch from byte `offset_bytes` on; their values are undefined.
  template <typename T>
  std::span<T> scratch(uint64_t count, uint64_t offset_bytes = 0) const {
    if (offset_bytes + count * sizeof(T) > exec->scratch_bytes)
      throw internal("scratch of ", offset_bytes + count * sizeof(T), " bytes wanted, planned ",
                     exec->scratch_bytes);
    return {reinterpret_cast<T*>(static_cast<char*>(exec->scratch) + offset_bytes), count};
  }
};

// The payload that encode writes for one item.
class PayloadWriter {
 public:
  explicit PayloadWriter(penstock_payload* payload) : payload_(payload) {}
  penstock_payload& c() const { return *payload_; }
  void kind(uint32_t kind) { payload_->kind = kind; }

  // The storage of section `index`, with the capacity that was planned.
  template <typename T>
  std::span<T> room(uint64_t index) const {
    const penstock_section& section = at(index);
    return {static_cast<T*>(section.data), section.capacity};
  }
  void count(uint64_t index, uint64_t count) {
    penstock_section& section = at(index);
    if (count > section.capacity)
      throw internal("section ", index, " has room for ", section.capacity, " elements, ", count,
                     " were written");
    section.count = count;
  }
  // Marks the payload as the k pairs in sections 0 (indices) and 1 (values).
  void sparse(uint64_t k) {
    kind(PENSTOCK_PAYLOAD_SPARSE);
    count(0, k);
    count(1, k);
  }
  // Marks the payload as without data.
  void absent() {
    kind(PENSTOCK_PAYLOAD_ABSENT);
    for (uint64_t s = 0; s < payload_->n_sections; ++s) payload_->sections[s]->count = 0;
  }
  // For a call on a device, and a section whose count may vary: returns the address where work that
  // is queued on the call's stream must write the count.
  uint64_t* count_on_device(uint64_t index) {
    penstock_section& section = at(index);
    if (section.device_count == nullptr)
      throw internal("section ", index, " has no place for a count on a device");
    section.count = PENSTOCK_COUNT_ON_DEVICE;
    return section.device_count;
  }
  // Like sparse(), but the device must write k to the returned address.
  uint64_t* sparse_on_device() {
    kind(PENSTOCK_PAYLOAD_SPARSE);
    at(1).count = PENSTOCK_COUNT_ON_DEVICE;
    return count_on_device(0);
  }

 private:
  penstock_section& at(uint64_t index) const {
    if (index >= payload_->n_sections) throw internal("section ", index, " was not planned");
    return *payload_->sections[index];
  }
  penstock_payload* payload_;
};

// The payload that a rank sent for one item. Its bytes are not trusted: this class checks sizes.
// The code that uses indices must check them; in a call on a device the host has checked them.
class PayloadReader {
 public:
  PayloadReader(const penstock_payload* payload, const Item& item)
      : payload_(payload), item_(item) {}
  const penstock_payload& c() const { return *payload_; }
  bool absent() const { return payload_->kind == PENSTOCK_PAYLOAD_ABSENT; }
  uint32_t kind() const { return payload_->kind; }
  int32_t rank() const { return payload_->rank; }

  // The elements of section `index`.
  template <typename T>
  std::span<const T> section(uint64_t index) const {
    if (index >= payload_->n_sections) throw error("has no section ", index);
    const penstock_section& section = *payload_->sections[index];
    if (section.count > section.capacity)
      throw error("claims ", section.count, " elements in section ", index, ", at most ",
                  section.capacity, " fit");
    if (dtype_bytes(section.dtype) != sizeof(T))
      throw error("has another dtype in section ", index, " than planned");
    return {static_cast<const T*>(section.data), section.count};
  }
  template <typename T>
  std::span<const T> section(uint64_t index, uint64_t expected_count) const {
    const auto found = section<T>(index);
    if (found.size() != expected_count)
      throw error("has ", found.size(), " elements in section ", index, ", expected ",
                  expected_count);
    return found;
  }
  // The elements of section `index` in host memory, also in a call on a device, so that the plugin
  // can check the data of a peer.
  template <typename T>
  std::span<const T> on_host(const Call& call, uint64_t index) const {
    const auto found = section<T>(index);
    if (!call.on_device() || found.empty()) return found;
    const penstock_section& c = *payload_->sections[index];
    if (!PENSTOCK_HAS_FIELD(&c, penstock_section, on_host) || c.on_host == nullptr)
      throw internal("section ", index, " of what was sent of '", item_.name(),
                     "' lies on a device alone");
    return {static_cast<const T*>(c.on_host), found.size()};
  }
  template <typename T>
  std::span<const T> on_host(const Call& call, uint64_t index, uint64_t expected_count) const {
    (void)section<T>(index, expected_count);
    return on_host<T>(call, index);
  }
  // An INVALID_PAYLOAD error that names rank and gradient.
  template <typename... Parts>
  Error error(const Parts&... parts) const {
    return invalid_payload("payload of rank ", payload_->rank, " for gradient '", item_.name(),
                           "' ", parts...);
  }

 private:
  const penstock_payload* payload_;
  Item item_;
};

// The scale of work relative to the true gradient: the loss scale if work is the storage of the
// gradient itself, else 1.
inline double work_unit(const Call& call, const Item& item) {
  return item.c().work.data == item.c().grad.data ? call.step->grad_scale : 1;
}

}  // namespace penstock::sdk
